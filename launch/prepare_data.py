"""Turn a data set into banks and rows.

    python launch/prepare_data.py locomo --input FILE --out DIR [--split FILE] [--encoder minilm|hashing|none] [--adversarial] [--writer llm --model NAME …]
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from napmem_rl.data.locomo import load_locomo
from napmem_rl.data.prepare import prepare
from napmem_rl.errors import report_errors
from napmem_rl.memory.writer_settings import add_writer_arguments, read_writer_arguments
from napmem_rl.retrieval.encoder import load_encoder


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Turn a data set into memory banks and rows, split by conversation.")
    parser.add_argument("source", choices=["locomo"], help="format of the input")
    parser.add_argument("--input", type=Path, required=True, help="the file as it was published")
    parser.add_argument("--out", type=Path, required=True, help="directory to write: new, empty, or an earlier result, which is replaced")
    parser.add_argument("--split", type=Path, help='JSON {"train": [ids], "dev": [ids], "test": [ids]}; without it conversations are split 60/20/20 by hash')
    parser.add_argument("--encoder", default="minilm", help="vectors to compute now: minilm, hashing, none, or a model path (default: minilm)")
    parser.add_argument("--adversarial", action="store_true", help="keep LoCoMo's category 5, whose answer is that nothing was said")
    add_writer_arguments(parser)
    return parser.parse_args()


@report_errors
def main() -> int:
    """Returns 0, or 2 with one message where the input cannot be used; nothing is written then."""
    arguments = _parse_arguments()
    llm = read_writer_arguments(arguments)
    source = load_locomo(arguments.input, adversarial=arguments.adversarial)
    prepare(
        source,
        arguments.out,
        input_path=arguments.input,
        split_path=arguments.split,
        encoder=load_encoder(arguments.encoder),
        llm=llm,
        report=functools.partial(print, flush=True),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

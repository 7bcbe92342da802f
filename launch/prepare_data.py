"""Turn a data set into memory banks and rows.

    python launch/prepare_data.py SOURCE --input FILE --out DIR [--split FILE] [--encoder minilm|hashing|none|PATH] [--writer llm --model NAME …]

SOURCE is locomo, longmemeval, personamem, gapchat, msc, chronicles, jsonl (your own data), synthetic, or, for control tasks, gpqa or bfcl. Each has options
of its own: `python launch/prepare_data.py SOURCE --help`. docs/data.md describes them.
"""

from __future__ import annotations

import functools
import sys

from napmem_rl.command_parser import CommandParser
from napmem_rl.data.sources import add_sources, prepare_source
from napmem_rl.errors import report_errors


@report_errors
def main() -> int:
    """Returns 0, or 2 with one message where the input cannot be used; nothing is written then."""
    parser = CommandParser(description="Turn a data set into memory banks and rows, split by user.")
    add_sources(parser)
    prepare_source(parser.parse_args(), functools.partial(print, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())

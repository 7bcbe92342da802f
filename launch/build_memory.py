"""Turn users' messages into memory banks, one a user; a second run does only what is missing.

    python launch/build_memory.py INPUT --out DIR [--writer rules|llm --model NAME --base-url URL …] [--encoder minilm|hashing|none] [--on-bad-line error|skip]

INPUT is a JSONL file of messages, or a directory of such files; see napmem_rl/data/messages_file.py for its fields.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from napmem_rl.data.json_lines import ON_BAD_LINE
from napmem_rl.data.messages_file import load_messages
from napmem_rl.errors import report_errors
from napmem_rl.memory.build_many import build_many, summarise_run
from napmem_rl.memory.writer_settings import add_writer_arguments, read_writer_arguments
from napmem_rl.retrieval.encoder import load_encoder


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Turn users' messages into memory banks; a second run does only what is missing.")
    parser.add_argument("input", type=Path, help="JSONL file of messages, or a directory of such files")
    parser.add_argument("--out", type=Path, required=True, help="directory that holds one directory a bank")
    parser.add_argument("--encoder", default="minilm", help="vectors of records and messages: minilm, hashing, none, or a model path (default: minilm)")
    parser.add_argument("--on-bad-line", choices=ON_BAD_LINE, default="error", help="what to do with a line that cannot be used (default: error)")
    add_writer_arguments(parser)
    return parser.parse_args()


@report_errors
def main() -> int:
    """Returns 0, 1 where a bank is not complete, 2 with one message where the input or the settings cannot be used, or 130 where it was interrupted."""
    arguments = _parse_arguments()
    say = functools.partial(print, flush=True)
    settings = read_writer_arguments(arguments)
    loaded = load_messages(arguments.input, on_bad_line=arguments.on_bad_line)
    for line in loaded.describe():
        say(line)
    try:
        summaries = build_many(loaded.banks, arguments.out, settings=settings, encoder=load_encoder(arguments.encoder), report=say)
    except KeyboardInterrupt:
        say("interrupted; what is built is kept, and the same command goes on")
        return 130
    say(summarise_run(summaries))
    return 0 if all(summary.problem is None for summary in summaries) else 1


if __name__ == "__main__":
    sys.exit(main())

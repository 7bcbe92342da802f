"""The `napmem import` command."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from napmem_rl.data.chat_exports.detect import FORMATS
from napmem_rl.data.chat_exports.importing import import_chats
from napmem_rl.data.chat_exports.placing import GAP_HOURS
from napmem_rl.data.chat_exports.reading import ReadOptions
from napmem_rl.data.chat_exports.whatsapp_lines import ORDERS
from napmem_rl.data.chat_exports.whatsapp_words import LANGUAGES
from napmem_rl.data.chat_exports.writer_choice import read_writer_choice


def add_import_command(areas: argparse._SubParsersAction) -> None:
    """Add `import` to the areas of `napmem`."""
    text = "bring chats from ChatGPT, Claude, WhatsApp and others into a memory bank"
    parser = areas.add_parser("import", help=text, description=f"{text[0].upper()}{text[1:]}. The same command again adds only what is new.")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="an exported file, a zip as the vendor sends it, or a directory of them")
    parser.add_argument("--out", type=Path, required=True, metavar="BANK", help="the bank's directory: new, or a bank, which grows")
    parser.add_argument("--format", choices=FORMATS, help="default: by what the file looks like")
    parser.add_argument("--user", metavar="NAME", help="whose memory it is: your name as it stands in the chat, or as you are to be called")
    parser.add_argument("--time-zone", metavar="ZONE", help="of the phone of a WhatsApp chat, e.g. Europe/Lisbon (default: its times stay as they are)")
    parser.add_argument("--date-order", choices=ORDERS, help="of days and months in a WhatsApp chat, where its dates do not say")
    parser.add_argument("--language", choices=LANGUAGES, help="of the phone that a WhatsApp chat comes from (default: all that are known)")
    parser.add_argument("--writer", default="rules", metavar="rules|none|FILE", help="of records and topics: rules, none, or a language model's YAML file")
    parser.add_argument("--gap-hours", type=float, default=GAP_HOURS, metavar="N", help="silence after which another session begins (default: %(default)s)")
    parser.add_argument("--partial", action="store_true", help="of a file that is cut off, take the conversations before that place")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run_import)


def run_import(args: argparse.Namespace) -> int:
    """Import, and say what became of what; exit status 1 where something is left to be done, 130 where it was interrupted."""
    names = ("format", "user", "time_zone", "date_order", "language", "gap_hours", "partial")
    options = ReadOptions(**{name: getattr(args, name) for name in names})
    try:
        writer = read_writer_choice(args.writer)
        summary = import_chats(args.files, args.out, options=options, writer=writer, report=lambda line: print(line, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        print("interrupted; what is in the bank is kept, and the same command goes on", file=sys.stderr)
        return 130
    print(json.dumps(summary.to_json(), ensure_ascii=False, indent=2) if args.json else "\n".join(summary.describe()))
    return 0 if summary.problem is None else 1

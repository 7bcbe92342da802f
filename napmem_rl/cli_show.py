"""`napmem show`: one HTML page of a user's memory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from napmem_rl.report.bank_data import MAX_MESSAGES
from napmem_rl.report.bank_page import write_bank_page


def add_show_command(areas: Any) -> None:
    """Add the command to the parser's areas."""
    show = areas.add_parser("show", help="one HTML page of a bank: every statement unfolds down to the messages, with search and a time line")
    show.add_argument("bank", type=Path, metavar="BANK", help="directory of a bank")
    show.add_argument("--out", type=Path, metavar="FILE", help="default: <name of the bank's directory>.html, here")
    show.add_argument("--version", metavar="V", help="one of the versions that `napmem bank log` lists; default: the newest")
    show.add_argument("--max-messages", type=int, default=MAX_MESSAGES, metavar="N", help="messages in the page (default: %(default)s)")
    show.set_defaults(run=run_show_page)


def run_show_page(args: argparse.Namespace) -> int:
    """Write the page, and say what is in it."""
    print(write_bank_page(args.bank, out=args.out, version=args.version, max_messages=args.max_messages).describe())
    return 0

"""The `napmem` command: look into a memory bank and check it.

::

    napmem import FILE --out BANK     chats from ChatGPT, Claude, WhatsApp and others into a bank
    napmem bank verify DIR            every problem of a bank, one a line; exit status 1 if there is one
    napmem bank show DIR              what a bank holds
    napmem bank show DIR ITEM_ID      an item and the chain of what it rests on, down to the messages
    napmem bank log DIR               the versions of a bank, newest first
    napmem bank diff DIR V1 V2        messages, records, tracks and profile that changed from one version to a later one
    napmem bank checkout DIR V --out NEWDIR   a version as a bank of its own
    napmem forget BANK ITEM_ID …      messages, and all that rests on them, gone from every level, version and index of a bank
    napmem correct BANK ITEM_ID TEXT  a record or a statement of the profile put right
    napmem judge calibrate            how often a judge is wrong, on a built-in set of answers
    napmem judge agreement --labels FILE      accuracy, F1 and kappas of raters and a judge
    napmem audit-reward memchain      what a reward pays, on packets of known worth
    napmem ledger verify USER_DIR     whether nothing was lost and nothing paid twice in a user's sessions (ICML)
    napmem replay RUN ID              play a recorded episode again; the first token that differs
    napmem counterfactual RUN ID --drop MEMORY   the same question without a memory
    napmem compare A B                two evaluations question by question: differences, intervals, p-values, and what is not shared
    napmem score --metric NAME --pairs FILE   one metric over a file of predictions, one JSON row a pair
    napmem show BANK                  one HTML page of a bank; every statement unfolds down to the messages
    napmem ask BANK QUESTION          an answer out of a bank, with what it rests on; a checkpoint, an endpoint, or no model at all
    napmem chat BANK                  a conversation with a bank
    napmem serve-mcp BANK             a bank's tools for any assistant that speaks the Model Context Protocol
    napmem report RUN_DIR             one HTML page of a run: curves, losses, episodes; written to RUN_DIR/report.html
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from napmem_rl.cli_ask import add_ask_commands
from napmem_rl.cli_audit import add_audit_commands
from napmem_rl.cli_bank import add_bank_commands
from napmem_rl.cli_compare import add_compare_command
from napmem_rl.cli_forget import add_forget_commands
from napmem_rl.cli_import import add_import_command
from napmem_rl.cli_judge import add_judge_commands
from napmem_rl.cli_ledger import add_ledger_commands
from napmem_rl.cli_mcp import add_mcp_command
from napmem_rl.cli_replay import add_replay_commands
from napmem_rl.cli_score import add_score_commands
from napmem_rl.cli_show import add_show_command
from napmem_rl.command_parser import CommandParser
from napmem_rl.errors import NapMemError
from napmem_rl.masking import mask_log_records
from napmem_rl.report.page import MAX_EPISODES, write_report


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (0 fine, 1 a problem found or bad input; argparse itself exits with 2)."""
    mask_log_records()
    args = _build_parser().parse_args(argv)
    try:
        status = args.run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has seen enough, as in `napmem bank show DIR | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except NapMemError as error:
        print(f"napmem: {error}", file=sys.stderr)
        return 1


def _build_parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="napmem", description="Look into memory banks and finished runs.")
    areas = parser.add_subparsers(required=True, metavar="AREA")
    add_bank_commands(areas)
    add_forget_commands(areas)
    add_score_commands(areas)
    add_compare_command(areas)
    add_replay_commands(areas)
    add_judge_commands(areas)
    add_audit_commands(areas)
    add_ledger_commands(areas)
    add_show_command(areas)
    add_ask_commands(areas)
    add_mcp_command(areas)
    add_import_command(areas)
    report = areas.add_parser("report", help="one HTML page of a run: curves, losses, and the episodes themselves")
    report.add_argument("dir", type=Path, metavar="RUN_DIR")
    report.add_argument("--out", type=Path, metavar="FILE", help="default: RUN_DIR/report.html")
    report.add_argument("--max-trajectories", type=_positive, default=MAX_EPISODES, metavar="N", help="episodes in the page (default: %(default)s)")
    report.add_argument("--banks", type=Path, metavar="DIR", help="where the run's memory banks are now, if they have moved")
    report.set_defaults(run=_run_report)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {number}, expected at least 1")
    return number


def _run_report(args: argparse.Namespace) -> int:
    print(write_report(args.dir, out=args.out, max_episodes=args.max_trajectories, banks=args.banks).describe())
    return 0


if __name__ == "__main__":
    sys.exit(main())

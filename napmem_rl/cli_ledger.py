"""The `napmem ledger` commands: who was paid what in a user's sessions, and whether the book keeps its rules."""

from __future__ import annotations

import argparse
from pathlib import Path

from napmem_rl.systems.icml.ledger import Entry, check_entries
from napmem_rl.systems.icml.user_state import UserStore, read_user_id


def add_ledger_commands(areas: argparse._SubParsersAction) -> None:
    """Add `ledger` and its commands to the areas of `napmem`."""
    ledger = areas.add_parser("ledger", help="who was paid what, when and why, in the sessions of one user (ICML)")
    commands = ledger.add_subparsers(required=True, metavar="COMMAND")
    verify = commands.add_parser("verify", help="check that nothing was lost and nothing paid twice; exit status 1 otherwise")
    verify.add_argument("dir", type=Path, metavar="USER_DIR")
    verify.add_argument("--truth-weight", type=float, metavar="LAMBDA", help="check amounts of truth payments too")
    verify.set_defaults(run=run_ledger_verify)
    show = commands.add_parser("show", help="every entry, one a line")
    show.add_argument("dir", type=Path, metavar="USER_DIR")
    show.set_defaults(run=run_ledger_show)


def run_ledger_verify(args: argparse.Namespace) -> int:
    """Every broken rule, one a line, or one line that all hold."""
    state = UserStore(args.dir, read_user_id(args.dir)).load()
    problems = check_entries(state.entries, truth_weight=args.truth_weight)
    size = f"{len(state.sessions)} sessions, {len(state.entries)} entries, {len(state.waiting)} memories wait for their truth"
    print("\n".join(problems) if problems else f"{state.user_id}: {size}: every rule holds")
    return 1 if problems else 0


def run_ledger_show(args: argparse.Namespace) -> int:
    """The entries as a table of text."""
    for entry in UserStore(args.dir, read_user_id(args.dir)).load().entries:
        print(_show(entry))
    return 0


def _show(entry: Entry) -> str:
    amount = "      –" if entry.amount is None else f"{entry.amount:+7.3f}"
    parts = [f"{entry.session_id:<12} {entry.kind:<9} {amount}", entry.step_id, entry.memory_id, f"because of {entry.cause}" if entry.cause else "", entry.why]
    return "  ".join(part for part in parts if part)

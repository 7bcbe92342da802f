"""The `napmem audit-reward` command: what a system's reward pays, on packets of known worth."""

from __future__ import annotations

import argparse

from napmem_rl.systems.memchain.audit import audit_reward


def add_audit_commands(areas: argparse._SubParsersAction) -> None:
    """Add `audit-reward` and its systems to the areas of `napmem`."""
    systems = areas.add_parser("audit-reward", help="what a reward pays, on responses of known worth").add_subparsers(required=True, metavar="SYSTEM")
    memchain = systems.add_parser("memchain", help="equations 15 and 16 over packets: perfect, partial, degenerate, and what is paid by design")
    memchain.add_argument("--json", action="store_true", help="print everything as JSON")
    memchain.set_defaults(run=run_audit_memchain)


def run_audit_memchain(args: argparse.Namespace) -> int:
    """Rows and demands; exit status 1 where a demand fails."""
    audit = audit_reward()
    print(audit.render_json() if args.json else audit.render_text())
    return 0 if audit.is_fine else 1

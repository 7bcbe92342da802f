"""The `napmem` command: look into a memory bank and check it.

::

    napmem bank verify DIR            every problem of a bank, one a line; exit status 1 if there is one
    napmem bank show DIR              what a bank holds
    napmem bank show DIR ITEM_ID      an item and the chain of what it rests on, down to the messages
    napmem report RUN_DIR             one HTML page of a run: curves, losses, episodes; written to RUN_DIR/report.html
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from napmem_rl.errors import NapMemError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.pyramid import PROFILE_ID
from napmem_rl.report.page import MAX_EPISODES, write_report
from napmem_rl.schema import Message, Record, Track


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (0 fine, 1 a problem found or bad input; argparse itself exits with 2)."""
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
    parser = argparse.ArgumentParser(prog="napmem", description="Look into memory banks and finished runs.")
    areas = parser.add_subparsers(required=True, metavar="AREA")
    bank = areas.add_parser("bank", help="memory banks on disk").add_subparsers(required=True, metavar="COMMAND")
    verify = bank.add_parser("verify", help="check every file and every link of a bank")
    verify.add_argument("dir", type=Path, metavar="DIR")
    verify.set_defaults(run=_run_verify)
    show = bank.add_parser("show", help="what a bank holds, or one item with all that it rests on")
    show.add_argument("dir", type=Path, metavar="DIR")
    show.add_argument("item_id", nargs="?", metavar="ITEM_ID", help="msg:12, rec:7, trk:3, profile, or a file name")
    show.set_defaults(run=_run_show)
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


def _run_verify(args: argparse.Namespace) -> int:
    problems = verify_bank(args.dir)
    for problem in problems:
        print(problem)
    print(f"bank {args.dir}: {len(problems)} problem(s)" if problems else f"bank {args.dir}: fine", file=sys.stderr if problems else sys.stdout)
    return 1 if problems else 0


def _run_show(args: argparse.Namespace) -> int:
    bank = MemoryBank.open(args.dir)
    for line in _describe_bank(bank) if args.item_id is None else _describe_item(bank, _find_id(bank, args.item_id), 0):
        print(line)
    return 0


def _run_report(args: argparse.Namespace) -> int:
    print(write_report(args.dir, out=args.out, max_episodes=args.max_trajectories, banks=args.banks).describe())
    return 0


def _find_id(bank: MemoryBank, name: str) -> str:
    """An item id as it is, or the id of the item that a file of this name holds."""
    item = bank.item_of_file(name)
    item_id = name if item is None else getattr(item, "track_id", PROFILE_ID)
    bank.provenance(item_id)  # raises for an unknown one
    return item_id


def _describe_bank(bank: MemoryBank) -> Iterator[str]:
    yield f"bank {bank.bank_id}, version {bank.version}, written by {bank.writer}"
    yield f"{len(bank.messages)} messages, {len(bank.records)} records, {len(bank.tracks)} tracks"
    yield from (f"{track.track_id}  {track.file_name}  {track.summary}" for track in bank.tracks)
    yield f"{PROFILE_ID}  profile.md  {len(bank.profile.text)} characters, {len(bank.profile.source_ids)} links"


def _describe_item(bank: MemoryBank, item_id: str, depth: int) -> Iterator[str]:
    """The item, then what it rests on, indented by level."""
    indent = "  " * depth
    match item := bank.item(item_id):
        case Message():
            caption = f" [image: {item.caption}]" if item.caption else ""
            yield f"{indent}{item_id} {item.time} {item.speaker}: {item.text}{caption}"
            return
        case Record():
            yield f"{indent}{item_id} {item.time} {item.type}: {item.text}"
            sources = item.source_ids
        case Track():
            yield f"{indent}{item_id} {item.time} {item.title}: {item.summary}"
            sources = item.record_ids
        case _:
            yield from (f"{indent}{line}" for line in (f"{PROFILE_ID} {bank.profile.time}", *bank.profile.text.splitlines()))
            sources = bank.profile.source_ids
    for source_id in sources:
        yield from _describe_item(bank, source_id, depth + 1)


if __name__ == "__main__":
    sys.exit(main())

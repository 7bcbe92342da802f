"""The commands `napmem forget` and `napmem correct`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from napmem_rl.data.chat_exports.writer_choice import WriterChoice, read_writer_choice
from napmem_rl.errors import ConfigError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import load_writer
from napmem_rl.memory.correction import correct
from napmem_rl.memory.forget_places import Places, find_places
from napmem_rl.memory.forget_selection import Selectors
from napmem_rl.memory.forgetting import ForgetPlan, Forgot, MakeWriter, forget, look
from napmem_rl.memory.trace_files import Action
from napmem_rl.memory.writer_settings import build_client, build_llm_writer
from napmem_rl.schema import Message

MAX_SHOWN = 50  # items of a kind that are told one by one; a dry run tells all
SAME_WRITER = "same"


def add_forget_commands(areas: argparse._SubParsersAction) -> None:
    """Add `forget` and `correct` to the areas of `napmem`."""
    parser = areas.add_parser("forget", help="remove messages and all that rests on them from every level, version and index of a bank")
    parser.add_argument("dir", type=Path, metavar="BANK")
    parser.add_argument("items", nargs="*", metavar="ITEM_ID", help="msg:12, or rec:7 for the messages that it rests on")
    parser.add_argument("--session", action="append", default=[], metavar="ID", help="all messages of a session; may be repeated")
    parser.add_argument("--after", metavar="TIME", help="messages from this day or moment on, e.g. 2024-03-05 or 2024-03-05T18:00")
    parser.add_argument("--before", metavar="TIME", help="messages up to this day or moment")
    parser.add_argument("--query", metavar="WORDS", help="messages that hold all of these words; shown first, and asked for")
    parser.add_argument("--nearest", type=int, metavar="N", help="with --query: the N messages that a search finds first instead")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and change nothing")
    parser.add_argument("--runs", type=Path, nargs="+", default=[], metavar="DIR", help="run directories to clean of what quotes it")
    parser.add_argument(
        "--no-version-names", action="store_true", help="let `napmem bank log` not even name the versions that go: a name is a hash of all it held"
    )
    _add_shared(parser)
    parser.set_defaults(run=run_forget)
    parser = areas.add_parser("correct", help="put a record or a statement of the profile right; dependents are written again")
    parser.add_argument("dir", type=Path, metavar="BANK")
    parser.add_argument("item_id", metavar="ITEM_ID", help="rec:7, or profile:2 for the second statement of the profile")
    parser.add_argument("text", metavar="TEXT", help='what is right, as the bank is to say it, e.g. "Ana lives in Bergen."')
    parser.add_argument("--forget-old", action="store_true", help="also forget the old text, with the messages that it rests on")
    _add_shared(parser)
    parser.set_defaults(run=run_correct, runs=[])


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--caches", type=Path, nargs="+", default=[], metavar="DIR", help="caches of replies (--cache-dir of a build) to clean of what quotes it"
    )
    help_text = "what writes again what must be: the bank's own writer as far as it needs no settings (default), none, or a YAML file of a language model's"
    parser.add_argument("--writer", default=SAME_WRITER, metavar="same|rules|none|FILE", help=help_text)


def run_forget(args: argparse.Namespace) -> int:
    """Show what goes, ask where it was not named by id, and forget."""
    make_writer, caches = _choose_writer(args)
    selectors = _read_selectors(args)
    plan = look(args.dir, selectors, make_writer)
    if plan is None:
        print(f"bank {args.dir}: nothing to forget: there is no such message, or it was forgotten already")
        return 0
    places = find_places(plan, caches, args.runs)
    is_asking = bool(args.query) and not args.yes
    _print(_describe_plan(plan, make_writer, MAX_SHOWN if not (args.dry_run or is_asking) else None), places.describe())
    if args.dry_run:
        print("nothing was changed (--dry-run)")
        return 0
    if is_asking and not _ask(f"Forget {_count(len(plan.messages))}?"):
        print("nothing was changed")
        return 1
    done = forget(
        args.dir,
        selectors,
        make_writer=make_writer,
        expected_version=plan.version,
        before_switch=lambda _: _clean(places),
        names_versions=not args.no_version_names,
    )
    assert done is not None, f"bank {args.dir}: nothing to forget in version {plan.version}"
    return _tell(args.dir, done, places)


def run_correct(args: argparse.Namespace) -> int:
    """Put one statement right."""
    make_writer, caches = _choose_writer(args)
    places: list[Places] = []

    def clean(plan: ForgetPlan) -> None:
        places.append(find_places(plan, caches, []))
        _clean(places[0])

    done = correct(
        args.dir, args.item_id, args.text, make_writer=make_writer, forgets_old=args.forget_old, confirm=lambda plan: _confirm(plan, args), before_switch=clean
    )
    if done is None:
        print("nothing was changed")
        return 1
    print(f"bank {args.dir}: {done.record_id} says now: {args.text}")
    print(f"bank {args.dir}: it rests on {done.message_id}; the old words are {'forgotten' if args.forget_old else 'in its history'}; version {done.version}")
    _print(f"left to write: {step.step}" for step in done.pending)
    return 0


def _confirm(plan: ForgetPlan, args: argparse.Namespace) -> bool:
    _print(_describe_plan(plan, None, None))
    return args.yes or _ask(f"Forget {_count(len(plan.messages))}?")


def _read_selectors(args: argparse.Namespace) -> Selectors:
    other = [item for item in args.items if not item.startswith(("msg:", "rec:"))]
    if other:
        fix = "Name messages or records; `napmem bank show` lists what a track or the profile rests on."
        raise ConfigError.of("napmem forget", "forgets messages, and with them what rests on them", got=other[0], expected="msg:… or rec:…", fix=fix)
    return Selectors(
        message_ids=tuple(item for item in args.items if item.startswith("msg:")),
        record_ids=tuple(item for item in args.items if item.startswith("rec:")),
        session_ids=tuple(args.session),
        after=args.after,
        before=args.before,
        query=args.query,
        nearest=args.nearest,
    )


def _choose_writer(args: argparse.Namespace) -> tuple[MakeWriter | None, list[Path]]:
    """(what gives the writer, or None; the caches to clean)."""
    bank = MemoryBank.open(args.dir)
    name = args.writer
    if name == SAME_WRITER:
        name = "rules" if bank.writer == "rules" else "none"
    choice: WriterChoice = read_writer_choice(name)
    if not choice.draws:
        return None, args.caches
    if choice.settings is None:
        return (lambda: load_writer(bank.bank_id, "rules")), args.caches
    settings = choice.settings
    own = [Path(settings.cache_dir)] if settings.cache_dir and Path(settings.cache_dir).exists() else []
    return (lambda: build_llm_writer(build_client(settings), settings)), list(dict.fromkeys([*args.caches, *own]))


def _describe_plan(plan: ForgetPlan, make_writer: MakeWriter | None, limit: int | None) -> Iterator[str]:
    """What goes and what is written again."""
    yield f"bank {plan.bank_id}, version {plan.version}: {_count(len(plan.messages))} go, {len(plan.left)} stay"
    yield from _shorten([f"- {_describe_message(message)}" for message in plan.messages], limit)
    remains = plan.remains
    records = [("records that go", remains.gone_ids), ("records that change", remains.changed_ids), ("records in their place", remains.new_ids)]
    yield from (f"{what}: {', '.join(ids)}" for what, ids in records if ids)
    if remains.orphan_ids:
        how = "drawn from again" if make_writer is not None else "without a record of their own until a writer draws from them again (--writer)"
        yield f"messages that those rested on besides: {', '.join(_shorten(list(remains.orphan_ids), limit))}; {how}"
    levels = [("go", remains.dropped_ids), ("lose what rests on it", remains.reduced_ids)]
    yield from (f"tracks and profile that {what}: {', '.join(ids)}" for what, ids in levels if ids)
    yield f"versions: {len(plan.kept)} from before it stay, the content of {len(plan.removed)} is removed; search indexes and their vectors are made again"
    if plan.same_ids:
        yield f"the same words stay in {', '.join(_shorten(list(plan.same_ids), limit))}"


def _count(num_messages: int) -> str:
    return "1 message" if num_messages == 1 else f"{num_messages} messages"


def _describe_message(message: Message) -> str:
    text = " ".join(f"{message.text} {message.caption or ''}".split())
    return f"{message.message_id} {message.time} {message.speaker}: {text[:160]}{' …' if len(text) > 160 else ''}"


def _shorten(lines: list[str], limit: int | None) -> Iterator[str]:
    yield from lines[:limit]
    if limit is not None and len(lines) > limit:
        yield f"… and {len(lines) - limit} more"


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError.of(
            "napmem", "asks before it forgets, and nobody is there to answer", fix="Look with --dry-run, then give --yes. Nothing was changed."
        )
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _clean(places: Places) -> None:
    done = places.clean()
    if done:
        print("cleaned elsewhere: " + ", ".join(f"{number} files {action}" for action, number in sorted(done.items()) if action is not Action.WEIGHTS))


def _tell(path: Path, done: Forgot, places: Places) -> int:
    print(f"bank {path}: forgot {_count(len(done.plan.messages))}; its version is {done.version} now")
    _print(f"left to write: {step.step}" for step in done.pending)
    print("Not reached: the file that it was built from, copies and backups, what a disk keeps of removed files, models that were trained on it.")
    by_hand = [file for files in places.runs.values() for file in files if file.action in (Action.LEFT, Action.UNREAD)]
    return 1 if by_hand else 0


def _print(*parts: Iterator[str]) -> None:
    for part in parts:
        for line in part:
            print(line)

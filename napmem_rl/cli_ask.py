"""`napmem ask` and `napmem chat`: questions to a memory bank."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napmem_rl.errors import ConfigError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.pyramid import is_time

if TYPE_CHECKING:
    from napmem_rl.assistant.conversation import Conversation
    from napmem_rl.backend.asked_policy import AskedPolicy

_POLICY = (
    "who answers: a directory with a trained checkpoint, a recipe, or the name of one; default: words picked out of what a search finds, without any model"
)


def add_ask_commands(areas: Any) -> None:
    """Add the commands to the parser's areas."""
    ask = areas.add_parser("ask", help="one question to a bank, with what the answer rests on")
    ask.add_argument("bank", type=Path, metavar="BANK")
    ask.add_argument("question", metavar="QUESTION")
    ask.add_argument("--at", metavar="TIME", help="as of this moment, such as 2024-03-31; nothing later is shown")
    ask.add_argument("--version", metavar="V", help="one of the bank's versions; default: the newest")
    ask.add_argument("--all", action="store_true", help="show everything that was read")
    ask.add_argument("--json", action="store_true", help="one JSON object instead of text")
    _add_policy(ask)
    ask.set_defaults(run=run_ask)
    chat = areas.add_parser("chat", help="a conversation with a bank")
    chat.add_argument("bank", type=Path, metavar="BANK")
    chat.add_argument("--learn", action="store_true", help="add what you said to the bank at the end; without it the bank is not written unless you /remember")
    _add_policy(chat)
    chat.set_defaults(run=run_chat)


def _add_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="POLICY", help=_POLICY)
    parser.add_argument("--model", metavar="NAME", help="a model behind an OpenAI-compatible endpoint; it looks things up with the memory tools")
    parser.add_argument("--base-url", metavar="URL", help="of the endpoint")
    parser.add_argument("--api-key-env", metavar="VARIABLE", help='NAME of the variable with the key; "" for a server without keys')
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a key of an evaluation recipe, such as memory.encoder=minilm; may be repeated"
    )


def run_ask(args: argparse.Namespace) -> int:
    """Ask, and print; the exit status is 0 for an answer (an abstention is one) and 1 where there is none."""
    from napmem_rl.assistant.asking import ask
    from napmem_rl.assistant.reply_text import MAX_SHOWN, render_answer, render_reasons

    if args.at is not None and not is_time(args.at):
        raise ConfigError.of("--at", "is no moment", got=args.at, expected="ISO 8601 without a zone, such as 2024-03-31 or 2024-03-31T18:00")
    if not args.question.strip():
        raise ConfigError.of("napmem ask", "the question is empty", expected='napmem ask BANK "What does Mia do?"')
    at = f"{args.at}T23:59:59" if args.at is not None and len(args.at) == 10 else args.at  # a day means all of it

    async def run(asked: AskedPolicy) -> Any:
        try:
            return await ask(asked.policy, MemoryBank.open(args.bank, version=args.version, **asked.search), args.question, asked_at=at)
        finally:
            await asked.policy.close()

    with _open_policy(args) as asked:
        reply = asyncio.run(run(asked))
    if args.json:
        print(json.dumps(reply.as_json(), ensure_ascii=True, indent=1))
    else:
        print(render_answer(reply), "", *render_reasons(reply, max_shown=len(reply.evidence) if args.all else MAX_SHOWN), sep="\n")
    return 0 if reply.answer is not None else 1


def run_chat(args: argparse.Namespace) -> int:
    """Talk until the input ends."""
    from napmem_rl.assistant.conversation import HELP, Conversation

    with _open_policy(args) as asked, asyncio.Runner() as runner:
        try:
            open_bank = functools.partial(MemoryBank.open, args.bank, **asked.search)
            talk = Conversation(asked.policy, open_bank, uses_context=asked.looks_up)
            if sys.stdin.isatty():
                print(
                    HELP
                    if asked.looks_up
                    else f"{HELP}\nThis policy takes each question by itself; a checkpoint or a model with tools follows the conversation."
                )
            for line in _read_lines():
                if line.strip() == "/quit":
                    break
                if line.strip():
                    _answer(runner, talk, line)
            if args.learn and talk.has_unsaved:
                print(runner.run(talk.remember()).describe())
        finally:
            runner.run(asked.policy.close())
    return 0


def _answer(runner: asyncio.Runner, talk: Conversation, line: str) -> None:
    """Answer one line; Ctrl-C gives it up, and the conversation goes on."""
    try:
        print(*runner.run(talk.take(line)), sep="\n", flush=True)
    except KeyboardInterrupt:
        print("given up")


def _read_lines() -> Iterator[str]:
    """Lines of the user until the input ends, or Ctrl-C at the prompt."""
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return


@contextmanager
def _open_policy(args: argparse.Namespace) -> Iterator[AskedPolicy]:
    from napmem_rl.backend.asked_policy import choose_recipe, open_policy  # imports what takes a second

    MemoryBank.open(args.bank)  # a bank that cannot be opened is told before an engine starts
    endpoint = {"model": args.model, "base_url": args.base_url, "api_key_env": args.api_key_env}
    with open_policy(choose_recipe(args.policy, overrides=args.set, **endpoint)) as asked:
        yield asked

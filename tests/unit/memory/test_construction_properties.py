"""Construction of several memories at once, stopped at any await and any commit, torn ones too: each ends byte for byte as if nothing had happened."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_memory import ScriptedWriter, talk

from napmem_rl.data.worlds import generate_user
from napmem_rl.errors import LLMError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import BuildReport
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.writers.base import MemoryWriter
from napmem_rl.memory.writers.rules import RulesWriter
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.schema import Message


class Crash(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Stop:
    """Where a run ends: at its `number`-th call of the writer, before or after that commit, or in the middle of that write, `share` of which is done."""

    kind: str = "never"
    number: int = 0
    share: float = 0.0


class CrashingBank(BankWriter):
    """A bank whose process ends where `stop` says."""

    stop = Stop()
    num_commits = num_writes = 0

    def commit(self, changes):
        self.num_commits += 1
        if self.stop.kind == "before commit" and self.num_commits == self.stop.number:
            raise Crash
        version = super().commit(changes)
        if self.stop.kind == "after commit" and self.num_commits == self.stop.number:
            raise Crash
        return version

    def _append(self, descriptor, content, offset):
        self.num_writes += 1
        if self.stop.kind == "torn write" and self.num_writes == self.stop.number:
            super()._append(descriptor, content[: int(self.stop.share * len(content))], offset)
            raise Crash
        super()._append(descriptor, content, offset)


class WaitingWriter(ScriptedWriter):
    """A scripted writer that lets others go first, for so many turns of the event loop, and breaks at the calls that `faults` names."""

    def __init__(self, pauses: Sequence[int], stop: Stop = Stop(), *, faults: Sequence[int] = ()) -> None:
        super().__init__()
        self._pauses, self._stop, self._faults, self._num_calls = itertools.cycle(pauses), stop, faults, 0

    async def _called(self, step: str, about: str) -> None:
        self._num_calls += 1
        for _ in range(next(self._pauses)):
            await asyncio.sleep(0)
        if self._stop.kind == "call" and self._num_calls == self._stop.number:
            raise Crash
        if self._num_calls in self._faults:
            raise LLMError(f"call {self._num_calls}")
        await super()._called(step, about)


LINES = ("add tea green", "add tea black", "set city Oslo", "set city Rome", "join trip Rome", "join trip Bern", "add notopic x", "hi", "bad:source x y")
TURN = st.lists(st.sampled_from(LINES), min_size=1, max_size=2).map("\n".join)
SESSION = st.tuples(st.lists(TURN, min_size=1, max_size=4), st.integers(0, 2))  # turns, days since the session before it
HISTORY = st.lists(SESSION, min_size=1, max_size=4)
STOP = st.builds(Stop, st.sampled_from(["call", "before commit", "after commit", "torn write"]), st.integers(1, 9), st.floats(0, 1))
USER = st.tuples(HISTORY, st.lists(STOP, min_size=1, max_size=5), st.lists(st.integers(0, 3), min_size=1, max_size=4))


def tell(history: Sequence[tuple[list[str], int]]) -> list[list[Message]]:
    """The messages of each session."""
    sessions, first, day = [], 1, 1
    for number, (turns, days) in enumerate(history):
        day += days
        sessions.append(talk(*turns, first=first, session=f"s{number}", date=f"2024-03-{day:02d}"))
        first += 2 * len(turns)
    return sessions


async def build(path: Path, messages: Sequence[Message], writer: MemoryWriter, stop: Stop = Stop()) -> BuildReport:
    """One run over the bank at `path`, which ends where `stop` says."""
    with CrashingBank.open(path, bank_id="ana", writer=writer.name, durable=False) as bank:
        bank.stop = stop
        builder = PyramidBuilder(bank, writer, encoder=HashingEncoder(64))
        await builder.add(messages)
        return await builder.finish()


async def build_with_stops(path: Path, messages: Sequence[Message], stops: Sequence[Stop], make_writer: Callable[[Stop], MemoryWriter]) -> None:
    """Run after run, each stopped, until one comes through."""
    for stop in (*stops, Stop()):
        try:
            await build(path, messages, make_writer(stop), stop)
        except Crash:
            continue


def read_bank(path: Path) -> dict[str, object]:
    """Everything of a bank but the moments of its commits and the checksums over them."""
    commits = [json.loads(line) for line in (path / "commits.jsonl").read_text().splitlines()]
    content: dict[str, object] = {"commits": [{name: value for name, value in commit.items() if name not in ("time", "check")} for commit in commits]}
    files = [*path.glob("[mr]*.jsonl"), *(path / "files").iterdir()]
    return content | {str(file.relative_to(path)): file.read_bytes() for file in files}


@given(users=st.lists(USER, min_size=1, max_size=3))
@settings(max_examples=30)
def test_memories_built_side_by_side_and_stopped_anywhere_end_as_if_nothing_had_happened(users):
    async def build_all(folder: Path) -> None:
        stories = [[message for session in tell(history) for message in session] for history, _, _ in users]
        stopped = []
        for number, (_, stops, pauses) in enumerate(users):
            make_writer = partial(WaitingWriter, pauses)
            stopped.append(build_with_stops(folder / f"{number}", stories[number], stops, make_writer))
        await asyncio.gather(*stopped)
        for number, story in enumerate(stories):
            await build(folder / f"{number}-whole", story, ScriptedWriter())

    with tempfile.TemporaryDirectory() as name:
        asyncio.run(build_all(Path(name)))
        for number in range(len(users)):
            assert read_bank(Path(name) / f"{number}") == read_bank(Path(name) / f"{number}-whole")
            assert verify_bank(Path(name) / f"{number}") == []


@given(history=HISTORY, faults=st.sets(st.integers(1, 25), max_size=2), pauses=st.just([0]))
@settings(max_examples=25)
def test_calls_that_fail_change_when_things_are_written_but_not_what(history, faults, pauses):
    messages = [message for session in tell(history) for message in session]
    with tempfile.TemporaryDirectory() as name:
        writer = WaitingWriter(pauses, faults=sorted(faults))
        reports = [asyncio.run(build(Path(name) / "a", messages, writer)) for _ in range(3)]
        asyncio.run(build(Path(name) / "b", messages, ScriptedWriter()))
        assert reports[-1].is_complete and verify_bank(Path(name) / "a") == []
        banks = [MemoryBank.open(Path(name) / which) for which in "ab"]
        assert banks[0].tracks == banks[1].tracks
        assert all((Path(name) / "a" / log).read_bytes() == (Path(name) / "b" / log).read_bytes() for log in ("messages.jsonl", "records.jsonl"))


@given(history=HISTORY)
@settings(max_examples=20)
def test_a_memory_that_grows_session_by_session_holds_what_one_built_in_one_go_holds(history):
    sessions = tell(history)
    with tempfile.TemporaryDirectory() as name:
        for session in sessions:
            asyncio.run(build(Path(name) / "a", session, ScriptedWriter()))
        asyncio.run(build(Path(name) / "b", [message for session in sessions for message in session], ScriptedWriter()))
        grown, whole = (MemoryBank.open(Path(name) / which) for which in "ab")
        assert list(grown.messages) == list(whole.messages) and grown.tracks == whole.tracks
        assert (Path(name) / "a" / "records.jsonl").read_bytes() == (Path(name) / "b" / "records.jsonl").read_bytes()


@given(stops=st.lists(st.builds(Stop, st.sampled_from(["before commit", "after commit", "torn write"]), st.integers(1, 30), st.floats(0, 1)), max_size=3))
@settings(max_examples=10)
def test_the_rules_writer_goes_on_from_any_commit(stops):
    messages = generate_user("stopped", 1, num_questions=4).messages
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(build_with_stops(Path(name) / "a", messages, stops, lambda _: RulesWriter()))
        asyncio.run(build(Path(name) / "b", messages, RulesWriter()))
        assert read_bank(Path(name) / "a") == read_bank(Path(name) / "b") and verify_bank(Path(name) / "a") == []

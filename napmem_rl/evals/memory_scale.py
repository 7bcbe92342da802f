"""A bank of a given size, built, grown, opened and searched, each in a process of its own so that peak memory is that of the size.

`python -m napmem_rl.evals.memory_scale build|open|construct DIR SIZE` prints one line of JSON. The text is synthetic: sentences of a few thousand words whose
frequencies fall as in natural text, ten turns a session, four sessions a day. *build* draws records by the `rules` writer and makes one commit of each
session; *construct* runs the whole construction over the same sessions (flush schedule, topic rounds, profiles: several commits a session), up to
MAX_CONSTRUCTED messages.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.reconcile import build_record
from napmem_rl.memory.writers.rules import RulesWriter
from napmem_rl.schema import Message, RecordOperation, RecordRevision

SESSION_MESSAGES = 20
NUM_WORDS = 5000
NUM_LAST = 20  # sessions at the full size, timed on their own, once without and once with syncing each commit
NUM_QUERIES = 50
MAX_CONSTRUCTED = 10_000  # messages; beyond, only build and open are timed
_START = datetime(2020, 1, 1, 9, 0)


def generate_session(number: int) -> tuple[Message, ...]:
    """Session `number` of the synthetic user, SESSION_MESSAGES messages; the same on every machine."""
    rng = random.Random(f"scale-{number}")
    start = _START + timedelta(hours=6 * number)
    messages = []
    for turn in range(SESSION_MESSAGES):
        role, speaker = ("user", "Ana") if turn % 2 == 0 else ("assistant", "Ben")
        text = f"I {rng.choice(('saw', 'bought', 'found', 'lost', 'like'))} the {_draw(rng, 4)}. Did you see the {_draw(rng, 2)} in {_draw(rng, 1).title()}?"
        moment = (start + timedelta(minutes=turn)).isoformat()
        message_id = f"msg:{number * SESSION_MESSAGES + turn + 1}"
        messages.append(Message(message_id=message_id, session_id=f"s{number + 1}", role=role, speaker=speaker, text=text, time=moment))
    return tuple(messages)


def measure_scale(size: int, directory: Path) -> dict[str, Any]:
    """Build a bank of `size` messages in `directory`, then open it, in two processes.

    Raises:
        BankError: a process failed; its last words are in the message.
    """
    figures = {"size": size, **_run("build", directory / "built", size), **_run("open", directory / "built", size)}
    figures["disk_mb"] = _count_megabytes(directory / "built")
    if size <= MAX_CONSTRUCTED:
        figures |= _run("construct", directory / "constructed", size)
    return figures


def build(directory: Path, size: int) -> dict[str, float]:
    """Build the bank, a commit a session; times in seconds and milliseconds, memory in MB."""
    num_sessions = max(1, size // SESSION_MESSAGES)
    first_of_last = num_sessions - min(NUM_LAST, (num_sessions + 1) // 2)
    started = time.perf_counter()
    with BankWriter.open(directory, bank_id="scale", writer="rules", durable=False) as bank:
        commits = _append_sessions(bank, range(first_of_last))
        last = _append_sessions(bank, range(first_of_last, num_sessions))
    build_s = time.perf_counter() - started
    with BankWriter.open(directory, bank_id="scale", writer="rules", durable=True) as bank:
        durable = _append_sessions(bank, range(num_sessions, num_sessions + NUM_LAST))
    return {
        "build_s": build_s,
        **_percentiles("commit_ms", [*commits, *last]),
        **_percentiles("last_commit_ms", last),
        **_percentiles("durable_commit_ms", durable),
        "build_peak_mb": _peak_megabytes(),
    }


def open_and_search(directory: Path) -> dict[str, float]:
    """Open the bank as a reader does, checking every hash; again without; search by keywords."""
    started = time.perf_counter()
    MemoryBank.open(directory)
    open_s = time.perf_counter() - started
    started = time.perf_counter()
    bank = MemoryBank.open(directory, verify=False)
    trusting_open_s = time.perf_counter() - started
    started = time.perf_counter()
    bank.search_messages(_query(0), k=5)
    first_search_s = time.perf_counter() - started
    times = []
    for number in range(1, NUM_QUERIES + 1):
        started = time.perf_counter()
        bank.search_messages(_query(number), k=5)
        times.append(1000 * (time.perf_counter() - started))
    return {
        "messages": len(bank.messages),
        "records": len(bank.records),
        "open_s": open_s,
        "open_unverified_s": trusting_open_s,
        "first_search_s": first_search_s,
        **_percentiles("search_ms", times),
        "open_peak_mb": _peak_megabytes(),
    }


def construct(directory: Path, size: int) -> dict[str, float]:
    """The whole construction, session by session; milliseconds a session over all of them, and over the last ones."""
    times = asyncio.run(_construct(directory, max(1, size // SESSION_MESSAGES)))
    return {**_percentiles("session_ms", times), **_percentiles("last_session_ms", times[-NUM_LAST:]), "construct_s": sum(times) / 1000}


async def _construct(directory: Path, num_sessions: int) -> list[float]:
    times = []
    with BankWriter.open(directory, bank_id="scale", writer="rules", durable=False) as bank:
        builder = PyramidBuilder(bank, RulesWriter())
        for number in range(num_sessions):
            session = generate_session(number)
            started = time.perf_counter()
            await builder.add(session)
            times.append(1000 * (time.perf_counter() - started))
        await builder.finish()
    return times


def main(arguments: list[str]) -> int:
    """One step in this process; its figures as one line of JSON."""
    step, directory, size = arguments[0], Path(arguments[1]), int(arguments[2])
    steps = {"build": lambda: build(directory, size), "open": lambda: open_and_search(directory), "construct": lambda: construct(directory, size)}
    print(json.dumps(steps[step]()))
    return 0


def _append_sessions(bank: BankWriter, numbers: range) -> list[float]:
    """Commit sessions with the records drawn from each; milliseconds of each commit, the drawing not counted."""
    writer, times = RulesWriter(), []
    next_record = len(bank.records) + 1
    for number in numbers:
        session = generate_session(number)
        found = {message.message_id: message for message in session}
        revisions = []
        for draft in writer.draw(session, ()):
            record = build_record(f"rec:{next_record}", draft, draft.source_ids, found.get)
            revisions.append(RecordRevision(operation=RecordOperation.STORE, record=record))
            next_record += 1
        started = time.perf_counter()
        bank.commit(Changes(messages=session, revisions=tuple(revisions), note=f"session {number}"))
        times.append(1000 * (time.perf_counter() - started))
    return times


def _draw(rng: random.Random, count: int) -> str:
    """Words whose ranks follow a power law, as a text's do."""
    return " ".join(f"w{_letters(int(NUM_WORDS ** rng.random()))}" for _ in range(count))


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def _query(number: int) -> str:
    return _draw(random.Random(f"query-{number}"), 5)


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    return {f"{name}_p50": float(np.percentile(values, 50)), f"{name}_p95": float(np.percentile(values, 95))}


def _peak_megabytes() -> float:
    """Most memory that this program held. The kernel's count for a process (ru_maxrss) begins with that of the parent, so that of the program is read."""
    line = next(line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _count_megabytes(directory: Path) -> float:
    return sum(path.stat().st_size for path in _list_files(directory)) / 1e6


def _list_files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file())


def _run(step: str, directory: Path, size: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-m", __name__, step, str(directory), str(size)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BankError.of(f"scale benchmark, {size} messages, {step}", f"exit code {done.returncode}", got=done.stderr[-500:])
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Forgetting: messages go from every level, version, index and list of a bank, with all that rested on them; what is left is written again where it must be.

1. `plan_forgetting` computes what goes and what is left; nothing is changed.
2. `forget` writes the bank without it beside the old one: the versions from before the first forgotten message as they were, then one without the content, then
   what the writer makes of it. Later versions are gone; the bank's list (`forgotten`) still names them.
3. The new bank takes the old one's place in one step, and the old one is removed (`erasing`). A process that is killed before the switch leaves the old bank;
   one that is killed after it leaves the new one, and whoever opens it next removes the rest.

Readers that have the old bank open get an error at their next look (`MemoryBank`).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from napmem_rl.atomic import swap_directories, sync_path, write_file
from napmem_rl.errors import BudgetError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_lock import BankLock
from napmem_rl.memory.bank_place import build_beside, sync_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import PendingStep
from napmem_rl.memory.build_state import BuildState, adopt_state, parse_state
from napmem_rl.memory.builder import run_to_end
from napmem_rl.memory.changes import Changes
from napmem_rl.memory.commit_log import Commit
from napmem_rl.memory.erasing import finish_erasing, note_leftovers
from napmem_rl.memory.forget_selection import Selectors, select_messages
from napmem_rl.memory.forgetting_levels import Remains, compute_remains, find_corrected, keep_clean, list_revisions
from napmem_rl.memory.forgetting_redraw import draws_alone, find_runs, redraw
from napmem_rl.memory.forgetting_state import ask_again, shift_state
from napmem_rl.memory.forgotten import FORGOTTEN_FILE, REMOVED_NOTE, Forgetting, RemovedVersion, list_forgettings, render_forgettings
from napmem_rl.memory.import_state import carry_import_state
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.versions import copy_versions, list_versions
from napmem_rl.memory.writers.base import MemoryWriter
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.schema import Message, Profile, RecordRevision, Track

MakeWriter = Callable[[], MemoryWriter]
NOTHING = Changes()


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgetPlan:
    """What a forgetting would do to a bank.

    Attributes:
        version: the bank's, which the plan holds for.
        messages: those that go.
        remains: what is left of the upper levels before the writer writes what is missing.
        kept: the bank's first versions, which know nothing of those messages; `removed`: the later ones.
        state: the builder's, to go on from; None for a bank that no builder wrote.
        left: messages that stay.
        texts: all that goes, for who looks for it elsewhere.
    """

    bank_id: str
    version: str
    kinds: str
    messages: tuple[Message, ...]
    remains: Remains
    kept: tuple[Commit, ...]
    removed: tuple[Commit, ...]
    state: BuildState | None
    left: tuple[Message, ...]
    texts: tuple[str, ...]
    same_ids: tuple[str, ...]  # messages that stay and say the same words as one that goes


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgot:
    """What a forgetting did."""

    plan: ForgetPlan
    version: str
    pending: tuple[PendingStep, ...]  # what the writer still has to write


def plan_forgetting(
    bank: MemoryBank, commits: Sequence[Commit], selectors: Selectors, make_writer: MakeWriter | None, additions: Changes = NOTHING
) -> ForgetPlan | None:
    """What would go and what would be left; None where there is nothing of it.

    Args:
        bank: at its newest version.
        commits: all of the bank's.
        selectors: what is named.
        make_writer: gives the writer of the bank's upper levels; None where there is none, and what cannot be kept is dropped.
        additions: messages and revisions that come in their place.

    Raises:
        BankError, ConfigError: see `select_messages`.
    """
    known = {item_id for forgetting in list_forgettings(bank.path) for item_id in (*forgetting.message_ids, *forgetting.record_ids)}
    messages = select_messages(bank, selectors, forgotten=known)
    if not messages:
        return None
    return run_to_end(_Planning(bank, commits, messages, additions).plan(selectors.kinds, make_writer))


def look(path: Path, selectors: Selectors, make_writer: MakeWriter | None) -> ForgetPlan | None:
    """What `forget` would do; nothing is changed."""
    path = Path(path)
    return plan_forgetting(MemoryBank.open(path), list_versions(path), selectors, make_writer)


class _Planning:
    """The steps of `plan_forgetting`."""

    def __init__(self, bank: MemoryBank, commits: Sequence[Commit], messages: Sequence[Message], additions: Changes) -> None:
        self._bank, self._commits, self._gone, self._additions = bank, commits, messages, additions
        self._ids = frozenset(message.message_id for message in messages)
        self._all = tuple(bank.messages)
        self._removed = [position for position, message in enumerate(self._all) if message.message_id in self._ids]
        self._left = tuple(message for message in self._all if message.message_id not in self._ids)
        self._before = list_revisions(bank.snapshot)
        self._state = parse_state(bank.bank_id, bank.state) if bank.state else None

    async def plan(self, kinds: str, make_writer: MakeWriter | None) -> ForgetPlan:
        """All of it."""
        num_kept = sum(commit.num_messages <= self._removed[0] for commit in self._commits)
        held = self._state or self._adopt()
        revisions, next_record, is_drawn = await self._draw(held, num_kept, make_writer)
        revisions += self._additions.revisions
        remains = compute_remains(self._bank.snapshot, revisions, self._ids)
        while num_kept and self._before[: self._commits[num_kept - 1].num_revisions] != revisions[: self._commits[num_kept - 1].num_revisions]:
            num_kept -= 1
        state = None
        if self._state is not None:
            state = self._compute_state(self._state, remains, next_record, is_drawn=is_drawn)
        return ForgetPlan(
            bank_id=self._bank.bank_id,
            version=self._bank.version,
            kinds=kinds,
            messages=tuple(self._gone),
            remains=remains,
            kept=tuple(self._commits[:num_kept]),
            removed=tuple(self._commits[num_kept:]),
            state=state,
            left=(*self._left, *self._additions.messages),
            texts=self._list_texts(remains),
            same_ids=self._find_same(),
        )

    async def _draw(self, state: BuildState, num_kept: int, make_writer: MakeWriter | None) -> tuple[list[RecordRevision], int, bool]:
        """(the revisions that are left, number of the next record, whether records were drawn again)."""
        writer = make_writer() if make_writer is not None else None
        if self._state is None or not draws_alone(writer, self._before):
            return keep_clean(self._before, self._ids, self._bank.snapshot.source), state.next_record, False
        kept = self._commits[num_kept - 1] if num_kept else None
        start = 0 if kept is None else _find_drawn(kept, self._bank.bank_id)
        stop = state.waiting.start if state.waiting else len(self._all)
        writer.resume(self._left, ())
        runs = find_runs(self._bank.snapshot, self._removed, start, stop)
        revisions, next_record = await redraw(self._all, self._before, runs, self._ids, writer, state.next_record)
        return keep_clean(revisions, self._ids, self._bank.snapshot.source), next_record, True

    def _adopt(self) -> BuildState:
        record_ids = (revision.record.record_id for revision in self._before)
        return adopt_state(record_ids, (track.track_id for track in self._bank.tracks), (message.time for message in self._all))

    def _compute_state(self, state: BuildState, remains: Remains, next_record: int, *, is_drawn: bool) -> BuildState:
        corrected = find_corrected([revision.record for revision in remains.revisions])
        orphan_ids = [] if is_drawn else [message_id for message_id in remains.orphan_ids if message_id not in corrected]
        shifted = shift_state(state, self._removed, self._left)
        return replace(ask_again(shifted, self._left, orphan_ids, remains.revised_ids), next_record=next_record)

    def _list_texts(self, remains: Remains) -> tuple[str, ...]:
        """Everything that goes: messages, captions, texts of revisions, lines of tracks and of the profile."""
        texts = [text for message in self._gone for text in (message.text, message.caption) if text]
        kept = {revision.record.text for revision in remains.revisions}
        texts += [revision.record.text for revision in self._before if revision.record.text not in kept]
        new = set(_list_lines(remains.tracks, remains.profile))
        texts += [line for line in _list_lines(self._bank.tracks, self._bank.profile) if line not in new]
        return tuple(dict.fromkeys(text for text in texts if text.strip()))

    def _find_same(self) -> tuple[str, ...]:
        said = {" ".join(message.text.casefold().split()) for message in self._gone}
        return tuple(message.message_id for message in self._left if " ".join(message.text.casefold().split()) in said)


def _list_lines(tracks: Sequence[Track], profile: Profile) -> list[str]:
    return [line for text in (*(f"{track.title}\n{track.summary}\n{track.narrative}" for track in tracks), profile.text) for line in text.split("\n")]


def _find_drawn(commit: Commit, bank_id: str) -> int:
    """Up to which position records had been drawn at a commit."""
    state = parse_state(bank_id, commit.state) if commit.state else None
    return state.waiting.start if state is not None and state.waiting else commit.num_messages


def forget(
    path: Path,
    selectors: Selectors,
    *,
    make_writer: MakeWriter | None = None,
    encoder: Encoder | None = None,
    expected_version: str | None = None,
    additions: Changes = NOTHING,
    before_switch: Callable[[ForgetPlan], None] = lambda plan: None,
    names_versions: bool = True,
) -> Forgot | None:
    """Make a bank forget; None where there is nothing (left) to forget.

    Args:
        path: the bank's directory.
        selectors: what goes.
        make_writer: see `plan_forgetting`; also writes what is missing afterwards.
        encoder: for related records, where the writer reconciles.
        expected_version: refuse a bank that is another by now than the one that was looked at.
        additions: messages and revisions that come in the place of what goes.
        before_switch: called when the new bank is complete and the old one is still in place: clears other places of the same content.
        names_versions: let the bank's list name the versions that are gone. A name is a hash of what the version held: who has the bank and guesses, word for
            word, all that was forgotten can see by it that the guess is right.

    Raises:
        BankError: the bank is broken, being written, or of another version. Nothing was changed, as after any failure before the switch.
    """
    path = Path(path).resolve()  # a link to a bank stays one
    list_versions(path)  # raises where this is no bank
    lock = BankLock.acquire(path, path.name)
    try:
        bank = MemoryBank.open(path, expected_version=expected_version)
        plan = plan_forgetting(bank, list_versions(path), selectors, make_writer, additions)
        if plan is None:
            return None
        with build_beside(path) as fresh:
            return _replace(path, fresh, bank, plan, (make_writer, encoder), before_switch, names_versions)
    finally:
        lock.release()


def _replace(
    path: Path,
    fresh: Path,
    bank: MemoryBank,
    plan: ForgetPlan,
    writing: tuple[MakeWriter | None, Encoder | None],
    before_switch: Callable[[ForgetPlan], None],
    names_versions: bool,
) -> Forgot:
    """Write the new bank at `fresh`, put it in place and remove the old one."""
    fresh.mkdir()
    lock = BankLock.acquire(fresh, plan.bank_id)
    try:
        copy_versions(path, fresh, bank.snapshot, list(plan.kept))
        write_file(fresh / FORGOTTEN_FILE, render_forgettings([*list_forgettings(path), _note(plan, names_versions)]), durable=False)
        carry_import_state(path, fresh)  # the key of the ids by which a later import knows what was forgotten
    finally:
        lock.release()
    with BankWriter.open(fresh, bank_id=plan.bank_id, writer=bank.writer, durable=False) as writer:
        pending = run_to_end(_write(writer, plan, *writing))
        writer.save_columns()  # while it is at this path
        before_switch(plan)
        note_leftovers(fresh, [fresh.name])
        sync_bank(fresh)
        swap_directories(fresh, path)
        sync_path(path.parent)
        finish_erasing(path)
        assert writer.version is not None, f"bank {plan.bank_id}: written without a version"
        return Forgot(plan=plan, version=writer.version, pending=pending)


async def _write(bank: BankWriter, plan: ForgetPlan, make_writer: MakeWriter | None, encoder: Encoder | None) -> tuple[PendingStep, ...]:
    """What is left as one version, then whatever the writer makes of it."""
    num_messages = plan.kept[-1].num_messages if plan.kept else 0
    num_revisions = plan.kept[-1].num_revisions if plan.kept else 0
    changes = Changes(
        messages=plan.left[num_messages:],
        revisions=plan.remains.revisions[num_revisions:],
        tracks=plan.remains.tracks,
        profile=plan.remains.profile,
        state={} if plan.state is None else plan.state.to_json(),
        note=REMOVED_NOTE,
    )
    bank.commit(changes)
    if make_writer is None or plan.state is None:
        return ()
    builder = PyramidBuilder(bank, make_writer(), encoder=encoder)
    try:
        return (await builder.finish()).pending
    except BudgetError:
        return builder.report().pending


def _note(plan: ForgetPlan, names_versions: bool) -> Forgetting:
    """The line for the bank's list."""
    versions = {commit.version: commit for commit in plan.removed}.values() if names_versions else ()
    return Forgetting(
        time=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        selector=plan.kinds,
        message_ids=tuple(message.message_id for message in plan.messages),
        record_ids=plan.remains.gone_ids,
        track_ids=tuple(item_id for item_id in plan.remains.dropped_ids if item_id.startswith("trk:")),
        versions=tuple(_name_version(commit) for commit in versions),
    )


def _name_version(commit: Commit) -> RemovedVersion:
    counts = {name: getattr(commit, name) for name in ("num_messages", "num_records", "num_tracks")}
    return RemovedVersion(version=commit.version, time=commit.time, writer=commit.writer, **counts)

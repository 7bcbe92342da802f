"""What the construction of a bank must remember between two commits; kept as JSON with each version, so that it goes on exactly where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from napmem_rl.errors import BankError
from napmem_rl.schema import Message, Record

T = TypeVar("T")

STATE_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A step that could not be done: how often it was tried since it was last done, and why the last time."""

    attempts: int = 0  # 0: it did not fail
    reason: str = ""

    def again(self, reason: str) -> Failure:
        """One more failed attempt."""
        return Failure(attempts=self.attempts + 1, reason=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Messages [start, stop) of the bank, from which records are drawn together."""

    start: int
    stop: int
    failure: Failure = Failure()


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """Messages [start, stop) of the bank, from which no records were drawn yet: the rest of a session and what came after it.

    A session ends where the next message is of another, or where `cuts` says so: where a session came again right after itself. `failure`: of the first batch.
    """

    start: int = 0
    stop: int = 0
    cuts: tuple[int, ...] = ()
    failure: Failure = Failure()

    def __bool__(self) -> bool:
        return self.start < self.stop

    def find_cut(self) -> int:
        """Where the first session ends at the latest."""
        return min((cut for cut in self.cuts if cut > self.start), default=self.stop)

    def extended(self, start: int, stop: int, *, is_same_session: bool) -> Waiting:
        """With a session's messages [start, stop) after it."""
        if not self:
            return Waiting(start=start, stop=stop)
        return replace(self, stop=stop, cuts=(*self.cuts, start) if is_same_session else self.cuts)

    def without(self, batch: Batch) -> Waiting:
        """Without its first messages."""
        return replace(self, start=batch.stop, cuts=tuple(cut for cut in self.cuts if cut > batch.stop), failure=Failure())


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """What tracks, or the profile, have taken in of the records.

    Attributes:
        next_record: records numbered from here on are new since the checkpoint.
        revised: older ones that were revised since it.
        num_since: records stored or revised since the step was last tried, for the triggers that count.
        failure: of the step since the checkpoint.
        is_due: asked for, whatever the counts say (profile only).
    """

    next_record: int = 1
    revised: tuple[str, ...] = ()
    num_since: int = 0
    failure: Failure = Failure()
    is_due: bool = False

    def count(self, records: Sequence[Record]) -> Checkpoint:
        """After these records were stored or revised; those that were merged away stay listed, and are skipped when read."""
        older = [record.record_id for record in records if number_of(record.record_id) < self.next_record]
        return replace(self, revised=tuple(dict.fromkeys((*self.revised, *older))), num_since=self.num_since + len(records))

    def fail(self, reason: str) -> Checkpoint:
        """After an attempt that failed; what is new stays new."""
        return replace(self, num_since=0, failure=self.failure.again(reason))


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildState:
    """Everything between two steps of a construction.

    Attributes:
        num_flushes: done since the bank began; what the flush schedule goes by.
        next_record, next_track: numbers of the next ids; never used again, not even after a merge or a drop.
        waiting: messages that wait for extraction.
        set_aside: batches whose extraction failed again and again where that of later ones did not; tried again at the end of a replay.
        last_session, last_date: of the newest batch that records were drawn from; "" before the first.
        newest: time of the newest message; "" before the first.
        topics, profile: checkpoints.
        counts: how often what happened, by `Cause`, over the bank's life.
    """

    num_flushes: int = 0
    next_record: int = 1
    next_track: int = 1
    waiting: Waiting = Waiting()
    set_aside: tuple[Batch, ...] = ()
    last_session: str = ""
    last_date: str = ""
    newest: str = ""
    topics: Checkpoint = Checkpoint()
    profile: Checkpoint = Checkpoint()
    counts: Mapping[str, int] = field(default_factory=dict)

    def append(self, start: int, session: Sequence[Message], *, is_same_session: bool) -> BuildState:
        """After a session was appended at this position; `is_same_session`: the message before it is of the same one."""
        waiting = self.waiting.extended(start, start + len(session), is_same_session=is_same_session)
        return replace(self, waiting=waiting, newest=max(self.newest, session[-1].time))

    def take_out(self, batch: Batch, last: Message) -> BuildState:
        """After records were drawn from a batch that waited or was set aside; `last` is its last message."""
        if batch in self.set_aside:
            return replace(self, set_aside=tuple(other for other in self.set_aside if other != batch))
        date = max(self.last_date, last.time[:10])
        return replace(self, waiting=self.waiting.without(batch), num_flushes=self.num_flushes + 1, last_session=last.session_id, last_date=date)

    def put_off(self, batch: Batch, reason: str) -> BuildState:
        """After an extraction that failed."""
        failure = batch.failure.again(reason)
        if batch in self.set_aside:
            return replace(self, set_aside=tuple(replace(other, failure=failure) if other == batch else other for other in self.set_aside))
        return replace(self, waiting=replace(self.waiting, failure=failure))

    def pass_over(self, batch: Batch) -> BuildState:
        """With the first batch set aside."""
        aside = replace(batch, failure=self.waiting.failure)
        return replace(self, waiting=self.waiting.without(batch), set_aside=(*self.set_aside, aside), num_flushes=self.num_flushes + 1)

    def to_json(self) -> dict[str, Any]:
        """As JSON gives it back."""
        return json.loads(json.dumps({"format": STATE_FORMAT, **asdict(self), "counts": dict(sorted(self.counts.items()))}))


def parse_state(bank_id: str, value: Mapping[str, Any]) -> BuildState:
    """The state as `BuildState.to_json` gave it.

    Raises:
        BankError: anything else.
    """
    try:
        if value["format"] != STATE_FORMAT:
            raise ValueError(f"format {value['format']!r} instead of {STATE_FORMAT}")
        fields = {name: content for name, content in value.items() if name != "format"}
        fields["set_aside"] = tuple(_parse(Batch, batch) for batch in fields["set_aside"])
        fields["waiting"] = _parse(Waiting, fields["waiting"])
        fields["topics"], fields["profile"] = _parse(Checkpoint, fields["topics"]), _parse(Checkpoint, fields["profile"])
        return BuildState(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise BankError.of(f"bank {bank_id}", f"its builder state cannot be read ({error})", fix="Build the bank again.") from error


def _parse(kind: type[T], value: Mapping[str, Any]) -> T:
    """A part of the state with its failure; lists become tuples."""
    fields = {name: tuple(content) if isinstance(content, list) else content for name, content in value.items()}
    return kind(**fields | {"failure": Failure(**value["failure"])})


def adopt_state(record_ids: Iterable[str], track_ids: Iterable[str], times: Iterable[str]) -> BuildState:
    """The state of a bank that no builder wrote: what is there counts as taken in at all levels, and new ids come after the highest numbers.

    Args:
        record_ids, track_ids: of everything in it.
        times: of its messages.
    """
    next_record = 1 + max(map(number_of, record_ids), default=0)
    next_track = 1 + max(map(number_of, track_ids), default=0)
    point = Checkpoint(next_record=next_record)
    return BuildState(next_record=next_record, next_track=next_track, newest=max(times, default=""), topics=point, profile=point)


def number_of(item_id: str) -> int:
    """The number of an id such as "rec:7"; 0 for an id of another form."""
    number = item_id.partition(":")[2]
    return int(number) if number.isascii() and number.isdigit() else 0

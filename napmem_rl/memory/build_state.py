"""What the construction of a bank must remember between two commits; kept as JSON with each version, so that it goes on exactly where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from napmem_rl.errors import BankError
from napmem_rl.schema import Record

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
class Span:
    """Messages [start, stop) of the bank, of one session, from which no records were drawn yet."""

    start: int
    stop: int
    failure: Failure = Failure()


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
        waiting: messages that wait for extraction, oldest first.
        set_aside: batches whose extraction failed too often to hold up the rest; tried again at the end of a replay.
        last_session, last_date: of the newest batch that records were drawn from; "" before the first.
        newest: time of the newest message; "" before the first.
        topics, profile: checkpoints.
        counts: how often what happened, by `Cause`, over the bank's life.
    """

    num_flushes: int = 0
    next_record: int = 1
    next_track: int = 1
    waiting: tuple[Span, ...] = ()
    set_aside: tuple[Span, ...] = ()
    last_session: str = ""
    last_date: str = ""
    newest: str = ""
    topics: Checkpoint = Checkpoint()
    profile: Checkpoint = Checkpoint()
    counts: Mapping[str, int] = field(default_factory=dict)

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
        for name in ("waiting", "set_aside"):
            fields[name] = tuple(Span(**span | {"failure": Failure(**span["failure"])}) for span in fields[name])
        for name in ("topics", "profile"):
            point = fields[name]
            fields[name] = Checkpoint(**point | {"failure": Failure(**point["failure"]), "revised": tuple(point["revised"])})
        return BuildState(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise BankError.of(f"bank {bank_id}", f"its builder state cannot be read ({error})", fix="Build the bank again.") from error


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

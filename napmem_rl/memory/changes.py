"""What one commit adds to a memory: messages and record revisions at the end, topic tracks and the profile in place of the old ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from napmem_rl.schema import Message, Profile, RecordRevision, Track


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """One commit's content: it becomes visible as a whole, or not at all.

    Example: Changes(messages=session, revisions=(stored, merged), note="session s3")
    """

    messages: tuple[Message, ...] = ()
    revisions: tuple[RecordRevision, ...] = ()
    tracks: tuple[Track, ...] | None = None  # all tracks from now on; None leaves them as they are
    profile: Profile | None = None  # None leaves it as it is
    state: Mapping[str, Any] = field(default_factory=dict)  # the builder's own, JSON-ready; kept with the version, no part of its hash; replaces the old one
    note: str = ""  # for `napmem bank log`, e.g. "session s3"

"""The versions of a bank: one line each in commits.jsonl.

A version is a hash of content alone: of the bank's id and format, of every line of the two logs up to the commit, and of the tree of Markdown files. The logs
are hashed line by line (``c = sha256(c + line)``), so that it does not matter how lines were grouped into commits. Time, writer, note and the builder's state
are kept beside it and are no part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from napmem_rl.errors import BankError
from napmem_rl.memory.storage import COMMITS_FILE, FORMAT, HASH, dump_json

EMPTY_CHAIN = bytes(32)
_CHECK = b', "check": "'
_TYPES = {"version": str, "parent": (str, type(None)), "time": str, "writer": str, "note": str, "state": dict, "counts": dict}
_TYPES |= {"messages": dict, "records": dict, "tree": str}
_COUNTS = ("messages", "revisions", "records", "tracks")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEnd:
    """Where a log ends in some version."""

    num_bytes: int = 0
    chain: bytes = EMPTY_CHAIN  # [32], over all lines so far


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """One version of a bank."""

    version: str
    parent: str | None
    time: str  # when it was made, UTC, ISO 8601
    writer: str
    note: str
    state: Mapping[str, Any]
    num_messages: int
    num_revisions: int
    num_records: int  # live ones
    num_tracks: int
    messages: LogEnd
    records: LogEnd
    tree: str  # hash of the tree file


def extend_chain(chain: bytes, lines: Iterable[bytes]) -> bytes:
    """The chain hash after these lines, each without its end."""
    sha256 = hashlib.sha256
    for line in lines:
        chain = sha256(chain + line).digest()
    return chain


def compute_version(bank_id: str, messages: bytes, records: bytes, tree: str) -> str:
    """Content version: sixteen hex digits over bank id, format, the chains of both logs and the tree's hash."""
    return hashlib.sha256(json.dumps([bank_id, FORMAT, messages.hex(), records.hex(), tree]).encode()).hexdigest()[:16]


def render_commit(commit: Commit) -> bytes:
    """The commit's line, its end included. Raises TypeError or ValueError for a state that JSON cannot hold."""
    fields = {name: getattr(commit, name) for name in ("version", "parent", "time", "writer", "note")} | {"state": dict(commit.state)}
    fields["counts"] = {name: getattr(commit, f"num_{name}") for name in _COUNTS}
    fields |= {name: {"bytes": end.num_bytes, "chain": end.chain.hex()} for name, end in (("messages", commit.messages), ("records", commit.records))}
    body = dump_json(fields | {"tree": commit.tree})[:-1].encode()
    return body + _CHECK + hashlib.sha256(body).hexdigest()[:16].encode() + b'"}\n'


def parse_commit(line: bytes) -> Commit:
    """The commit of a line, without its end. Raises BankError with what is wrong, in words."""
    body, separator, check = line.rpartition(_CHECK)
    if not separator or check != hashlib.sha256(body).hexdigest()[:16].encode() + b'"}':
        raise BankError("its checksum does not fit: the line was changed")
    try:
        fields = json.loads((body + b"}").decode())
        if not isinstance(fields, dict) or fields.keys() != _TYPES.keys() or not all(isinstance(fields[name], kind) for name, kind in _TYPES.items()):
            raise BankError(f"not an object with the fields {', '.join(_TYPES)}")
        counts = {f"num_{name}": int(fields["counts"][name]) for name in _COUNTS}
        ends = {name: LogEnd(num_bytes=int(fields[name]["bytes"]), chain=bytes.fromhex(fields[name]["chain"])) for name in ("messages", "records")}
        if not HASH.fullmatch(fields["tree"]):
            raise BankError("tree is not a hash")
    except (ValueError, KeyError, TypeError) as error:
        raise BankError(f"malformed commit ({type(error).__name__}: {error})") from error
    return Commit(**{name: fields[name] for name in ("version", "parent", "time", "writer", "note", "state", "tree")}, **counts, **ends)


def split_commits(content: bytes, problems: list[str]) -> tuple[list[bytes], int]:
    """The whole lines of commits.jsonl, and how many bytes they take. What follows the last line end was never committed and is left out.

    A last line that is whole but for a damaged end was committed, and is a problem.
    """
    whole = content.rfind(b"\n") + 1
    tail = content[whole:]
    if _is_whole(tail[:-1]):
        problems.append(f"{COMMITS_FILE}: the end of its last line was changed")
    return content[:whole].split(b"\n")[:-1], whole


def _is_whole(line: bytes) -> bool:
    try:
        parse_commit(line)
    except BankError:
        return False
    return True

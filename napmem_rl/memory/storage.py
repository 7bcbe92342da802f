"""A memory bank as files: their names, and each kind of content as bytes and back.

::

    bank.json        {"bank_id", "format"}, written once
    messages.jsonl   one `Message` a line; only ever appended to
    records.jsonl    one `RecordRevision` a line; only ever appended to
    files/<hash>.md    tracks and profiles: YAML front matter, then the text with evidence links such as [rec:7]
    files/<hash>.json  trees: which Markdown file a version shows under which name; files are named by the SHA-256 of what they hold
    commits.jsonl    one version a line (see `commit_log`); the line makes the version
    index/           derived from the above, no part of any version; may be deleted
    .lock            held by the one writer

A track's body is its summary (one line), an empty line and its narrative.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from napmem_rl.errors import BankError
from napmem_rl.memory.pyramid import PROFILE_FILE, PROFILE_ID
from napmem_rl.schema import Message, Profile, Record, RecordOperation, RecordRevision, RecordType, Track

FORMAT = 2
BANKS_VARIABLE = "NAPMEM_BANKS_DIR"  # of a machine: its own copy of the banks, read instead of `memory.banks`
BANK_FILE = "bank.json"
MESSAGES_FILE = "messages.jsonl"
RECORDS_FILE = "records.jsonl"
COMMITS_FILE = "commits.jsonl"
FILES_DIR = "files"
INDEX_DIR = "index"
LOCK_FILE = ".lock"
OLD_HEAD = "manifest.json"  # of format 1
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")  # what `atomic.write_file` leaves where its process was killed
HASH = re.compile(r"[0-9a-f]{16}")
EMPTY_PROFILE = Profile(text="", time="", source_ids=())

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_MESSAGE_FIELDS = {"message_id": str, "session_id": str, "role": str, "speaker": str, "text": str, "time": str, "caption": (str, type(None))}
_RECORD_FIELDS = {"record_id": str, "type": str, "text": str, "time": str, "source_ids": list, "session_id": str}
_REVISION_FIELDS = {"operation": str, "record": dict, "merged_ids": list}


def find_bank_dir(banks_dir: Path, bank_id: str) -> Path:
    """The directory of a bank among others.

    Raises:
        BankError: the id cannot name a directory right inside of `banks_dir`.
    """
    if Path(bank_id).name != bank_id or bank_id in ("", ".", "..") or "\0" in bank_id or len(bank_id.encode("utf-8", "replace")) > 255:
        raise BankError.of("bank id", "cannot name a directory", got=bank_id, expected="a name without / that is not . or .. and has at most 255 bytes")
    return Path(banks_dir) / bank_id


def hash_content(content: bytes) -> str:
    """Sixteen hex digits of a content's SHA-256, by which files are named."""
    return hashlib.sha256(content).hexdigest()[:16]


def dump_json(value: Any) -> str:
    """JSON on one line. Raises TypeError or ValueError for what JSON cannot hold, infinities and NaN included."""
    return _ENCODE(value)


def render_message(message: Message) -> bytes:
    """A message's line, without its end."""
    return _ENCODE({name: getattr(message, name) for name in _MESSAGE_FIELDS}).encode()


def render_revision(revision: RecordRevision) -> bytes:
    """A revision's line, without its end."""
    record = {name: getattr(revision.record, name) for name in _RECORD_FIELDS}
    return _ENCODE({"operation": revision.operation, "record": record, "merged_ids": revision.merged_ids}).encode()


def render_track(track: Track) -> bytes:
    """A track's Markdown file."""
    head = {"id": track.track_id, "title": track.title, "updated": track.time, "records": list(track.record_ids)}
    return _render_markdown(head, f"{track.summary}\n\n{track.narrative}")


def render_profile(profile: Profile) -> bytes:
    """The profile's Markdown file."""
    head = {"id": PROFILE_ID, "title": "User profile", "updated": profile.time, "sources": list(profile.source_ids)}
    return _render_markdown(head, profile.text)


def render_tree(hashes: Mapping[str, str]) -> bytes:
    """The tree file of a version: hash by file name."""
    return (json.dumps(dict(sorted(hashes.items())), indent=1) + "\n").encode()


def parse_message(line: bytes) -> Message:
    """The message of a line. Raises BankError with what is wrong, in words."""
    return Message(**_parse_fields(line, _MESSAGE_FIELDS))


def parse_revision(line: bytes) -> RecordRevision:
    """The revision of a line. Raises BankError with what is wrong, in words."""
    fields = _parse_fields(line, _REVISION_FIELDS)
    if fields["operation"] not in _OPERATIONS:
        raise BankError(f"unknown operation {fields['operation']!r}; expected one of {', '.join(RecordOperation)}")
    record = _build_record(_check_fields(fields["record"], _RECORD_FIELDS))
    merged_ids = tuple(_parse_ids(record.record_id, fields["merged_ids"]))
    return RecordRevision(operation=_OPERATIONS[fields["operation"]], record=record, merged_ids=merged_ids)


def parse_tree(content: bytes) -> dict[str, str]:
    """Hash by file name. Raises BankError."""
    try:
        tree = json.loads(content)
    except ValueError as error:
        raise BankError(f"malformed JSON ({error})") from error
    if not isinstance(tree, dict) or not all(isinstance(value, str) and HASH.fullmatch(value) for value in tree.values()) or PROFILE_FILE not in tree:
        raise BankError(f"not an object of hashes by file name, {PROFILE_FILE} among them")
    return tree


def parse_track(name: str, text: str) -> Track:
    """The track of a Markdown file. Raises BankError."""
    head, body = _parse_markdown(text, ("id", "title", "updated", "records"))
    summary, separator, narrative = body.partition("\n\n")
    if not separator:
        raise BankError("the body needs a summary, an empty line and a narrative")
    record_ids = tuple(_parse_ids(head["id"], head["records"]))
    texts = {"title": head["title"], "summary": summary, "narrative": narrative}
    return Track(track_id=head["id"], file_name=name, time=head["updated"], record_ids=record_ids, **texts)


def parse_profile(text: str) -> Profile:
    """The profile of a Markdown file. Raises BankError."""
    head, body = _parse_markdown(text, ("id", "title", "updated", "sources"))
    return Profile(text=body, time=head["updated"], source_ids=tuple(_parse_ids(PROFILE_ID, head["sources"])))


_OPERATIONS = {str(operation): operation for operation in RecordOperation}
_TYPES = {str(record_type): record_type for record_type in RecordType}


def _build_record(fields: dict[str, Any]) -> Record:
    if fields["type"] not in _TYPES:
        raise BankError(f"{fields['record_id']}: unknown record type {fields['type']!r}; expected one of {', '.join(RecordType)}")
    source_ids = tuple(_parse_ids(fields["record_id"], fields["source_ids"]))
    return Record(**fields | {"type": _TYPES[fields["type"]], "source_ids": source_ids})


def _parse_fields(line: bytes, types: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    try:
        return _check_fields(json.loads(line.decode()), types)  # not json.loads alone: it would guess another encoding
    except UnicodeDecodeError as error:
        raise BankError(f"is not UTF-8 ({error})") from error
    except ValueError as error:
        raise BankError(f"malformed JSON ({error})") from error


def _check_fields(fields: Any, types: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """The object itself, if it has exactly these fields of these types."""
    if not isinstance(fields, dict) or fields.keys() != types.keys():
        raise BankError(f"not an object with the fields {', '.join(types)}")
    for name, kind in types.items():
        if not isinstance(fields[name], kind):
            raise BankError(f"field {name} has the wrong type, {type(fields[name]).__name__}")
    return fields


def _parse_ids(what: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item_id, str) for item_id in value):
        raise BankError(f"{what}: its sources are not a list of ids")
    return value


def _render_markdown(head: Mapping[str, Any], body: str) -> bytes:
    front = yaml.dump(dict(head), Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=1 << 30)
    return f"---\n{front}---\n{body}\n".encode()


def _parse_markdown(text: str, fields: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """Front matter and body."""
    front, separator, body = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n") or not separator or not body.endswith("\n"):
        raise BankError("no YAML front matter between two lines of ---")
    try:
        head = yaml.load(front, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise BankError(f"malformed front matter ({error})") from error
    if not isinstance(head, dict) or tuple(head) != fields:
        raise BankError(f"the front matter needs exactly the fields {', '.join(fields)}")
    if not all(isinstance(head[name], str) for name in fields[:-1]):
        raise BankError(f"the front matter fields {', '.join(fields[:-1])} must be texts")
    return head, body[:-1]

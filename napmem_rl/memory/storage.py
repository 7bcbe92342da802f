"""A memory bank as files: what is in them, and how they come and go without ever being half there.

::

    messages.jsonl  records.jsonl     one JSON object a line, the fields of `Message` and `Record`
    tracks/<slug>.md  profile.md      YAML front matter, then the text with evidence links such as [rec:7]
    manifest.json                     bank_id, format, version, writer, counts, sha256 of every file
    index/                            cached vectors; no part of the version

A track's body is its summary (one line), an empty line and its narrative.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from napmem_rl.atomic import swap_directories, sync_path, write_file
from napmem_rl.errors import BankError
from napmem_rl.memory.pyramid import PROFILE_FILE, PROFILE_ID, Pyramid
from napmem_rl.schema import Message, Profile, Record, RecordType, Track, as_json

_Item = TypeVar("_Item", Message, Record)

FORMAT = 1
BANKS_VARIABLE = "NAPMEM_BANKS_DIR"  # of a machine: its own copy of the banks, read instead of `memory.banks`
MANIFEST = "manifest.json"
MESSAGES_FILE = "messages.jsonl"
RECORDS_FILE = "records.jsonl"
_LISTED = re.compile(r"messages\.jsonl|records\.jsonl|profile\.md|tracks/[a-z0-9][a-z0-9_-]{0,99}\.md")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_EMPTY_PROFILE = Profile(text="", time="", source_ids=())


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredBank:
    """What a bank's directory holds; `files` are the Markdown texts by file name."""

    bank_id: str
    version: str
    writer: str
    pyramid: Pyramid
    files: Mapping[str, str]


def render_files(pyramid: Pyramid) -> dict[str, bytes]:
    """The bytes of every file but the manifest, by path inside the bank."""
    files = {MESSAGES_FILE: _render_lines(pyramid.messages), RECORDS_FILE: _render_lines(pyramid.records)}
    for track in pyramid.tracks:
        head = {"id": track.track_id, "title": track.title, "updated": track.time, "records": list(track.record_ids)}
        files[f"tracks/{track.file_name}"] = _render_markdown(head, f"{track.summary}\n\n{track.narrative}")
    profile = pyramid.profile
    head = {"id": PROFILE_ID, "title": "User profile", "updated": profile.time, "sources": list(profile.source_ids)}
    files[PROFILE_FILE] = _render_markdown(head, profile.text)
    return files


def render_manifest(bank_id: str, writer: str, pyramid: Pyramid, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest of these files."""
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in sorted(files.items())}
    counts = {"messages": len(pyramid.messages), "records": len(pyramid.records), "tracks": len(pyramid.tracks)}
    return {"bank_id": bank_id, "format": FORMAT, "version": compute_version(bank_id, hashes), "writer": writer, "counts": counts, "files": hashes}


def compute_version(bank_id: str, hashes: Mapping[str, str]) -> str:
    """Content version: sixteen hex digits over bank id, format and file hashes. The writer is not part of it."""
    return hashlib.sha256(json.dumps([bank_id, FORMAT, sorted(hashes.items())]).encode()).hexdigest()[:16]


def load_stored_bank(path: Path, problems: list[str]) -> StoredBank | None:
    """Read a bank, adding every problem of its files to `problems`, in words; None where there is too little to go on."""
    manifest = _load_manifest(path, problems)
    if manifest is None:
        return None
    contents = {name: content for name in manifest["files"] if (content := _load_listed(path, name, manifest["files"][name], problems)) is not None}
    for track_file in sorted((path / "tracks").glob("*")):
        if f"tracks/{track_file.name}" not in manifest["files"]:
            problems.append(f"tracks/{track_file.name}: is not listed in {MANIFEST}")
    messages = _parse_lines(MESSAGES_FILE, contents.get(MESSAGES_FILE, ""), _parse_message, problems)
    records = _parse_lines(RECORDS_FILE, contents.get(RECORDS_FILE, ""), _parse_record, problems)
    tracks = [track for name in contents if name.startswith("tracks/") and (track := _try(problems, name, _parse_track, name, contents[name]))]
    profile = _try(problems, PROFILE_FILE, _parse_profile, contents[PROFILE_FILE]) if PROFILE_FILE in contents else None
    pyramid = Pyramid(messages=tuple(messages), records=tuple(records), tracks=tuple(tracks), profile=profile or _EMPTY_PROFILE)
    texts = {Path(name).name: text for name, text in contents.items() if name.endswith(".md")}
    return StoredBank(bank_id=manifest["bank_id"], version=manifest["version"], writer=manifest["writer"], pyramid=pyramid, files=texts)


def write_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Put a directory of files in place as a whole: written beside it, synced, then swapped in. The old one stays until the new one is complete.

    Raises:
        OSError: nothing was changed at `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.parent / f".{path.name}.new-{uuid.uuid4().hex}"
    try:
        for name, content in files.items():
            write_file(fresh / name, content)
        for folder in {(fresh / name).parent for name in files}:
            sync_path(folder)
        swap_directories(fresh, path)
        sync_path(path.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # after the swap this is the old one


def _render_lines(items: tuple[Message, ...] | tuple[Record, ...]) -> bytes:
    return "".join(json.dumps(as_json(item), ensure_ascii=False) + "\n" for item in items).encode()


def _render_markdown(head: Mapping[str, Any], body: str) -> bytes:
    front = yaml.dump(dict(head), Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=1 << 30)
    return f"---\n{front}---\n{body}\n".encode()


def _load_manifest(path: Path, problems: list[str]) -> dict[str, Any] | None:
    """The manifest, if it is one; its own version is checked here."""
    if not path.is_dir():
        problems.append("there is no such directory")
        return None
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problems.append(f"{MANIFEST}: cannot be read ({error})")
        return None
    fields = {"bank_id": str, "version": str, "writer": str, "counts": dict, "files": dict}
    if not isinstance(manifest, dict) or any(not isinstance(manifest.get(name), kind) for name, kind in fields.items()):
        problems.append(f"{MANIFEST}: is not a bank's manifest; it needs {', '.join(fields)}")
        return None
    if manifest.get("format") != FORMAT:
        problems.append(f"{MANIFEST}: format {manifest.get('format')!r}; this release reads format {FORMAT}")
        return None
    foreign = [name for name in manifest["files"] if not _LISTED.fullmatch(name)]
    missing = [name for name in (MESSAGES_FILE, RECORDS_FILE, PROFILE_FILE) if name not in manifest["files"]]
    problems += [f"{MANIFEST}: lists {name!r}, which is no file of a bank" for name in foreign] + [f"{MANIFEST}: does not list {name}" for name in missing]
    if compute_version(manifest["bank_id"], manifest["files"]) != manifest["version"]:
        problems.append(f"{MANIFEST}: version {manifest['version']} does not follow from the files it lists")
    return None if foreign or missing else manifest


def _load_listed(path: Path, name: str, sha256: str, problems: list[str]) -> str | None:
    try:
        content = (path / name).read_bytes()
    except OSError as error:
        problems.append(f"{name}: cannot be read ({error.strerror})")
        return None
    if hashlib.sha256(content).hexdigest() != sha256:
        problems.append(f"{name}: its content is not what {MANIFEST} says (sha256 differs)")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        problems.append(f"{name}: is not UTF-8 ({error})")
        return None


def _try(problems: list[str], what: str, parse: Callable[..., Any], *args: Any) -> Any:
    """The parsed value, or None with the problem noted."""
    try:
        return parse(*args)
    except BankError as error:
        problems.append(f"{what}: {error.message}")
        return None


def _parse_lines(name: str, text: str, parse: Callable[[str], _Item], problems: list[str]) -> list[_Item]:
    lines = text.split("\n")  # not splitlines: a text may hold other line separators
    parsed = [_try(problems, f"{name} line {number}", parse, line) for number, line in enumerate(lines[:-1], start=1)]
    if lines[-1]:
        problems.append(f"{name} line {len(lines)}: the last line is cut off")
    return [item for item in parsed if item is not None]


def _parse_fields(line: str, types: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """A line's JSON object with exactly these fields of these types."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BankError(f"malformed JSON ({error})") from error
    if not isinstance(fields, dict) or fields.keys() != types.keys():
        raise BankError(f"not an object with the fields {', '.join(types)}")
    for name, kind in types.items():
        if not isinstance(fields[name], kind):
            raise BankError(f"field {name} has the wrong type, {type(fields[name]).__name__}")
    return fields


def _parse_message(line: str) -> Message:
    types = {"message_id": str, "session_id": str, "role": str, "speaker": str, "text": str, "time": str, "caption": (str, type(None))}
    return Message(**_parse_fields(line, types))


def _parse_record(line: str) -> Record:
    fields = _parse_fields(line, {"record_id": str, "type": str, "text": str, "time": str, "source_ids": list, "session_id": str})
    if fields["type"] not in list(RecordType):
        raise BankError(f"{fields['record_id']}: unknown record type {fields['type']!r}; expected one of {', '.join(RecordType)}")
    source_ids = tuple(_parse_ids(fields["record_id"], fields["source_ids"]))
    return Record(**fields | {"type": RecordType(fields["type"]), "source_ids": source_ids})


def _parse_ids(what: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item_id, str) for item_id in value):
        raise BankError(f"{what}: its sources are not a list of ids")
    return value


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


def _parse_track(name: str, text: str) -> Track:
    head, body = _parse_markdown(text, ("id", "title", "updated", "records"))
    summary, separator, narrative = body.partition("\n\n")
    if not separator:
        raise BankError("the body needs a summary, an empty line and a narrative")
    record_ids = tuple(_parse_ids(head["id"], head["records"]))
    texts = {"title": head["title"], "summary": summary, "narrative": narrative}
    return Track(track_id=head["id"], file_name=Path(name).name, time=head["updated"], record_ids=record_ids, **texts)


def _parse_profile(text: str) -> Profile:
    head, body = _parse_markdown(text, ("id", "title", "updated", "sources"))
    return Profile(text=body, time=head["updated"], source_ids=tuple(_parse_ids(PROFILE_ID, head["sources"])))

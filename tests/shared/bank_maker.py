"""A small bank, and ways to break it so that nothing but the break itself is at fault."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from napmem_rl.memory.bank import save_bank
from napmem_rl.memory.commit_log import EMPTY_CHAIN, Commit, LogEnd, compute_version, extend_chain, parse_commit, render_commit
from napmem_rl.memory.storage import hash_content, parse_tree, render_tree
from napmem_rl.schema import Message, Profile, Record, RecordType, Track

TEXTS = ("I moved to Oslo.", "I work as a nurse.", "I bought a red bike.", "I like tea.", "Hm.")


def make_message(number: int, text: str = "We moved to Oslo.", **fields) -> Message:
    """msg:<number>, said on that day of March."""
    base = {"message_id": f"msg:{number}", "session_id": "s1", "role": "user", "speaker": "Ana", "text": text, "time": f"2024-03-{number:02d}T10:00:00"}
    return Message(**base | fields)


def make_record(number: int, text: str = "Ana moved to Oslo.", **fields) -> Record:
    """rec:<number>, drawn from the message of that number."""
    base = {"record_id": f"rec:{number}", "type": RecordType.FACT, "text": text, "time": f"2024-03-{number:02d}T10:00:00", "session_id": "s1"}
    return Record(**base | {"source_ids": (f"msg:{number}",)} | fields)


def make_levels(**changes) -> dict:
    """The levels of a bank: five messages, four records, two tracks, a profile that links one track and one record."""
    levels = {
        "messages": tuple(make_message(number, text) for number, text in enumerate(TEXTS, 1)),
        "records": (
            make_record(1, "Ana moved to Oslo."),
            make_record(2, "Ana works as a nurse.", source_ids=("msg:1", "msg:2")),
            make_record(3, "Ana bought a red bike.", type=RecordType.EVENT),
            make_record(4, "Ana likes tea.", type=RecordType.PREFERENCE),
        ),
        "tracks": (
            Track(
                track_id="trk:1", file_name="life.md", title="Life: ---", summary="Ana's move and work.",
                narrative="She moved. [rec:1]\n\n---\n\nShe works. [rec:2]\n", time="2024-03-02T10:00:00", record_ids=("rec:1", "rec:2"),
            ),
            Track(
                track_id="trk:2", file_name="bike.md", title="Räder “x”", summary="A bike.", narrative="- 2024-03-03 [rec:3]", time="2024-03-03T10:00:00",
                record_ids=("rec:3",),
            ),
        ),
        "profile": Profile(text="Lives in Oslo. [trk:1]\nLikes tea. [rec:4]", time="2024-03-04T10:00:00", source_ids=("trk:1", "rec:4")),
    }  # fmt: skip
    return levels | changes


def save_sample(path: Path, **changes) -> str:
    """The bank of `make_levels` at a path; returns its version."""
    return save_bank(path, bank_id="ana", writer="hand", **make_levels(**changes))


def read_head(path: Path) -> Commit:
    """The newest commit of a bank."""
    return parse_commit((path / "commits.jsonl").read_bytes().splitlines()[-1])


def find_file(path: Path, name: str) -> Path:
    """A bank's file by the name that a user knows: messages.jsonl, profile.md, bike.md, …"""
    if not name.endswith(".md"):
        return path / name
    return path / "files" / f"{parse_tree((path / 'files' / f'{read_head(path).tree}.json').read_bytes())[name]}.md"


def edit(path: Path, name: str, old: str, new: str) -> None:
    """Change a file, and seal the bank again as one commit."""
    file = find_file(path, name)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    reseal(path)


def reseal(path: Path) -> str:
    """Make one commit that fits the files as a test has left them; returns its version."""
    head, ends = read_head(path), {}
    for name in ("messages", "records"):
        content = (path / f"{name}.jsonl").read_bytes()
        lines = content.split(b"\n")
        ends[name] = LogEnd(num_bytes=len(content), chain=extend_chain(EMPTY_CHAIN, lines[:-1] + lines[-1:] * bool(lines[-1])))
    hashes = {}
    for name, old_hash in parse_tree((path / "files" / f"{head.tree}.json").read_bytes()).items():
        content = (path / "files" / f"{old_hash}.md").read_bytes()
        hashes[name] = hash_content(content)
        (path / "files" / f"{old_hash}.md").rename(path / "files" / f"{hashes[name]}.md")
    (path / "files" / f"{head.tree}.json").unlink()
    tree = hash_content(render_tree(hashes))
    (path / "files" / f"{tree}.json").write_bytes(render_tree(hashes))
    bank_id = json.loads((path / "bank.json").read_text())["bank_id"]
    version = compute_version(bank_id, ends["messages"].chain, ends["records"].chain, tree)
    (path / "commits.jsonl").write_bytes(render_commit(dataclasses.replace(head, version=version, parent=None, tree=tree, **ends)))
    return version

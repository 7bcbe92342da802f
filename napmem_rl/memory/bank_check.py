"""Everything that can be wrong with a bank, named: every version is made again from the files alone, and each level's links are followed at each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from napmem_rl.memory.bank_columns import load_columns, read_covered
from napmem_rl.memory.bank_store import (
    Snapshot,
    append_items,
    attempt,
    decode_text,
    find_commit,
    find_damage,
    open_log,
    read_bank_id,
    read_commits,
    read_hashed,
)
from napmem_rl.memory.bank_tables import Lines, MessageTable, RevisionTable
from napmem_rl.memory.commit_log import EMPTY_CHAIN, Commit, extend_chain
from napmem_rl.memory.erasing import ERASING_FILE
from napmem_rl.memory.forgotten import FORGOTTEN_FILE, list_forgettings
from napmem_rl.memory.import_state import IMPORT_FILE, load_import_state
from napmem_rl.memory.pyramid import PROFILE_FILE, Ledger, check_message, check_profile, check_revision, check_tracks
from napmem_rl.memory.storage import (
    BANK_FILE,
    COMMITS_FILE,
    EMPTY_PROFILE,
    FILES_DIR,
    HASH,
    INDEX_DIR,
    LOCK_FILE,
    MESSAGES_FILE,
    RECORDS_FILE,
    TEMPORARY,
    hash_content,
    parse_message,
    parse_profile,
    parse_revision,
    parse_track,
    parse_tree,
)
from napmem_rl.schema import Message, Profile, RecordOperation, RecordRevision, Track

_KNOWN = {BANK_FILE, MESSAGES_FILE, RECORDS_FILE, COMMITS_FILE, FILES_DIR, INDEX_DIR, LOCK_FILE, FORGOTTEN_FILE, ERASING_FILE, IMPORT_FILE}
BATCH = 4096  # items that wait in a ledger before they become rows


def verify_bank(path: Path, *, version: str | None = None) -> list[str]:
    """Everything that is wrong with a bank, in words; empty where all its versions hold.

    Args:
        path: the bank's directory.
        version: look no further than the last commit of this version; None for all.
    """
    path = Path(path)
    problems: list[str] = []
    bank_id = read_bank_id(path, problems)
    if bank_id is None:
        return problems
    problems += _find_foreign(path)
    attempt(problems, FORGOTTEN_FILE, list_forgettings, path)
    attempt(problems, IMPORT_FILE, load_import_state, path)
    if (path / ERASING_FILE).exists():
        problems.append(f"{ERASING_FILE}: a forgetting was interrupted: what it removed is still beside the bank; whoever opens the bank next removes it")
    commits, _ = read_commits(path, bank_id, problems)
    head = find_commit(commits, version, problems)
    if head is not None:
        commits = commits[: max(index for index, commit in enumerate(commits) if commit is head) + 1]
        num_problems = len(problems)
        replay = _Replay.over(path, commits, problems)
        if len(problems) == num_problems:  # both logs are as long as the versions say
            for commit in commits:
                replay.take(commit)
            problems += replay.name_damage()
    return list(dict.fromkeys(problems))


def _find_foreign(path: Path) -> Iterator[str]:
    """Files that a bank does not have, and files that do not hold what they are named by."""
    for entry in sorted(path.iterdir()):
        if entry.name not in _KNOWN and not TEMPORARY.fullmatch(entry.name):
            yield f"{entry.name}: is no file of a bank"
    folder = path / FILES_DIR
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        stem, _, ending = entry.name.partition(".")
        if TEMPORARY.fullmatch(entry.name):
            continue
        if not HASH.fullmatch(stem) or ending not in ("md", "json") or not entry.is_file():
            yield f"{FILES_DIR}/{entry.name}: is no file of a bank"
        elif hash_content(entry.read_bytes()) != stem:
            yield f"{FILES_DIR}/{entry.name}: its content is not what its name says (hash differs)"


@dataclass(slots=True)
class _Log:
    """One of the two logs, as far as it was read."""

    name: str
    lines: Lines
    chain: bytes = EMPTY_CHAIN
    num_bytes: int = 0
    num_lines: int = 0
    items: list = field(default_factory=list)  # not yet rows
    pending: list[bytes] = field(default_factory=list)  # their lines
    damaged: list[tuple[int, int, str]] = field(default_factory=list)  # first line, last line, version


@dataclass(slots=True)
class _Replay:
    """The bank as it grew, commit by commit. `problems` takes what is wrong."""

    path: Path
    commits: Sequence[Commit]
    problems: list[str]
    logs: tuple[_Log, _Log]
    snapshot: Snapshot
    ledger: Ledger
    num_records: int = 0
    is_sound: bool = True  # every line so far became an item
    tree: str = ""
    hashes: dict[str, str] = field(default_factory=dict)  # of the tree, by file name
    tracks: dict[str, Track] = field(default_factory=dict)  # of the tree, by file name
    profile: Profile = EMPTY_PROFILE

    @classmethod
    def over(cls, path: Path, commits: Sequence[Commit], problems: list[str]) -> _Replay:
        """A replay that has taken nothing yet."""
        head = commits[-1]
        logs = tuple(
            _Log(name, open_log(path / name, end.num_bytes, -1, problems)) for name, end in ((MESSAGES_FILE, head.messages), (RECORDS_FILE, head.records))
        )
        snapshot = Snapshot(messages=MessageTable.empty(logs[0].lines, {}), revisions=RevisionTable.empty(logs[1].lines, {}))
        return cls(path=path, commits=commits, problems=problems, logs=logs, snapshot=snapshot, ledger=Ledger(snapshot))

    def take(self, commit: Commit) -> None:
        """Go on by one commit."""
        messages = self._read(self.logs[0], commit, commit.messages.num_bytes, commit.messages.chain)
        revisions = self._read(self.logs[1], commit, commit.records.num_bytes, commit.records.chain)
        self._take_messages(messages)
        touched = self._take_revisions(revisions)
        self._check_counts(commit)
        if commit.tree != self.tree or touched:
            self._load_levels(commit)
            tracks = list(self.tracks.values())
            found = [*check_tracks(tracks, self.ledger), *check_profile(self.profile, tracks, self.ledger)]
            self.problems += [f"version {commit.version}: {problem}" for problem in found if not self._is_told(problem)]
        if self.is_sound and sum(len(log.items) for log in self.logs) >= BATCH:
            self._flush()

    def name_damage(self) -> Iterator[str]:
        """Which lines no longer are what was committed: by the columns where they are there, otherwise by the version that brought them."""
        columns = load_columns(self.path / INDEX_DIR, read_covered(self.path / INDEX_DIR), self.commits) if any(log.damaged for log in self.logs) else None
        for which, log in enumerate(self.logs):
            for first, last, version in log.damaged:
                rows = columns.rows[which][first - 1 : last] if columns else None
                yield from find_damage(log.name, log.lines, rows, first, last, version)

    def _read(self, log: _Log, commit: Commit, num_bytes: int, chain: bytes) -> list[bytes]:
        """A log's lines of one commit."""
        content = log.lines.read(log.num_bytes, num_bytes) if num_bytes > log.num_bytes else b""
        lines = content.split(b"\n")
        rest = lines.pop()
        if rest:
            self.problems.append(f"{log.name} line {log.num_lines + len(lines) + 1}: has no end where version {commit.version} ends")
            lines.append(rest)
        log.chain, log.num_bytes = extend_chain(log.chain, lines), max(num_bytes, log.num_bytes)
        if log.chain != chain:
            log.damaged.append((log.num_lines + 1, log.num_lines + len(lines), commit.version))
            log.chain = chain
        return lines

    def _take_messages(self, lines: Sequence[bytes]) -> None:
        log = self.logs[0]
        for line in lines:
            log.num_lines += 1
            message = attempt(self.problems, f"{log.name} line {log.num_lines}", parse_message, line)
            if message is not None:
                self.problems += [f"{log.name} line {log.num_lines}: {problem}" for problem in check_message(message, self.ledger)]
                self.ledger.add_message(message)
            self._keep(log, message, line)

    def _take_revisions(self, lines: Sequence[bytes]) -> bool:
        """Returns whether a record that was there is another now, or gone."""
        log, touched = self.logs[1], False
        for line in lines:
            log.num_lines += 1
            revision = attempt(self.problems, f"{log.name} line {log.num_lines}", parse_revision, line)
            if revision is not None:
                self.problems += [f"{log.name} line {log.num_lines}: {problem}" for problem in check_revision(revision, self.ledger)]
                self.ledger.add_revision(revision)
                touched |= revision.operation is not RecordOperation.STORE
                self.num_records += (revision.operation is RecordOperation.STORE) - len(revision.merged_ids)
            self._keep(log, revision, line)
        return touched

    def _keep(self, log: _Log, item: Message | RecordRevision | None, line: bytes) -> None:
        if item is None:
            self.is_sound = False
        elif self.is_sound:
            log.items.append(item)
            log.pending.append(line)

    def _check_counts(self, commit: Commit) -> None:
        found = (self.logs[0].num_lines, self.logs[1].num_lines, self.num_records)
        said = (commit.num_messages, commit.num_revisions, commit.num_records)
        if found != said and self.is_sound:
            self.problems.append(f"version {commit.version}: holds {found} messages, revisions and records, {COMMITS_FILE} says {said}")

    def _load_levels(self, commit: Commit) -> None:
        """Tracks and profile of a commit's tree; only files that the tree before did not have are read."""
        if commit.tree == self.tree:
            return
        self.tree = commit.tree
        content = read_hashed(self.path, f"{commit.tree}.json", self.problems)
        hashes = (content is not None and attempt(self.problems, f"{FILES_DIR}/{commit.tree}.json", parse_tree, content)) or {}
        tracks = {name: track for name, track in self.tracks.items() if hashes.get(name) == self.hashes.get(name)}
        for name, content_hash in hashes.items():
            if self.hashes.get(name) == content_hash:
                continue
            level = self._load_level(name, content_hash)
            if isinstance(level, Profile):
                self.profile = level
            elif level is not None:
                tracks[name] = level
        if len(hashes) - 1 != commit.num_tracks and hashes:
            self.problems.append(f"version {commit.version}: holds {len(hashes) - 1} tracks, {COMMITS_FILE} says {commit.num_tracks}")
        self.tracks, self.hashes = dict(sorted(tracks.items())), hashes

    def _load_level(self, name: str, content_hash: str) -> Track | Profile | None:
        what, content = f"{FILES_DIR}/{content_hash}.md ({name})", read_hashed(self.path, f"{content_hash}.md", self.problems, f" ({name})")
        text = None if content is None else attempt(self.problems, what, decode_text, content)
        if text is None:
            return None
        return attempt(self.problems, what, parse_profile, text) if name == PROFILE_FILE else attempt(self.problems, what, parse_track, name, text)

    def _is_told(self, problem: str) -> bool:
        return any(known.endswith(f": {problem}") for known in self.problems)

    def _flush(self) -> None:
        """Turn what waits into rows."""
        for log in self.logs:
            self.snapshot = append_items(self.snapshot, log.name, log.items, log.pending)
            log.items, log.pending = [], []
        self.ledger = Ledger(self.snapshot)

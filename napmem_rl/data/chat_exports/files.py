"""The files that may hold an export: as they are, in a directory, or in a zip as vendors send it. Nothing is ever unpacked to the disk.

A zip is read member by member, as a stream. One that claims to unpack to far more than chats do is refused before it is read (`_check_size`).
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from napmem_rl.errors import DataError

MAX_RATIO = 100  # unpacked to packed size, of members above MIN_CHECKED; chats come to 5 to 20
MIN_CHECKED = 64 << 20
MAX_UNPACKED = 16 << 30
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".txt")
_CONVERSATIONS = re.compile(r"(.*/)?conversations([-_]\d+)?\.json", re.IGNORECASE)
_NO_CHATS = re.compile(  # files beside the chats in vendors' exports
    r"(.*/)?(users?|projects|memories|message_feedback|model_comparisons|shared_conversations|user_settings|export_manifest|group_chats|shopping|sora"
    r"|settings|design_chats)\.json",
    re.IGNORECASE,
)
_CHAT_TEXT = re.compile(r"(.*/)?(_chat|.*WhatsApp.*)\.txt", re.IGNORECASE)
_HIDDEN = re.compile(r"(^|/)(__MACOSX/|\._|\.)")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportFile:
    """One file that can be read, from its start, any number of times."""

    name: str  # for people, e.g. "export.zip, conversations.json"
    title: str  # the file's own name, or the zip's where that says more
    open_stream: Callable[[], IO[bytes]]
    is_expected: bool  # named by the user, or by a name that an export uses: one that cannot be read is an error
    siblings: tuple[ExportFile, ...] = ()  # in the same place, without chats, such as users.json

    @contextmanager
    def read(self) -> Iterator[IO[bytes]]:
        """The content as a stream.

        Raises:
            DataError: it is cut off or broken, found out while reading.
        """
        try:
            with self.open_stream() as stream:
                yield stream
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DataError.of(self.name, f"the zip file is cut off or broken ({error})", fix="Get the export again.") from error
        except (NotImplementedError, RuntimeError) as error:
            if not _is_zip_problem(error):
                raise
            raise DataError.of(self.name, f"cannot be unpacked ({error})", fix="Unpack the zip file yourself and import what is in it.") from error
        except OSError as error:
            raise DataError.of(self.name, f"cannot be read ({error.strerror or error})") from error


def find_files(paths: Sequence[Path], others: list[str] | None = None) -> list[ExportFile]:
    """All files that may hold chats, in the order of the paths; those of a directory or a zip by name.

    Args:
        paths: files, zip files or directories.
        others: takes the names of the files beside them, which are not read.

    Raises:
        DataError: a path does not exist, a zip is broken, holds nothing that looks like chats, or would unpack to too much.
    """
    found: list[ExportFile] = []
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DataError.of(f"export {path}", "does not exist")
        for file, name in _list_files(path):
            if file.resolve() not in seen:
                seen.add(file.resolve())
                found += _open_file(file, name, others if others is not None else [], is_named=file == path)
    if not found:
        raise DataError.of(f"export {', '.join(map(str, paths))}", "the directory holds no file of an export", expected=f"{', '.join(_SUFFIXES)} or .zip")
    return found


def _list_files(path: Path) -> list[tuple[Path, str]]:
    """(file, its name for people) of a file itself, or of everything in a directory but what is hidden."""
    if not path.is_dir():
        return [(path, path.name)]
    inside = ((entry, str(entry.relative_to(path))) for entry in path.rglob("*") if entry.is_file())
    return sorted((entry, name) for entry, name in inside if not _HIDDEN.search(name))


def _open_file(path: Path, name: str, others: list[str], *, is_named: bool) -> list[ExportFile]:
    """The export files that a file is, or holds."""
    if not path.is_file():
        raise DataError.of(f"export {path}", "is no file", expected="a file, a zip file or a directory of them")
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise DataError.of(f"export {path}", f"cannot be read ({error.strerror})") from error
    if head[:2] == b"PK" or path.suffix.lower() == ".zip":
        return _open_zip(path, name, others, head)
    is_expected = is_named or _is_chat_name(path.name)
    if not is_expected and (not head or path.suffix.lower() not in _SUFFIXES or _NO_CHATS.fullmatch(path.name)):
        others.append(name)
        return []
    if not head:
        raise DataError.of(f"export {path}", "is empty", fix="Get the export again.")
    siblings = tuple(_make_file(other) for other in sorted(path.parent.glob("users.json")))
    return [_make_file(path, name, is_expected=is_expected, siblings=siblings)]


def _make_file(path: Path, name: str = "", *, is_expected: bool = False, siblings: tuple[ExportFile, ...] = ()) -> ExportFile:
    return ExportFile(name=name or path.name, title=path.stem, open_stream=lambda: path.open("rb"), is_expected=is_expected, siblings=siblings)


def _open_zip(path: Path, name: str, others: list[str], head: bytes) -> list[ExportFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir() and not _HIDDEN.search(member.filename)]
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError) as error:
        problem = "is cut off or broken" if head[:2] == b"PK" else "is no zip file"
        raise DataError.of(f"export {path}", f"{problem} ({error})", fix="Get the export again.") from error
    exact = [member for member in members if _is_chat_name(member.filename)]
    possible = [m for m in members if m.filename.lower().endswith(_SUFFIXES) and not _NO_CHATS.fullmatch(m.filename)]
    chosen = sorted(exact or possible, key=lambda member: member.filename)
    if not chosen:
        names = [member.filename for member in members[:5]]
        raise DataError.of(f"export {path}", "the zip file holds no chats", got=names, expected="conversations.json, _chat.txt, or other .json or .txt files")
    _check_size(path, chosen)
    others += [f"{name}, {member.filename}" for member in members if member not in chosen]
    users = tuple(_make_member(path, name, member, False, ()) for member in members if member.filename.rpartition("/")[2] == "users.json")
    return [_make_member(path, name, member, bool(exact), users) for member in chosen]


def _make_member(path: Path, name: str, member: zipfile.ZipInfo, is_expected: bool, siblings: tuple[ExportFile, ...]) -> ExportFile:
    own = Path(member.filename).stem
    title = path.stem if own in ("_chat", "conversations") else own
    return ExportFile(
        name=f"{name}, {member.filename}",
        title=title,
        open_stream=lambda: _open_member(path, member.filename),
        is_expected=is_expected,
        siblings=siblings,
    )


def _open_member(path: Path, name: str) -> IO[bytes]:
    """A member as a stream that closes the archive with itself."""
    archive = zipfile.ZipFile(path)
    try:
        stream = archive.open(name)
    except BaseException:
        archive.close()
        raise
    return _Member(stream, archive)


class _Member(io.BufferedReader):
    def __init__(self, stream: IO[bytes], archive: zipfile.ZipFile) -> None:
        super().__init__(stream, 1 << 16)
        self._archive = archive

    def close(self) -> None:
        super().close()
        self._archive.close()


def _is_chat_name(name: str) -> bool:
    return _CONVERSATIONS.fullmatch(name) is not None or _CHAT_TEXT.fullmatch(name) is not None


def _check_size(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse what a small file should not become; zipfile itself gives no more bytes than a member claims."""
    for member in members:
        if member.file_size > MIN_CHECKED and member.file_size > MAX_RATIO * max(1, member.compress_size):
            problem = f"{member.filename} unpacks from {member.compress_size:,} to {member.file_size:,} bytes, which no chats do"
            raise DataError.of(f"export {path}", problem, fix="If you trust it, unpack it yourself and import the file.")
    total = sum(member.file_size for member in members)
    if total > MAX_UNPACKED:
        problem = f"its chats unpack to {total:,} bytes, more than {MAX_UNPACKED:,}"
        raise DataError.of(f"export {path}", problem, fix="If you trust it, unpack it yourself and import the files one by one.")


def _is_zip_problem(error: Exception) -> bool:
    """Whether it is zipfile's own: an encrypted member or a method of compression that this Python does not know."""
    return isinstance(error, NotImplementedError) or "password" in str(error) or "encrypted" in str(error)

"""Is a text anywhere under some directories? Asked of the bytes, and of what they decode to."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import lzma
import zipfile
from collections.abc import Iterator
from pathlib import Path


def find_traces(text: str, *directories: Path) -> list[str]:
    """Files that hold a text: by name, in UTF-8 or UTF-16, escaped as JSON once or twice, in base64, in gzip, xz, zip (.npz), Zstandard or Parquet."""
    forms = {form.encode() for form in list_forms(text)} | {text.encode("utf-16-le"), text.encode("utf-16-be")}
    forms |= set(_list_base64(text.encode()))
    found = []
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            if text in path.name:
                found.append(f"{path} (its name)")
            if path.is_file() and any(form in content for content in _list_contents(path) for form in forms):
                found.append(str(path))
    return found


def list_forms(text: str) -> list[str]:
    """A text as it is, and as JSON writes it within a string, once and twice, in ASCII or not."""
    forms = [text]
    for _ in range(2):
        forms += [json.dumps(form, ensure_ascii=is_ascii)[1:-1] for form in list(forms) for is_ascii in (True, False)]
    return list(dict.fromkeys(forms))


def _list_base64(content: bytes) -> Iterator[bytes]:
    """What of the content's base64 is the same wherever it begins and whatever follows, where that is long enough to be no chance."""
    for shift in range(3):
        inner = base64.b64encode(b"\0" * shift + content)[4 if shift else 0 : -4]
        if len(inner) >= 8:
            yield inner


def _list_contents(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    yield content
    with contextlib.suppress(EOFError, OSError):  # what cannot be unpacked was looked at as it is
        if content[:2] == b"\x1f\x8b":
            yield gzip.decompress(content)
    if content[:6] == b"\xfd7zXZ\0":
        yield lzma.decompress(content)
    if content[:4] == b"\x28\xb5\x2f\xfd":
        import zstandard

        yield zstandard.ZstdDecompressor().stream_reader(content).read()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield archive.read(name)
    if content[:4] == b"PAR1":
        import pyarrow.parquet

        yield json.dumps(pyarrow.parquet.read_table(path).to_pylist(), default=str, ensure_ascii=False).encode()

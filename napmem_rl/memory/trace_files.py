"""Files that quote what a bank forgot: found by what they decode to, and cleaned one by one, each as a whole or not at all.

- A language model's cache loses every entry that quotes it: it can be asked for again.
- In JSON, JSON lines, CSV, Parquet and plain text, a quoting string or line gives way to MARK, and what stands beside it as token ids is left out; packed files
  are packed again.
- Pages that are made from the others (HTML), W&B's own logs and packed arrays are removed.
- Models and optimizer states are not looked into: whether weights hold a sentence cannot be read off them. They are named.
"""

from __future__ import annotations

import bz2
import gzip
import html
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.memory.text_traces import Traces

MARK = "[forgotten]"
_WEIGHTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".distcp", ".gguf", ".onnx")
_JSON_LINES, _JSON, _TEXT = (".jsonl", ".ndjson"), (".json",), (".txt", ".log", ".md", ".csv", ".tsv", ".yaml", ".yml")
_PACKERS = (".gz", ".bz2", ".xz", ".zst")
_REMOVED = (".html", ".htm", ".wandb", ".npz", ".npy", ".pkl")
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_TOKENS = re.compile(r"(_ids|_tokens|log_?probs|_mask)$")


class Action(StrEnum):
    """What becomes of a file that quotes it."""

    CLEANED = "cleaned"
    REMOVED = "removed"
    LEFT = "left"  # of no kind that is known: to be looked at by hand
    UNREAD = "unread"  # packed, and cannot be unpacked
    WEIGHTS = "weights"  # not looked into


@dataclass(frozen=True, slots=True)
class TracedFile:
    """A file that quotes what was forgotten, or may have learned it."""

    path: Path
    action: Action


def find_entries(directory: Path, traces: Traces) -> list[Path]:
    """Entries of a cache that quote it."""
    return [path for path in _list_files(directory) if any(map(traces.are_in, _read_texts(path)))]


def trace_run(directory: Path, traces: Traces) -> list[TracedFile]:
    """Files of a run directory that quote it, and what would become of each; weights beside them."""
    found = []
    for path in _list_files(directory):
        if path.name.lower().endswith(_WEIGHTS):
            found.append(TracedFile(path, Action.WEIGHTS))
        elif not _is_readable(path):
            found.append(TracedFile(path, Action.UNREAD))
        elif any(map(traces.are_in, _read_texts(path))) or traces.are_in(path.stem):
            found.append(TracedFile(path, _choose(path)))
    return found


def clean_file(traced: TracedFile, traces: Traces) -> None:
    """Do to a file what is to become of it."""
    path = traced.path
    if traced.action is Action.REMOVED:
        path.unlink(missing_ok=True)
    elif traced.action is Action.CLEANED and path.suffix == ".parquet":
        _clean_parquet(path, traces)
    elif traced.action is Action.CLEANED:
        pack, content = _unpack(path)
        encoding, errors = ("utf-16", "replace") if content.startswith(_UTF16_BOMS) else ("utf-8", "surrogateescape")
        write_file(path, pack(_clean_text(_inner_suffix(path), content.decode(encoding, errors), traces).encode(encoding, errors)))


def _list_files(directory: Path) -> list[Path]:
    if directory.is_file():
        return [directory]
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def _choose(path: Path) -> Action:
    suffix = _inner_suffix(path)
    if suffix in (*_JSON_LINES, *_JSON, *_TEXT, ".parquet"):
        return Action.CLEANED
    return Action.REMOVED if suffix in _REMOVED or path.name.startswith("events.out.tfevents") else Action.LEFT


def _inner_suffix(path: Path) -> str:
    """The suffix under that of a packer: ``.jsonl`` of ``rows.jsonl.gz``."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in _PACKERS else path.suffix.lower()


def _unpack(path: Path) -> tuple[Callable[[bytes], bytes], bytes]:
    """(how the file is packed, what is in it)."""
    content, suffix = path.read_bytes(), path.suffix.lower()
    if suffix == ".gz":
        return (lambda inner: gzip.compress(inner, mtime=0)), gzip.decompress(content)
    if suffix == ".bz2":
        return bz2.compress, bz2.decompress(content)
    if suffix == ".xz":
        return lzma.compress, lzma.decompress(content)
    if suffix == ".zst":
        import zstandard

        return zstandard.ZstdCompressor().compress, zstandard.ZstdDecompressor().stream_reader(content).read()
    return (lambda inner: inner), content


def _read_texts(path: Path) -> Iterator[str]:
    """What a file says, in texts of any size; of one that cannot be unpacked, its bytes as they are."""
    suffix = _inner_suffix(path)
    if suffix == ".parquet":
        yield from _read_parquet(path)
        return
    if suffix == ".npz":
        yield from _read_arrays(path)
        return
    content = _unpack(path)[1] if _is_readable(path) else path.read_bytes()
    if content.startswith(b"PK\x03\x04"):
        yield from _read_members(content)
        return
    if content.startswith(_UTF16_BOMS):
        yield content.decode("utf-16", "replace")
        return
    text = content.decode("utf-8", "replace")
    yield text
    if suffix in (".html", ".htm"):
        yield html.unescape(re.sub(r"<[^<>]{0,2000}>", " ", text))


def _read_members(content: bytes) -> Iterator[str]:
    """What is in a zip file, also one of another suffix, such as a spreadsheet."""
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                text = archive.read(name).decode("utf-8", "replace")
                yield text
                yield html.unescape(re.sub(r"<[^<>]{0,2000}>", " ", text))
    except (OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        yield content.decode("utf-8", "replace")


def _is_readable(path: Path) -> bool:
    """Whether a packed file can be unpacked; any other can be read."""
    try:
        return path.suffix.lower() not in _PACKERS or bool(_unpack(path))
    except (OSError, EOFError, ValueError, lzma.LZMAError, ImportError, zlib.error):
        return False


def _read_parquet(path: Path) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        for batch in file.iter_batches(batch_size=256):
            yield json.dumps(batch.to_pylist(), default=str, ensure_ascii=False)
    except (pa.ArrowException, OSError):
        yield path.read_bytes().decode("utf-8", "replace")


def _read_arrays(path: Path) -> Iterator[str]:
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            yield "\n".join(str(value) for name in arrays.files if arrays[name].dtype.kind in "US" for value in arrays[name].ravel())
    except (OSError, ValueError, zipfile.BadZipFile):
        yield path.read_bytes().decode("utf-8", "replace")


def _clean_text(suffix: str, text: str, traces: Traces) -> str:
    if suffix in _JSON:
        try:
            return json.dumps(clean_value(json.loads(text), traces), ensure_ascii=False, indent=2 if "\n" in text.strip() else None) + "\n"
        except ValueError:
            pass  # no JSON after all
    lines = text.split("\n")
    quoting = traces.find_lines(lines)
    cleaned: list[str] = []
    for position, line in enumerate(lines):
        row = line if position not in quoting else _clean_row(line, traces) if suffix in _JSON_LINES else None
        if row is not None:
            cleaned.append(row)
        elif position - 1 not in quoting or cleaned[-1] != MARK:
            cleaned.append(MARK)
    return "\n".join(cleaned)


def _clean_row(line: str, traces: Traces) -> str | None:
    """A row without quotations; None where the line is no JSON."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    cleaned = clean_value(value, traces)
    return line if cleaned == value else json.dumps(cleaned, ensure_ascii=False)


def clean_value(value: Any, traces: Traces) -> Any:
    """JSON without quotations: strings that quote are MARK, keys too; token ids, log-probs and masks of a row with one are left out."""
    cleaned = _clean(value, traces)
    return _without_tokens(cleaned) if cleaned != value and not isinstance(value, list) else cleaned


def _clean(value: Any, traces: Traces) -> Any:
    if isinstance(value, str):
        return MARK if traces.are_in(value) else value
    if isinstance(value, list):
        if value and all(isinstance(part, str) for part in value) and (traces.are_in(" ".join(value)) or traces.are_in("".join(value))):
            return [MARK if traces.are_in(part) else part for part in value] if any(map(traces.are_in, value)) else [MARK]
        return [clean_value(part, traces) for part in value]
    if isinstance(value, dict):
        return {MARK if traces.are_in(key) else key: _clean(part, traces) for key, part in value.items()}
    return value


def _without_tokens(value: Any) -> Any:
    """JSON without lists of numbers that are named as tokens, or what belongs to them."""
    if isinstance(value, list):
        return [_without_tokens(part) for part in value]
    if isinstance(value, dict):
        return {key: _without_tokens(part) for key, part in value.items() if not _is_tokens(key, part)}
    return value


def _is_tokens(key: str, value: Any) -> bool:
    return isinstance(value, list) and bool(value) and _TOKENS.search(key) is not None and all(isinstance(part, int | float) for part in value)


def _clean_parquet(path: Path, traces: Traces) -> None:
    """Rows with the same columns; token columns of a quoting row become empty lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    rows = []
    for row in table.to_pylist():
        cleaned = clean_value(row, traces) if traces.are_in(json.dumps(row, default=str, ensure_ascii=False)) else row
        rows.append({name: cleaned.get(name, []) for name in row})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), sink)
    write_file(path, sink.getvalue().to_pybytes())

"""Replies and verdicts on disk: one JSON file per key, safe among processes and on network file systems."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file

logger = logging.getLogger(__name__)


class DiskCache:
    """A directory of `<2 hex>/<sha256>.json`, each holding its key in clear beside the value, so that people can read it.

    Files are written whole (temporary file, fsync, rename): a reader sees all of an entry or none, and the last of several writers wins.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    def get(self, key: Mapping[str, Any]) -> Any | None:
        """The value stored under `key`, or None. An entry that cannot be read is logged and counts as absent: it will be written anew."""
        path = self._path(key)
        try:
            return json.loads(path.read_text(encoding="utf-8"))["value"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("cache entry %s is not readable (%s); it will be replaced", path, error)
            return None

    def put(self, key: Mapping[str, Any], value: Any) -> None:
        """Store a JSON-ready value other than None."""
        text = json.dumps({"key": key, "value": value}, ensure_ascii=False, sort_keys=True)
        write_file(self._path(key), text.encode("utf-8", "backslashreplace"))  # a lone surrogate becomes the JSON escape that it came from

    def _path(self, key: Mapping[str, Any]) -> Path:
        digest = hash_key(key)
        return self._directory / digest[:2] / f"{digest}.json"


def hash_key(key: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a JSON-ready key, whatever the order of its fields."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode("utf-8")).hexdigest()

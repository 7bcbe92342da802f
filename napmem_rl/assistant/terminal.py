"""Memory text on a terminal: it was written by anybody, so none of it may act on the terminal or pose as another line."""

from __future__ import annotations


def flatten(text: str, limit: int | None = None) -> str:
    """The text on one line, with single blanks, without control characters, and cut at `limit` characters with an ellipsis.

    Example: ``flatten("a\\tred\\nflag", 6)`` is ``"a red…"``.
    """
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return plain if limit is None or len(plain) <= limit else f"{plain[: limit - 1].rstrip()}…"

"""What a judge's model is sent: instructions of ours in the system message, and everything else as one JSON object in one user message.

What is graded is data. Inside the JSON no character of it can end a text, open a tag or start a turn: quotes and backslashes are escaped as JSON does it,
and so are `<`, `>`, `[`, `]`, `|` (a server would read `<|im_end|>` in a message as the end of the turn), control and invisible characters, bidirectional
marks, line separators and lone surrogates. A JSON reader gets the very text back.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

_TOKEN_SIGNS = frozenset("<>[]|")  # what control tokens are written with, in all vocabularies that we know of
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # Unicode categories without a glyph of their own


def build_messages(system: str, data: Mapping[str, str | Sequence[str]]) -> list[dict[str, Any]]:
    """The two messages of one request."""
    return [{"role": "system", "content": system}, {"role": "user", "content": encode_data(data)}]


def encode_data(data: Mapping[str, str | Sequence[str]]) -> str:
    """Texts, and lists of texts, as one JSON object; field names are ours and stay as they are.

    Example: encode_data({"answer": "a<b"}) is '{"answer": "a\\u003cb"}'
    """
    fields = (f'"{name}": {_quote(value) if isinstance(value, str) else _quote_all(value)}' for name, value in data.items())
    return "{" + ", ".join(fields) + "}"


def _quote_all(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quote, texts)) + "]"


def _quote(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(_escape(sign) if sign in _TOKEN_SIGNS or unicodedata.category(sign) in _UNSEEN else sign for sign in quoted)


def _escape(sign: str) -> str:
    return json.dumps(sign)[1:-1] if sign not in _TOKEN_SIGNS else f"\\u{ord(sign):04x}"

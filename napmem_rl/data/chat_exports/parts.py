"""Message contents in the forms of chat APIs: a text, or a list of typed parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

from napmem_rl.data.chat_exports.tally import LeftOut, Note
from napmem_rl.data.chat_exports.values import as_list, as_object, as_text

_TEXTS = frozenset({"text", "input_text", "output_text", "refusal", "summary_text"})
_FILES = {"image_url": "image", "input_image": "image", "image": "image", "image_file": "image", "input_audio": "audio", "audio": "audio"}
_FILES |= {"video_url": "video", "video": "video", "file": "file", "input_file": "file", "document": "file"}
_LEFT_OUT = {"tool_use": LeftOut.TOOL_CALL, "tool_call": LeftOut.TOOL_CALL, "function_call": LeftOut.TOOL_CALL, "tool_result": LeftOut.TOOL_RESULT}
_LEFT_OUT |= {"thinking": LeftOut.THINKING, "reasoning": LeftOut.THINKING, "redacted_thinking": LeftOut.THINKING}
_HTML = re.compile(r"<(div|p|ul|ol|li|pre|code|span|br|h[1-6]|table|strong|em)\b[^>]*>", re.IGNORECASE)
_BLOCKS = frozenset({"div", "p", "ul", "ol", "li", "pre", "br", "h1", "h2", "h3", "h4", "h5", "h6", "table", "tr"})


def make_mark(kind: str, name: str = "") -> str:
    """What stands for something that is no text, e.g. ``[image: beach.jpg]``."""
    plain = " ".join(name.replace("[", "(").replace("]", ")").split())
    return f"[{kind}: {plain}]" if plain else f"[{kind}]"


def read_parts(content: Any) -> tuple[list[str], list[Note], list[LeftOut]]:
    """Texts and marks in order, what is to be noted, and why parts are not kept."""
    if isinstance(content, str):
        return ([content.strip()] if content.strip() else []), [], []
    texts: list[str] = []
    notes: list[Note] = []
    reasons: list[LeftOut] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts += [part.strip()] if part.strip() else []
        elif isinstance(part, dict):
            _read_part(part, texts, notes, reasons)
        elif part is not None:
            texts.append(str(part))
            notes.append(Note.UNKNOWN_CONTENT)
    return texts, notes, reasons


def _read_part(part: Mapping[str, Any], texts: list[str], notes: list[Note], reasons: list[LeftOut]) -> None:
    kind = as_text(part.get("type"))
    said = next((one.strip() for name in ("text", "refusal", "content", "value") if (one := as_text(part.get(name))).strip()), "")
    if kind in _LEFT_OUT:
        reasons.append(_LEFT_OUT[kind])
    elif kind in _FILES:
        nested = as_object(part.get("file"))
        texts.append(make_mark(_FILES[kind], as_text(part.get("file_name") or part.get("filename") or nested.get("filename"))))
        notes.append(Note.ATTACHMENT)
    elif said:
        texts.append(said)
        notes += [] if kind in _TEXTS else [Note.UNKNOWN_CONTENT]
    elif part and kind not in _TEXTS:
        texts.append(make_mark(kind.replace("_", " ") or "content of an unknown kind"))
        notes.append(Note.UNKNOWN_CONTENT)


class _TextOfHtml(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pieces += ["\n"] if tag in _BLOCKS else []

    def handle_endtag(self, tag: str) -> None:
        self.pieces += ["\n"] if tag in _BLOCKS else []

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


def strip_html(text: str) -> str | None:
    """The text of a message that was saved as HTML; None for one that was not: it must begin and end with a tag."""
    if not (text.startswith("<") and text.endswith(">") and _HTML.match(text)):
        return None
    parser = _TextOfHtml()
    parser.feed(text)
    parser.close()
    lines = (line.strip() for line in "".join(parser.pieces).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def name_files(files: Any, seen: set[str]) -> list[str]:
    """Marks of files that a message names beside its content, each once."""
    marks = []
    for file in as_list(files):
        name = file if isinstance(file, str) else as_text(as_object(file).get("file_name") or as_object(file).get("name"))
        if not name or name not in seen:
            marks.append(make_mark("file", name))
        seen.add(name)
    return marks

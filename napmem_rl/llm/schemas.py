"""Parts of the JSON schemas that replies are asked to keep to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object of exactly these fields; endpoints with strict schemas want all of them required."""
    return {"type": "object", "properties": dict(properties), "required": list(properties), "additionalProperties": False}


def text_schema(max_chars: int) -> dict[str, Any]:
    """A text of 1 to `max_chars` characters."""
    return {"type": "string", "minLength": 1, "maxLength": max_chars}


def label_schema(letter: str, number: int) -> dict[str, Any]:
    """One of the labels <letter>1 … <letter><number>, which stand for ids."""
    return {"type": "string", "enum": [f"{letter}{index}" for index in range(1, number + 1)]}

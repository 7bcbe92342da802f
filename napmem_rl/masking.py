"""Secrets in what is logged, printed or reported: keys, tokens and passwords give way to MASK. Memory text in a bank is never masked: it is the user's own.

Known are the forms of common keys, passwords and keys in URLs, values beside names such as ``api_key`` or ``Authorization``, and whatever this process's
environment holds under such a name. ``api_key_env: NAME`` names a variable and stays. Standard library alone.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
MIN_SECRET_CHARS = 8  # of a variable of the environment: shorter values stand in too many words
_TOKEN_OF = "access|auth|bearer|refresh|identity|session|api|hf|hub"  # not eos_token, pad_token
_NAME = rf"(?:(?:api|access)[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|(?:{_TOKEN_OF})[_-]?token|passw(?:or)?d|passphrase|credentials?)"
_SECRET_NAME = re.compile(rf"(?i:(?:^|[_.-]){_NAME}$|^(?:token|authorization|auth)$)|^[A-Z0-9_]+_(?:TOKEN|KEY)$")
_KEY_FORMS = (
    r"\bsk-[A-Za-z0-9_-]{8,}",  # OpenAI, Anthropic and those who follow them
    r"\bhf_[A-Za-z0-9]{16,}",
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    r"\b(?:gsk|nvapi|pk|rk|r8)[_-][A-Za-z0-9_-]{16,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # a JSON web token
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
)
_KEYS = re.compile("|".join(_KEY_FORMS))
_BEARER = re.compile(r"\b(Bearer|Basic)(\s+)(?=[A-Za-z0-9+/._~=-]{8,})[A-Za-z0-9+/._~=-]+", re.IGNORECASE)
_URL_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(?:([^\s/:@\"'?#]*):[^\s/@\"'?#]*|[^\s/:@\"'?#]{8,})@")
_URL_QUERY = re.compile(rf"([?&](?:{_NAME}|key|token|sig|signature|auth)=)[^&\s\"'#]+", re.IGNORECASE)
_VALUE = r"(?!none\b|null\b|true\b|false\b|\*\*\*)[^\s\"',;&}\])]{6,}"
_NAMED = re.compile(rf"(\b(?:[A-Za-z0-9]+[_-])*{_NAME}[\"']?\s*(?:[=:]|=>)\s*[\"']?){_VALUE}", re.IGNORECASE)


def mask_secrets(text: str) -> str:
    """A text without secrets; again is no change.

    Example: ``"https://ana:hunter2@host/v1"`` becomes ``"https://ana:***@host/v1"``.
    """
    if not text:
        return text
    for value in _list_environment():
        text = text.replace(value, MASK)
    text = _URL_USER.sub(lambda found: f"{found[1]}{found[2]}:{MASK}@" if found[2] is not None else f"{found[1]}{MASK}@", text)
    text = _BEARER.sub(rf"\1\2{MASK}", _KEYS.sub(MASK, _URL_QUERY.sub(rf"\g<1>{MASK}", text)))
    return _NAMED.sub(rf"\g<1>{MASK}", text)


def mask_settings(value: Any, name: str = "") -> Any:
    """Settings as plain data without secrets: texts masked, and what stands under the name of a secret altogether."""
    if isinstance(value, Mapping):
        return {key: mask_settings(part, str(key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [mask_settings(part, name) for part in value]
    if not isinstance(value, str) or not value:
        return value
    return MASK if is_secret_name(name) and value.lower() not in ("none", "null") else mask_secrets(value)


def is_secret_name(name: str) -> bool:
    """Whether a setting or a variable of this name holds a secret, as OPENAI_API_KEY does, and api_key_env does not."""
    return _SECRET_NAME.search(name) is not None


def mask_log_records() -> None:
    """From now on, mask every record of Python's logging in this process, whoever writes it. Twice is once."""
    make = logging.getLogRecordFactory()
    if getattr(make, "masks_secrets", False):
        return

    def make_masked(*args: Any, **options: Any) -> logging.LogRecord:
        record = make(*args, **options)
        try:
            said = record.getMessage()
        except Exception:  # a record whose arguments do not fit its text is logging's own to report
            return record
        masked = mask_secrets(said)
        if masked != said:
            record.msg, record.args = masked, ()
        return record

    make_masked.masks_secrets = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make_masked)


def _list_environment() -> list[str]:
    """Secrets of this process's environment, longest first."""
    values = {value for name, value in os.environ.items() if is_secret_name(name) and len(value) >= MIN_SECRET_CHARS}
    return sorted(values, key=len, reverse=True)

"""What a bank keeps of its imports, so that the next one knows the same messages again. No part of any version; a copy of the bank takes it along.

::

    import.json   {"key", "user"}

`key` is random. Messages that came without an id of their own are named by hashes under this key, which reveal nothing of what they say to whoever sees an id
alone. Without the file they would come in a second time under other names.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from napmem_rl.atomic import write_file
from napmem_rl.errors import BankError

IMPORT_FILE = "import.json"
_KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportState:
    """What imports share."""

    key: str  # hex
    user: str | None = None  # how the user is called in chats between people

    @classmethod
    def new(cls) -> ImportState:
        """With a fresh key."""
        return cls(key=secrets.token_hex(_KEY_BYTES))


def load_import_state(bank_dir: Path) -> ImportState | None:
    """What earlier imports left; None where there was none.

    Raises:
        BankError: it is damaged.
    """
    path = Path(bank_dir) / IMPORT_FILE
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or set(fields) != {"key", "user"} or len(bytes.fromhex(fields["key"])) != _KEY_BYTES:
            raise ValueError("not an object of key and user")
        return ImportState(**fields)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        fix = "Restore it from a copy of the bank. Without it, messages of exports that have no ids would come in a second time."
        raise BankError.of(f"{path}", f"cannot be read ({type(error).__name__})", fix=fix) from error


def save_import_state(bank_dir: Path, state: ImportState) -> None:
    """Keep it with the bank."""
    write_file(Path(bank_dir) / IMPORT_FILE, json.dumps(asdict(state), ensure_ascii=False) + "\n")


def carry_import_state(bank_dir: Path, other: Path) -> None:
    """Let another directory of the same bank have it too."""
    state = load_import_state(bank_dir)
    if state is not None:
        save_import_state(other, state)

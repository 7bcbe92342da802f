"""The end of a forgetting: the old bank, which a new one took the place of, is removed; also where the process that should have done so was killed.

::

    erasing.json   {"leftovers": [names beside the bank's directory]}; only there between the switch to the new bank and the removal of the old one

It holds no content. Whoever opens the bank next, to read or to write, finishes what it names.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from napmem_rl.atomic import sync_path, write_file
from napmem_rl.errors import BankError

ERASING_FILE = "erasing.json"


def note_leftovers(bank_dir: Path, names: list[str]) -> None:
    """Say in a bank that is about to take its place which directories beside it must go then."""
    write_file(bank_dir / ERASING_FILE, json.dumps({"leftovers": names}) + "\n")


def finish_erasing(bank_dir: Path) -> bool:
    """Remove what an interrupted forgetting left beside a bank; whether there was anything. Several processes may do so at once.

    Raises:
        BankError: it cannot be removed; what to do by hand is said.
    """
    bank_dir = Path(bank_dir)
    note = bank_dir / ERASING_FILE
    try:
        names = json.loads(note.read_text(encoding="utf-8"))["leftovers"]
        if not isinstance(names, list):
            raise TypeError("not a list of names")
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = f"Remove the directories .{bank_dir.name}.new-… beside the bank, then this file."
        raise BankError.of(f"{note}", f"cannot be read ({type(error).__name__})", fix=fix) from error
    own = re.compile(rf"\.{re.escape(bank_dir.name)}\.(?:new|old)-[0-9a-f]{{32}}")
    for path in (bank_dir.parent / name for name in names if isinstance(name, str) and own.fullmatch(name)):
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            raise BankError.of(f"{path}", "holds content that was to be forgotten, and cannot be removed", fix="Remove it by hand; nothing uses it.")
    sync_path(bank_dir.parent)
    note.unlink(missing_ok=True)
    sync_path(bank_dir)
    return True

"""The parser of commands that have subcommands: argparse, which also says what a misspelt one may have meant."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import NoReturn

_INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class CommandParser(argparse.ArgumentParser):
    """`ArgumentParser` whose errors end with the nearest choice, where one is near. Its subcommands are of this class too.

    Example: "argument AREA: invalid choice: 'scor' (choose from 'bank', 'score'). Did you mean score?"
    """

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with status 2."""
        found = _INVALID_CHOICE.search(message)
        near = difflib.get_close_matches(found[1], re.findall(r"[^', ]+", found[2]), n=1) if found else []
        super().error(f"{message}. Did you mean {near[0]}?" if near else message)

"""Whose conversations an export holds: exports of shared accounts hold those of several people, and a bank is one user's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from napmem_rl.data.chat_exports.claude import read_account
from napmem_rl.data.chat_exports.files import ExportFile
from napmem_rl.data.chat_exports.values import as_id, as_list, as_text
from napmem_rl.errors import DataError

_MAX_USERS_BYTES = 16 << 20


@dataclass(slots=True)
class Accounts:
    """The accounts of one export, and the one that is imported."""

    file: ExportFile
    user: str | None  # the name that was asked for
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # account -> names it goes by, the full name first
    chosen: str | None = None

    @classmethod
    def of(cls, file: ExportFile, user: str | None) -> Accounts:
        """The accounts that stand in `users.json` beside a file, if there is one; the chosen one is that which `user` names, if it names one."""
        names = {account: found for sibling in file.siblings for account, found in _read_users(sibling).items()}
        asked = None if user is None else user.casefold()
        chosen = next((account for account, found in names.items() if asked in (account.casefold(), *map(str.casefold, found))), None)
        return cls(file=file, user=user, names=names, chosen=chosen)

    def admits(self, conversation: Mapping[str, Any]) -> bool:
        """Whether a conversation is of the chosen account; without a choice, the first one that comes is it.

        Raises:
            DataError: another account comes, and none was chosen.
        """
        account = read_account(conversation)
        if account is None:
            return True
        if self.chosen is None:
            self.chosen = account
            return True
        if account == self.chosen:
            return True
        if self.user is not None and self._is_named(self.chosen):
            return False
        shown = ", ".join(found[0] if found else account for account, found in {self.chosen: (), account: (), **self.names}.items())
        fix = "A bank is one user's: say whose with --user, a name or an id of these."
        raise DataError.of(self.file.name, "holds the conversations of several accounts", got=self.user, expected=f"one of: {shown}", fix=fix)

    @property
    def user_name(self) -> str | None:
        """How the user is called."""
        found = self.names.get(self.chosen or "", ())
        return found[0] if found else self.user

    def _is_named(self, account: str) -> bool:
        asked = (self.user or "").casefold()
        return asked in (account.casefold(), *map(str.casefold, self.names.get(account, ())))


def _read_users(file: ExportFile) -> dict[str, tuple[str, ...]]:
    """Names by account id; nothing of a file that is not as expected."""
    with file.read() as stream:
        content = stream.read(_MAX_USERS_BYTES)
    try:
        users = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    found = {}
    for user in as_list(users):
        account = as_id(user.get("uuid")) if isinstance(user, dict) else None
        if account is not None:
            found[account] = tuple(name for key in ("full_name", "name", "email_address", "email") if (name := as_text(user.get(key)).strip()))
    return found

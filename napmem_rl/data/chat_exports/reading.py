"""All conversations of some files, whatever their formats: which reader takes which, and what becomes of the rest."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from napmem_rl.data.chat_exports import claude, whatsapp
from napmem_rl.data.chat_exports.accounts import Accounts
from napmem_rl.data.chat_exports.conversation import Conversation
from napmem_rl.data.chat_exports.detect import FORMATS, JSON_FORMATS, JsonFormat, detect_format, find_json_format
from napmem_rl.data.chat_exports.files import ExportFile
from napmem_rl.data.chat_exports.json_stream import read_items
from napmem_rl.data.chat_exports.placing import GAP_HOURS
from napmem_rl.data.chat_exports.tally import LeftOut, LostConversation, Note, Tally
from napmem_rl.data.chat_exports.whatsapp_lines import ORDERS
from napmem_rl.data.chat_exports.whatsapp_text import ChatWords
from napmem_rl.data.chat_exports.whatsapp_words import LANGUAGES
from napmem_rl.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """What an export does not say by itself."""

    format: str | None = None  # one of `detect.FORMATS`; None: by what the files look like
    user: str | None = None  # the user's name: in a chat between people that of a writer, else how the user is to be called
    time_zone: str | None = None  # of wall times in a chat that names none, e.g. "Europe/Lisbon"; None keeps them as they are
    date_order: str | None = None  # of days and months in a chat: dmy, mdy or ymd; None: by its dates
    language: str | None = None  # of the phone that a chat was exported on; None: any that is known
    gap_hours: float = GAP_HOURS  # of silence, after which another session begins
    partial: bool = False  # take what stands before the place at which a file is cut off

    def check(self) -> None:
        """Raises ConfigError for a value that is none of those that there are."""
        choices = (("--format", self.format, FORMATS), ("--date-order", self.date_order, ORDERS), ("--language", self.language, LANGUAGES))
        for name, value, allowed in choices:
            if value is not None and value not in allowed:
                raise ConfigError.of(name, "is unknown", got=value, expected=f"one of {', '.join(allowed)}")
        if self.time_zone is not None and self.time_zone not in available_timezones():
            near = difflib.get_close_matches(self.time_zone, sorted(available_timezones()), n=3, cutoff=0.5)
            raise ConfigError.of("--time-zone", "is unknown", got=self.time_zone, expected=" or ".join(near) or "a name such as Europe/Lisbon, or UTC")
        if not 0 < self.gap_hours < 1e6:
            raise ConfigError.of("--gap-hours", "is no number of hours", got=self.gap_hours)


@dataclass(frozen=True, kw_only=True, slots=True)
class _PlannedFile:
    """A file, its format and, of a chat between people, how it is read."""

    file: ExportFile
    format: str
    chat: whatsapp.ChatSettings | None


class ExportReader:
    """Reads the files of one import. `open` finds out what they are; `conversations` gives what they hold."""

    def __init__(self, files: Sequence[_PlannedFile], user: str | None, options: ReadOptions, tally: Tally) -> None:
        """For `open`."""
        self._files, self._options, self._tally = files, options, tally
        self.user = user

    @classmethod
    def open(cls, files: Sequence[ExportFile], options: ReadOptions, tally: Tally, *, known_user: str | None = None) -> ExportReader:
        """Find each file's format, and what its format must know before it is read.

        Args:
            files: what may hold chats.
            options: checked here.
            tally: takes which files were read and which hold no chats.
            known_user: how the bank's user was called in an earlier import.

        Raises:
            ConfigError: an option that is none, or that would do nothing.
            DataError: no file holds chats, or one that should does not; dates that can be read in two ways; a user who cannot be told.
        """
        options.check()
        chosen = [(file, name) for file in files if (name := _find_format(file, options, tally)) is not None]
        if not chosen:
            names = ", ".join(file.name for file in files[:5])
            raise DataError.of(f"export {names}", "holds no chats", expected=f"one of {', '.join(FORMATS)}", fix="Say which with --format.")
        chats = [file for file, name in chosen if name == whatsapp.FORMAT]
        idle = [name for name in ("time_zone", "date_order", "language") if getattr(options, name) is not None]
        if idle and not chats:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
            raise ConfigError.of(flags, "would do nothing: only WhatsApp's chats need it", fix="Leave it out; other exports hold moments, which become UTC.")
        tally.files = [(file.name, name) for file, name in chosen]
        plans = iter(_plan_chats(chats, options, known_user))
        planned = [_PlannedFile(file=file, format=name, chat=next(plans) if name == whatsapp.FORMAT else None) for file, name in chosen]
        user = next((one.chat.user for one in planned if one.chat is not None and one.chat.user), options.user or known_user)
        return cls(planned, user, options, tally)

    def conversations(self) -> Iterator[Conversation]:
        """Everything, file by file.

        Raises:
            DataError: a file is cut off or broken (unless `partial`), or holds the conversations of several accounts.
        """
        for planned in self._files:
            if planned.chat is not None:
                yield from whatsapp.read_chat(planned.file, planned.chat, self._tally)
                continue
            try:
                yield from self._read_json(planned.file, next(one for one in JSON_FORMATS if one.name == planned.format))
            except DataError as error:
                if not self._options.partial or "--partial" not in error.message:
                    raise
                self._tally.problems.append(error.message)

    def _read_json(self, file: ExportFile, expected: JsonFormat) -> Iterator[Conversation]:
        accounts = Accounts.of(file, self.user)
        for where, value in read_items(file.read, file.name, on_replaced=lambda number: _note_replaced(number, file, self._tally)):
            if isinstance(value, ValueError):
                self._tally.lose_conversation(LostConversation.NOT_JSON, where)
                continue
            reader = expected if expected.is_conversation(value) else find_json_format(value)
            if reader is None:
                self._tally.lose_conversation(LostConversation.NOT_A_CONVERSATION, where)
                continue
            if reader.name == claude.FORMAT and not accounts.admits(value):
                self._leave_out(value, where)
                continue
            conversation = self._read_one(reader, value, where, accounts.user_name if reader.name == claude.FORMAT else self.user)
            if conversation is not None:
                yield conversation

    def _read_one(self, reader: JsonFormat, value: Any, where: str, user: str | None) -> Conversation | None:
        """One conversation. What nobody has foreseen in it costs that conversation alone."""
        part = Tally()
        try:
            conversation = reader.read(value, where, part, user)
        except Exception as error:  # the boundary to files of other people's programs
            self._tally.lose_conversation(LostConversation.UNREADABLE, f"{where} ({type(error).__name__})")
            return None
        self._tally.absorb(part)
        return conversation

    def _leave_out(self, value: dict, where: str) -> None:
        """A conversation of another account."""
        self._tally.num_conversations += 1
        for number in range(1, len(value["chat_messages"]) + 1):
            self._tally.read_message()
            self._tally.leave_out(LeftOut.OTHER_ACCOUNT, f"{where}, message {number}")


def _note_replaced(number: int, file: ExportFile, tally: Tally) -> None:
    if number:
        tally.note(Note.BROKEN_CHARACTERS, f"{file.name}: {number:,} bytes")


def _find_format(file: ExportFile, options: ReadOptions, tally: Tally) -> str | None:
    """A file's format; None for one beside the chats, which is noted."""
    if options.format is not None:
        return options.format
    try:
        found = detect_format(file)
    except DataError:
        if file.is_expected:
            raise
        found = None
    if found is None and file.is_expected:
        fix = "Say which it is with --format, or leave the file out."
        raise DataError.of(file.name, "is no export that is known, or holds no conversations", expected=f"one of {', '.join(FORMATS)}", fix=fix)
    if found is None:
        tally.other_files.append(file.name)
    return found


def _plan_chats(chats: Sequence[ExportFile], options: ReadOptions, known_user: str | None) -> list[whatsapp.ChatSettings]:
    """How each chat is read."""
    if not chats:
        return []
    words = ChatWords(options.language)
    surveys = [(file, whatsapp.survey_chat(file, words)) for file in chats]
    for file, survey in surveys:
        if not survey.orders.num_dates:
            raise DataError.of(file.name, "is no chat of WhatsApp: no line begins with a date and a time", expected="12/04/2024, 21:06 - Ana: wow")
    orders = [whatsapp.choose_order(file, survey, options.date_order) for file, survey in surveys]
    user = whatsapp.choose_user(surveys, options.user, known_user)
    zone = None if options.time_zone is None else ZoneInfo(options.time_zone)
    return [
        whatsapp.ChatSettings(order=order, user=user, clock_zone=zone, words=words, names=frozenset(survey.names))
        for order, (_, survey) in zip(orders, surveys, strict=True)
    ]

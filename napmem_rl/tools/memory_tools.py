"""The five memory tools over one user's bank (NapMem section 3.3, appendix table 7).

A `MemoryToolbox` belongs to one episode: it knows the moment of the question and how many tokens of results the episode has left. The bank itself is a
read-only snapshot that many episodes share.

What a policy may see:

- Nothing later than `asked_at`. Searches leave later items out; a later id is unknown, as if it were not there; a topic file or the profile sums up all that
  was known when it was last written, so one written after `asked_at` is refused as a whole and not listed.
- Text within limits. A result above its limit loses whole items, the worst matches first, and says so; once the episode's tokens are used up results say
  that alone. That last sentence, and no more, may exceed the episode's limit.
- One item a line: line breaks inside a memory become spaces, so that no memory can pose as another.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from napmem_rl.errors import ConfigError, ToolError
from napmem_rl.memory.pyramid import PROFILE_FILE
from napmem_rl.schema import Level, Message, Profile, Record, ToolCall, ToolFailure, ToolResult, Track
from napmem_rl.tools.result_text import FittedText, Line, build_cut_notice, fit_lines, render_file, render_message, render_record
from napmem_rl.tools.spec import MEMORY_TOOLS, ToolSpec, check_arguments, find_tool, shorten

_PROFILE_ID = "profile"
READ_FILE = "read_file"
_LEVELS = {
    "search_records": Level.RECORD,
    "get_records": Level.RECORD,
    "search_conversation": Level.RAW,
    "get_conversation": Level.RAW,
}


class BankReader(Protocol):
    """What the tools need of a memory bank; `napmem_rl.memory.bank.MemoryBank` is one."""

    messages: Sequence[Message]
    records: Sequence[Record]
    tracks: tuple[Track, ...]
    profile: Profile
    file_names: tuple[str, ...]

    def message(self, message_id: str) -> Message | None:
        """The message of this id, or None."""
        ...

    def record(self, record_id: str) -> Record | None:
        """The record of this id, or None."""
        ...

    def position(self, item_id: str) -> int | None:
        """Where a message or record of this id stands among all of its level, or None."""
        ...

    def file(self, name: str) -> str | None:
        """The Markdown file of exactly this name, or None."""
        ...

    def provenance(self, item_id: str) -> tuple[str, ...]:
        """Ids of the messages an item rests on."""
        ...

    def search_records(self, query: str, *, k: int, before: str | None) -> list[Record]:
        """The k best records not later than `before`, best first."""
        ...

    def search_messages(self, query: str, *, k: int, before: str | None) -> list[Message]:
        """The k best messages not later than `before`, best first."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolLimits:
    """Limits of tool results; tokens are the policy's own."""

    top_k: int = 5  # items a search returns
    max_result_tokens: int = 512  # of one result
    max_episode_tokens: int = 4096  # of all results of an episode together

    def __post_init__(self) -> None:
        for name in ("top_k", "max_result_tokens", "max_episode_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError.of(f"tool limit {name}", "is too small", got=getattr(self, name), expected="at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What a tool found, before any limit; most important line first. `links` are ids that a line may show as evidence instead of being an item."""

    lines: tuple[Line, ...]
    failure: ToolFailure | None = None
    noun: str = "item"
    file_item_id: str | None = None
    links: tuple[str, ...] = ()


class MemoryToolbox:
    """The memory tools of one episode. Await its calls one after another: the order decides which of them get the tokens that are left."""

    def __init__(
        self, bank: BankReader, *, asked_at: str | None, limits: ToolLimits, count_tokens: Callable[[str], int], tools: Sequence[ToolSpec] = MEMORY_TOOLS
    ) -> None:
        """Args:
            bank: the user's memory.
            asked_at: moment of the question, ISO 8601; None where everything may be seen.
            limits: limits of results.
            count_tokens: tokens of a text as the policy will read it, e.g. ``lambda text: len(encode_plain(tokenizer, text))``.
            tools: those of `MEMORY_TOOLS` that the policy is offered; no other can be called.

        Raises:
            ConfigError: `max_result_tokens` does not even hold the notice that something was cut.
        """
        self._bank = bank
        self._tools = tuple(tools)
        self._asked_at = asked_at
        self._limits = limits
        self._count_tokens = count_tokens
        self._tokens_used = 0
        self._notice_tokens = max(count_tokens(build_cut_notice(9999, "item", cause, is_first_cut=True)) for cause in self._causes())
        if self._notice_tokens > limits.max_result_tokens:
            expected = f"at least {self._notice_tokens}, which the notice of a cut result takes"
            raise ConfigError.of("agent.max_result_tokens", "is too small", got=limits.max_result_tokens, expected=expected)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The files that `read_file` can show at the moment of the question; none where that tool is not offered."""
        if find_tool(READ_FILE, self._tools) is None:
            return ()
        return tuple(name for name in self._bank.file_names if (item := self._file_item(name)) is not None and self._is_visible(item.time))

    @property
    def tokens_left(self) -> int:
        """Tokens that the episode's results may still take."""
        return max(0, self._limits.max_episode_tokens - self._tokens_used)

    async def call(self, call: ToolCall) -> ToolResult:
        """Run one call that passed the parser. Searches run in a thread.

        Returns:
            the result. `is_success` is False for a readable failure: nothing found, no known id, unknown or refused file, no tokens left.
        Raises:
            ToolError: the bank or the encoder broke, or the call never passed its schema; our fault either way.
        """
        started = time.perf_counter()
        spec = find_tool(call.name, self._tools)
        problem = f"unknown tool {call.name!r}" if spec is None else check_arguments(spec, call.arguments)
        if problem is not None:
            raise ToolError.of(f"tool call {call.name}", problem, fix="Parse calls with parse_turn, which refuses them.")
        try:
            found = await self._find(call)
            return self._build_result(call, found, started)
        except Exception as error:  # boundary: whatever a bank, an encoder or a tokenizer raises is a failure of the tool
            raise ToolError.of(f"tool {call.name}", f"failed ({type(error).__name__}: {error})", got=dict(call.arguments)) from error

    async def _find(self, call: ToolCall) -> _Found:
        arguments = call.arguments
        if call.name == "search_records":
            return await asyncio.to_thread(self._search_records, arguments["query"])
        if call.name == "search_conversation":
            return await asyncio.to_thread(self._search_messages, arguments["query"])
        if call.name == "get_records":
            return self._get_records(arguments["record_ids"])
        if call.name == "get_conversation":
            return self._get_messages(arguments["message_ids"])
        return self._read_file(arguments["file_name"])

    def _search_records(self, query: str) -> _Found:
        found = self._bank.search_records(query, k=self._limits.top_k, before=self._asked_at)
        lines = self._record_lines([record for record in found if self._is_visible(record.time)])
        return _Found(lines=lines or (Line(text="No records found."),), failure=None if lines else ToolFailure.NOTHING_FOUND)

    def _search_messages(self, query: str) -> _Found:
        found = self._bank.search_messages(query, k=self._limits.top_k, before=self._asked_at)
        lines = self._message_lines([message for message in found if self._is_visible(message.time)])
        return _Found(lines=lines or (Line(text="No messages found."),), failure=None if lines else ToolFailure.NOTHING_FOUND)

    def _get_records(self, ids: Sequence[str]) -> _Found:
        found = {item_id: record for item_id in ids if (record := self._bank.record(item_id)) is not None and self._is_visible(record.time)}
        lines = self._record_lines(list(found.values()))
        return _Found(lines=lines + _unknown_lines("record", ids, found), failure=None if found else ToolFailure.UNKNOWN_ID)

    def _get_messages(self, ids: Sequence[str]) -> _Found:
        found = {item_id: message for item_id in ids if (message := self._bank.message(item_id)) is not None and self._is_visible(message.time)}
        lines = self._message_lines(list(found.values()))
        return _Found(lines=lines + _unknown_lines("message", ids, found), failure=None if found else ToolFailure.UNKNOWN_ID)

    def _read_file(self, name: str) -> _Found:
        text, item = self._bank.file(name), self._file_item(name)
        if text is None or item is None:
            return _failure(ToolFailure.UNKNOWN_FILE, f"Unknown file {shorten(name)}. Files: {', '.join(self.file_names) or 'none'}.")
        if not self._is_visible(item.time):
            text = f"File {name} was last updated after the question was asked, so it cannot be read. Files: {', '.join(self.file_names) or 'none'}."
            return _failure(ToolFailure.FILE_TOO_NEW, text)
        rendered = render_file(item, text)
        if not rendered:
            return _failure(ToolFailure.EMPTY_FILE, f"File {name} is empty.")
        item_id = item.track_id if isinstance(item, Track) else _PROFILE_ID
        links = item.record_ids if isinstance(item, Track) else item.source_ids
        lines = tuple(Line(text=line, position=position) for position, line in enumerate(rendered))
        return _Found(lines=lines, noun="line", file_item_id=item_id, links=links)

    def _record_lines(self, records: Sequence[Record]) -> tuple[Line, ...]:
        """Lines in the order given, positioned by time and, within one moment, by the order of the bank."""
        ordered = sorted(records, key=lambda record: (record.time, self._bank.position(record.record_id)))
        position = {record.record_id: index for index, record in enumerate(ordered)}
        return tuple(Line(text=render_record(record), position=position[record.record_id], item_id=record.record_id) for record in records)

    def _message_lines(self, messages: Sequence[Message]) -> tuple[Line, ...]:
        """See `_record_lines`."""
        ordered = sorted(messages, key=lambda message: (message.time, self._bank.position(message.message_id)))
        position = {message.message_id: index for index, message in enumerate(ordered)}
        return tuple(Line(text=render_message(message), position=position[message.message_id], item_id=message.message_id) for message in messages)

    def _build_result(self, call: ToolCall, found: _Found, started: float) -> ToolResult:
        """Apply the limits and note what is really shown."""
        fitted = self._fit(found)
        item_ids, message_ids = self._shown_ids(found, fitted) if fitted is not None else ((), ())
        text = fitted.text if fitted is not None else self._exhausted_text()
        failure = found.failure if fitted is not None else ToolFailure.NO_TOKENS_LEFT
        if failure is None and not item_ids:
            failure = ToolFailure.NO_TOKENS_LEFT
        self._tokens_used = self._limits.max_episode_tokens if fitted is None else self._tokens_used + self._count_tokens(text)
        return ToolResult(
            call=call,
            text=text,
            is_success=failure is None,
            failure=failure,
            level=_LEVELS.get(call.name) or (Level.PROFILE if call.arguments["file_name"] == PROFILE_FILE else Level.TRACK),
            item_ids=item_ids,
            message_ids=message_ids,
            latency_s=time.perf_counter() - started,
            is_truncated=fitted is None or fitted.is_truncated,
        )

    def _fit(self, found: _Found) -> FittedText | None:
        """The text within both limits; None where the episode's tokens are used up."""
        if self.tokens_left < self._notice_tokens:
            return None
        result_cause, episode_cause = self._causes()
        is_episode = self.tokens_left < self._limits.max_result_tokens
        limit, cause = (self.tokens_left, episode_cause) if is_episode else (self._limits.max_result_tokens, result_cause)
        return fit_lines(found.lines, limit=limit, count_tokens=self._count_tokens, noun=found.noun, cause=cause)

    def _shown_ids(self, found: _Found, fitted: FittedText) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(ids of the memories shown, ids of the messages they rest on). Of a cut file only the evidence links that are left count."""
        if found.file_item_id is None:
            items = sources = tuple(line.item_id for line in fitted.lines if line.item_id is not None)
        else:
            items = (found.file_item_id,) if fitted.lines else ()
            sources = items if not fitted.is_truncated else tuple(link for link in found.links if _is_named(link, fitted.lines))
        message_ids = dict.fromkeys(message_id for source in sources for message_id in self._bank.provenance(source))
        return items, tuple(message_ids)

    def _file_item(self, name: str) -> Track | Profile | None:
        if name == PROFILE_FILE:
            return self._bank.profile
        return next((track for track in self._bank.tracks if track.file_name == name), None)

    def _is_visible(self, moment: str) -> bool:
        return self._asked_at is None or moment <= self._asked_at

    def _causes(self) -> tuple[str, str]:
        """Which limit cut a result, in words: one result's, the episode's."""
        limits = self._limits
        return f"result limit of {limits.max_result_tokens} tokens", f"episode limit of {limits.max_episode_tokens} tokens"

    def _exhausted_text(self) -> str:
        return f"No result: the {self._causes()[1]} for tool results is used up. Answer with what you have."


def _failure(failure: ToolFailure, text: str) -> _Found:
    return _Found(lines=(Line(text=text),), failure=failure)


def _unknown_lines(noun: str, ids: Sequence[str], found: Mapping[str, object]) -> tuple[Line, ...]:
    """One line for each id that the bank does not hold, after all items."""
    unknown = [item_id for item_id in dict.fromkeys(ids) if item_id not in found]
    return tuple(Line(text=f"Unknown {noun} id {shorten(item_id)}.", position=len(ids) + index) for index, item_id in enumerate(unknown))


def _is_named(item_id: str, lines: Sequence[Line]) -> bool:
    """Whether an evidence link such as [rec:7] is in the lines; rec:7 is not in [rec:77]."""
    pattern = re.compile(rf"(?<![\w:.-]){re.escape(item_id)}(?![\w:-])")
    return any(pattern.search(line.text) for line in lines)

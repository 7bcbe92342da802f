"""The one token list of an episode, and text that can never become a control token.

`TokenContext` assembles an episode's tokens: the chat template's first prompt, then the ids exactly as the engine sampled them, then tool results in the
template's own wrapper. Nothing sampled is ever decoded and encoded again, so each prompt starts with the previous prompt and response.

Text of users and memories is data: `encode_plain` tokenises it so that no added token (`<|im_end|>`, `<tool_call>`, ...) comes out of it, whatever it says.

Everything around the data (headers, end of turn, the wrapper of tool results, the opening of the next turn) comes from rendering the chat template with
placeholders and splitting there. Where data holds no added token, the ids equal those of tokenising the rendered conversation as a whole.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from napmem_rl.errors import BackendError, ConfigError, PolicyOutputError
from napmem_rl.tools.spec import ToolSpec

_PROBE = 'q"q'  # shows whether a template writes a content as it is or as a JSON string
_CONTROL_ROLES = ("eos_token_id", "bos_token_id", "pad_token_id", "cls_token_id", "sep_token_id", "mask_token_id")


def encode_plain(tokenizer: Any, text: str) -> list[int]:
    """Tokenise text as data: no id of an added token, special or not, can come out.

    The one exception is the unknown token of a vocabulary that has one (word-level, WordPiece), where it plays no other part: it is what such a vocabulary
    makes of ordinary words.

    Args:
        tokenizer: a fast HuggingFace tokenizer.
        text: any text.
    Returns:
        token ids [n]. For byte-level BPE without a normaliser they decode to exactly `text`.
    Raises:
        ConfigError: the tokenizer is not a fast one.
        BackendError: a character has no token but an added one.
    """
    return _vocabulary(tokenizer).encode_plain(text)


class TokenContext:
    """The token list of one episode: `start`, then `append_response` and `append_tool_results` in turn. Not shared between episodes."""

    def __init__(self, tokenizer: Any, *, template_kwargs: Mapping[str, Any] | None = None) -> None:
        """Args:
            tokenizer: a fast HuggingFace tokenizer with a chat template that knows the role "tool".
            template_kwargs: passed on to the template, e.g. ``{"enable_thinking": False}``.

        Raises:
            ConfigError: no fast tokenizer, no chat template, or a template that cannot be split.
        """
        self._vocabulary = _vocabulary(tokenizer)
        self._tokenizer = tokenizer
        self._template = _Template(tokenizer, dict(template_kwargs or {}))
        self._end_id = self._template.tool_wrapper(1).end_id
        self._ids: list[int] = []
        self._mask: list[int] = []
        self._is_assistant_next = False

    @property
    def token_ids(self) -> list[int]:
        """All tokens so far [L], a copy."""
        return list(self._ids)

    @property
    def response_mask(self) -> list[int]:
        """1 exactly where the policy sampled [L], a copy."""
        return list(self._mask)

    @property
    def end_of_turn_id(self) -> int:
        """The token with which the template closes an assistant turn."""
        return self._end_id

    @property
    def is_turn_closed(self) -> bool:
        """Whether the last response ended its turn; tool results can follow only then."""
        return bool(self._ids) and not self._is_assistant_next and self._ids[-1] == self._end_id

    def start(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = ()) -> list[int]:
        """Begin with the first prompt, up to where the assistant speaks. User messages are tokenised as data; the system message is ours.

        Returns:
            the token list [P].
        Raises:
            ConfigError: the template refuses the messages.
        """
        assert not self._ids, "TokenContext.start: this context has been started; build one for each episode"
        is_data = [message["role"] == "user" and isinstance(message["content"], str) for message in messages]
        slots = [f"napmem-slot-{index}-{_PROBE}" for index in range(sum(is_data))]
        waiting = iter(slots)
        shown = [{**message, "content": next(waiting)} if is_text else dict(message) for message, is_text in zip(messages, is_data, strict=True)]
        rendered = self._template.render(shown, tools=[tool.as_openai() for tool in tools] or None)
        wrapper = self._vocabulary.build_wrapper(rendered, slots)
        texts = [message["content"] for message, is_text in zip(messages, is_data, strict=True) if is_text]
        self._extend(wrapper.fill(texts, self._vocabulary), sampled=0)
        self._is_assistant_next = True
        return self.token_ids

    def append_response(self, ids: Sequence[int]) -> None:
        """Append an assistant turn exactly as the engine sampled it, end-of-turn token included where it sampled one."""
        assert self._is_assistant_next, "TokenContext.append_response: a response follows `start` or tool results"
        if not ids:
            raise BackendError.of("response", "holds no tokens", expected="at least the end-of-turn token")
        self._extend([int(token) for token in ids], sampled=1)
        self._is_assistant_next = False

    def append_tool_results(self, texts: Sequence[str]) -> list[int]:
        """Append the results of the last response's calls, one text a call, and the opening of the next assistant turn.

        Returns:
            the ids that were appended.
        Raises:
            PolicyOutputError: the last response stopped with another special token than the template's end of turn.
            BackendError: it stopped with neither: it was cut at a limit, or the engine left the token out.
        """
        assert texts, "TokenContext.append_tool_results: at least one result"
        assert self._ids and not self._is_assistant_next, "TokenContext.append_tool_results: results follow a response"
        if not self.is_turn_closed:
            raise self._unclosed_turn()
        added = self._template.tool_wrapper(len(texts)).fill(texts, self._vocabulary)
        self._extend(added, sampled=0)
        self._is_assistant_next = True
        return added

    def _extend(self, ids: Sequence[int], *, sampled: int) -> None:
        self._ids.extend(ids)
        self._mask.extend([sampled] * len(ids))

    def _unclosed_turn(self) -> PolicyOutputError | BackendError:
        last, end = (self._tokenizer.convert_ids_to_tokens(token) for token in (self._ids[-1], self._end_id))
        if self._ids[-1] in self._tokenizer.all_special_ids:
            return PolicyOutputError.of("turn", "ends with another special token than the end of turn", got=last, expected=repr(end))
        fix = "End the episode where a turn is cut at a length limit, and let the engine return the stop token."
        return BackendError.of("turn", "does not end with the end-of-turn token, so no tool result can follow", got=last, expected=repr(end), fix=fix)


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place of one text: plain text of the wrapper around it, tokenised together with it, then the fixed ids up to the next place."""

    before: str
    after: str
    tail_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A rendered template with places for texts. `end_id` is the end-of-turn token that was taken off its front, or -1."""

    head_ids: tuple[int, ...]
    slots: tuple[_Slot, ...]
    is_json: bool  # the template writes contents as JSON strings
    end_id: int = -1

    def fill(self, texts: Sequence[str], vocabulary: _Vocabulary) -> list[int]:
        """Ids of the whole with the texts in their places."""
        ids = list(self.head_ids)
        for slot, text in zip(self.slots, texts, strict=True):
            shown = json.dumps(text, ensure_ascii=False)[1:-1] if self.is_json else text
            ids += vocabulary.encode_plain(slot.before + shown + slot.after)
            ids += slot.tail_ids
        return ids


class _Vocabulary:
    """Copies of a tokenizer with and without its added tokens, and the ids that data must not produce. Built once for each tokenizer; safe in threads."""

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or not hasattr(backend, "to_str"):
            raise ConfigError.of("tokenizer", "is not a fast HuggingFace tokenizer", got=type(tokenizer).__name__, fix="Load it with AutoTokenizer.")
        data = json.loads(backend.to_str()) | {"truncation": None, "padding": None}  # others may have set them on the shared one
        self._full = type(backend).from_str(json.dumps(data))
        self._plain = type(backend).from_str(json.dumps(data | {"added_tokens": []}))
        self._unknown_id = self._find_unknown(tokenizer, backend)
        added = {int(token) for token in backend.get_added_tokens_decoder()}
        self.control_ids = frozenset(added | set(tokenizer.all_special_ids)) - {self._unknown_id}
        self.wrappers: dict[tuple[str, str, int], _Wrapper] = {}

    def encode_plain(self, text: str) -> list[int]:
        """See the function of the same name."""
        ids = self._plain.encode(text, add_special_tokens=False).ids
        if self.control_ids.isdisjoint(ids):
            return ids
        ids = [token for piece in self._break_up(text) for token in self._encode_harmless(piece)]
        assert self.control_ids.isdisjoint(ids), "encode_plain: a control token came out of data"
        return ids

    def build_wrapper(self, rendered: str, marks: Sequence[str], *, takes_end: bool = False) -> _Wrapper:
        """Split a rendered template at its marks, which stand in it in this order.

        Args:
            takes_end: the first token is an end of turn, which the engine samples; take it off.
        """
        pieces, is_json = _split(rendered, marks)
        head = pieces[0].lstrip() if takes_end else pieces[0]
        encoded = self._full.encode(head, add_special_tokens=False)
        controls = [index for index, token in enumerate(encoded.ids) if token in self.control_ids]
        if takes_end and controls[:1] != [0]:
            expected = "an added token such as <|im_end|>"
            raise ConfigError.of("chat template", "closes an assistant turn with no token of its own", got=head[:40], expected=expected)
        if not marks:
            return _Wrapper(head_ids=tuple(encoded.ids), slots=(), is_json=False)
        cut = controls[-1] + 1 if controls else 0
        before = head[encoded.offsets[cut - 1][1] :] if cut else head
        slots = []
        for piece in pieces[1:]:
            after, tail_ids, next_before = self._split_piece(piece)
            slots.append(_Slot(before=before, after=after, tail_ids=tail_ids))
            before = next_before
        slots[-1] = self._close(slots[-1], before)
        end_id = encoded.ids[0] if takes_end else -1
        return _Wrapper(head_ids=tuple(encoded.ids[1 if takes_end else 0 : cut]), slots=tuple(slots), is_json=is_json, end_id=end_id)

    def _split_piece(self, piece: str) -> tuple[str, tuple[int, ...], str]:
        """(plain text before the first control token, ids from the first to the last control token, plain text after it)."""
        encoded = self._full.encode(piece, add_special_tokens=False)
        controls = [index for index, token in enumerate(encoded.ids) if token in self.control_ids]
        if not controls:
            return piece, (), ""
        first, last = controls[0], controls[-1]
        return piece[: encoded.offsets[first][0]], tuple(encoded.ids[first : last + 1]), piece[encoded.offsets[last][1] :]

    def _close(self, slot: _Slot, rest: str) -> _Slot:
        """The last place, with the plain text that follows the last control token (such as the name of the role that speaks next)."""
        return _Slot(before=slot.before, after=slot.after, tail_ids=slot.tail_ids + tuple(self._full.encode(rest, add_special_tokens=False).ids))

    def _break_up(self, text: str) -> Iterator[str]:
        """Cut the text inside every token that must not be, again and again, until none is left or a piece is one character."""
        waiting = [text]
        while waiting:
            piece = waiting.pop()
            encoded = self._plain.encode(piece, add_special_tokens=False)
            spans = [span for token, span in zip(encoded.ids, encoded.offsets, strict=True) if token in self.control_ids]
            if not spans or len(piece) == 1:
                yield piece
                continue
            cuts = sorted({cut for start, end in spans for cut in (start, start + 1, end) if 0 < cut < len(piece)}) or [1]
            bounds = [0, *cuts, len(piece)]
            waiting += [piece[start:end] for start, end in zip(bounds, bounds[1:], strict=False)][::-1]

    def _encode_harmless(self, piece: str) -> list[int]:
        ids = self._plain.encode(piece, add_special_tokens=False).ids
        if self.control_ids.isdisjoint(ids):
            return ids
        if self._unknown_id is None:
            raise BackendError.of("tokenizer", f"has no token for the character {piece!r} but an added one", fix="Take it out of the tokenizer's added tokens.")
        return [self._unknown_id if token in self.control_ids else token for token in ids]

    @staticmethod
    def _find_unknown(tokenizer: Any, backend: Any) -> int | None:
        """The id that this vocabulary gives to unknown words; None where it needs none or where the same token has another part to play."""
        token = getattr(backend.model, "unk_token", None)
        token_id = backend.token_to_id(token) if token is not None else None
        others = {getattr(tokenizer, name, None) for name in _CONTROL_ROLES}
        return None if token_id in others else token_id


class _Template:
    """A tokenizer's chat template with fixed arguments."""

    def __init__(self, tokenizer: Any, kwargs: Mapping[str, Any]) -> None:
        if not getattr(tokenizer, "chat_template", None):
            fix = "Use an instruction-tuned model, or set tokenizer.chat_template."
            raise ConfigError.of("tokenizer", "has no chat template", got=getattr(tokenizer, "name_or_path", None), fix=fix)
        self._tokenizer = tokenizer
        self._kwargs = kwargs

    @cached_property
    def _key(self) -> tuple[str, str]:
        return repr(self._tokenizer.chat_template), repr(sorted(self._kwargs.items(), key=lambda item: item[0]))

    def render(self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The conversation as text, up to where the assistant speaks."""
        kwargs = {**self._kwargs, "tokenize": False, "add_generation_prompt": True}
        try:
            return self._tokenizer.apply_chat_template(list(messages), tools=tools, **kwargs)
        except Exception as error:  # boundary: a template is somebody's program and raises what it likes
            roles = [message["role"] for message in messages]
            raise ConfigError.of("chat template", f"refuses a conversation ({type(error).__name__}: {error})", got=roles) from error

    def tool_wrapper(self, num_results: int) -> _Wrapper:
        """What stands between an assistant turn and the next one: the wrapper of so many tool results."""
        vocabulary = _vocabulary(self._tokenizer)
        key = (*self._key, num_results)
        if key not in vocabulary.wrappers:
            vocabulary.wrappers[key] = self._build_tool_wrapper(vocabulary, num_results)
        return vocabulary.wrappers[key]

    def _build_tool_wrapper(self, vocabulary: _Vocabulary, num_results: int) -> _Wrapper:
        spoken = "napmem-assistant-turn"
        slots = [f"napmem-slot-{index}-{_PROBE}" for index in range(num_results)]
        results = [{"role": "tool", "content": slot, "tool_call_id": f"call{index:05d}", "name": "search_records"} for index, slot in enumerate(slots)]
        rendered = self.render([{"role": "user", "content": "napmem-question"}, {"role": "assistant", "content": spoken}, *results])
        if rendered.count(spoken) != 1:
            raise ConfigError.of("chat template", f"writes an assistant turn {rendered.count(spoken)} times", expected="once")
        return vocabulary.build_wrapper(rendered.partition(spoken)[2], slots, takes_end=True)


_VOCABULARIES: WeakKeyDictionary[Any, _Vocabulary] = WeakKeyDictionary()
_LOCK = threading.Lock()


def _vocabulary(tokenizer: Any) -> _Vocabulary:
    """The vocabulary of a tokenizer, built at its first use. Add tokens before that: one that took over an existing id later would not be noticed."""
    known = _VOCABULARIES.get(tokenizer)
    if known is None:
        with _LOCK:
            known = _VOCABULARIES.get(tokenizer) or _Vocabulary(tokenizer)
            _VOCABULARIES[tokenizer] = known
    return known


def _split(rendered: str, marks: Sequence[str]) -> tuple[list[str], bool]:
    """(the pieces around the marks, whether the template wrote them as JSON strings)."""
    for shown, is_json in ((marks, False), ([json.dumps(mark)[1:-1] for mark in marks], True)):
        match = re.fullmatch("(.*)".join(["", *map(re.escape, shown), ""]), rendered, re.DOTALL)
        if match is not None and all(rendered.count(mark) == 1 for mark in shown):
            return list(match.groups()), is_json
    expected = "each user message and tool result once"
    raise ConfigError.of("chat template", "does not write every message exactly once and in order", got=rendered[:200], expected=expected)

"""A conversation with a memory: each question is an episode of its own, with what was said before it.

What was said stays in this conversation unless it is asked to be remembered, and then only what the user said: the answers came out of the memory, and would
come back into it as if they were news.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from napmem_rl.assistant.asking import Reply, ask
from napmem_rl.assistant.remembering import USER, Remembered, Saying, name_session, remember, tell_time
from napmem_rl.assistant.reply_text import render_answer, render_reasons
from napmem_rl.assistant.terminal import flatten
from napmem_rl.errors import DataError, NapMemError
from napmem_rl.evals.policy import Policy
from napmem_rl.memory.bank import MemoryBank

MAX_EXCHANGES = 4  # before the question, that a policy is shown
MAX_CHARACTERS = 400  # of each side of one
HELP = """Ask anything about what is remembered. Commands:
  /why             what the last answer was read from
  /remember        add what you said in this conversation to the bank
  /remember TEXT   add TEXT to the bank
  /help            this
  /quit            end (so does Ctrl-D)"""


class Conversation:
    """Questions, answers and what is to be remembered, over one bank. For one event loop."""

    def __init__(self, policy: Policy, open_bank: Callable[[], MemoryBank], *, uses_context: bool) -> None:
        """Args:
        policy: who answers.
        open_bank: opens the bank's newest version.
        uses_context: show the policy what was said before; one that reads whatever its question finds would only be misled by more words.
        """
        self._policy, self._open, self._uses_context = policy, open_bank, uses_context
        self._bank = open_bank()
        self._exchanges: list[tuple[str, str]] = []
        self._unsaved: list[Saying] = []
        self._session_id, self._num_saved = name_session("chat"), 0
        self._last: Reply | None = None

    @property
    def has_unsaved(self) -> bool:
        """Whether anything was said that is not in the bank."""
        return bool(self._unsaved)

    async def take(self, line: str) -> Iterator[str]:
        """Answer one line, or do what it commands; gives lines to show. A failure is a line too, and the conversation goes on."""
        command, _, rest = line.strip().partition(" ")
        try:
            if command == "/why":
                return iter(("Nothing has been asked yet.",)) if self._last is None else render_reasons(self._last)
            if command == "/remember":
                return iter(((await self.remember(rest)).describe(),))
            if command.startswith("/"):
                return iter(HELP.splitlines() if command == "/help" else (f"Unknown command {flatten(command, 40)}; /help lists them.",))
            return iter(render_answer(await self._ask(line.strip())).splitlines())
        except NapMemError as error:
            return iter((f"That failed: {flatten(error.message)}",))

    async def remember(self, text: str = "") -> Remembered:
        """Add what the user said, or one text, to the bank, and go on with the new version.

        Raises:
            DataError: there is nothing to remember.
            BankError: see `remembering.remember`.
        """
        said = [Saying(role=USER, text=text.strip(), time=tell_time())] if text.strip() else list(self._unsaved)
        if not said:
            raise DataError("nothing was said yet that is not in the bank")
        done = await remember(self._bank, said, session_id=self._session_id, num_before=self._num_saved)
        self._num_saved += len(said)
        if not text.strip():
            self._unsaved.clear()
        self._bank = self._open()
        return done

    async def _ask(self, question: str) -> Reply:
        self._unsaved.append(Saying(role=USER, text=question, time=tell_time()))
        reply = await ask(self._policy, self._bank, question, context=self._render_context())
        self._last = reply
        if reply.answer is not None:
            self._exchanges.append((question, reply.answer))
        return reply

    def _render_context(self) -> str:
        """The last exchanges; empty before the first, so that the first question reaches a trained policy just as in training."""
        if not self._uses_context or not self._exchanges:
            return ""
        said = [f"User: {flatten(question, MAX_CHARACTERS)}\nYou: {flatten(answer, MAX_CHARACTERS)}" for question, answer in self._exchanges[-MAX_EXCHANGES:]]
        return "\n".join(("Earlier in this conversation:", *said, "", "The question now:"))

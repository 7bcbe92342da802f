"""Every error that napmem_rl raises on purpose, in one picklable tree.

A failure belongs to exactly one boundary, and the class says which: the user's input (`ConfigError`, `DataError`, `BankError`), the policy's output
(`PolicyOutputError`), a memory tool (`ToolError`), a language-model endpoint (`LLMError`), the judge (`JudgeError`) or the training backend
(`BackendError`). Messages name the object, what is wrong, what was found, what was expected and what to do.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

from napmem_rl.masking import mask_log_records, mask_secrets

P = ParamSpec("P")


class NapMemError(Exception):
    """Base of the tree. Constructed from one message, so that instances survive pickling between Ray processes; keys and passwords in it are masked."""

    def __init__(self, message: str) -> None:
        self.message = mask_secrets(message)
        super().__init__(self.message)

    @classmethod
    def of(cls, what: str, problem: str, *, got: object = None, expected: str | None = None, fix: str | None = None) -> NapMemError:
        """Build the message of an error from its parts.

        Args:
            what: the object at fault, e.g. ``"recipe recipes/quickstart.yaml, key agent.max_tool_step"``.
            problem: what is wrong with it, e.g. ``"is not a known key"``.
            got: the value found; left out of the message when None.
            expected: what would have been right.
            fix: what the user can do.
        """
        parts = [f"{what}: {problem}"]
        if got is not None:
            shown = repr(got)
            parts.append(f"got {shown if len(shown) <= 200 else shown[:197] + '...'}")
        if expected is not None:
            parts.append(f"expected {expected}")
        message = "; ".join(parts)
        return cls(f"{message}. {fix}" if fix else message)


class ConfigError(NapMemError):
    """A recipe, a command line or a platform that does not fit the recipe."""


class DataError(NapMemError):
    """A data file or a row that cannot be used."""


class BankError(DataError):
    """A memory bank that is missing, broken or of another version than expected."""


class ReplayError(DataError):
    """A recording that does not hold what playing it again takes."""


class PolicyOutputError(NapMemError):
    """The policy wrote something that does not parse. Never an exception out of an episode: it becomes a status."""


class ToolError(NapMemError):
    """A memory tool failed by our fault (not a readable result such as an unknown id)."""


class LLMError(NapMemError):
    """A language-model endpoint refused, timed out or broke its protocol after all retries."""


class BudgetError(LLMError):
    """The budget of a language model does not hold one more request. Nothing is broken: the same command goes on with a larger one."""


class JudgeError(LLMError):
    """A judge gave no usable verdict. The trajectory is abstained from, never scored 0."""


class BackendError(NapMemError):
    """The distributed engine (Ray, verl, a rollout server) failed or broke a promise."""


class CheckpointError(BackendError):
    """A checkpoint could not be written, or none that was found can be used."""


class JobStopped(BackendError):
    """A job ended early because it was asked to, with its last step saved. Not a failure: the same command goes on from there."""


class StaleWeightsError(BackendError):
    """A rollout came from weights of another step than the trainer expects."""


def report_errors(main: Callable[P, int]) -> Callable[P, int]:
    """Let a command end as the launchers do where something cannot be used, or failed: one line on stderr, exit code 2."""

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        mask_log_records()
        try:
            return main(*args, **kwargs)
        except (NapMemError, OSError) as error:
            print(f"error: {mask_secrets(str(error))}", file=sys.stderr)
            return 2

    return run

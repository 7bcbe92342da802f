"""How often a judge is wrong, on a set of our own writing: the share of wrong answers that it accepts and of right ones that it rejects.

The set (`calibration/items.jsonl`) holds questions with references, an answer, and whether a careful reader who goes by the references would call it correct,
in cases: paraphrase, alias, equal date and number, detail added, old value beside the new one, abstentions of both kinds, rubrics; vague, specific but wrong,
contradicting, incomplete, hedged among alternatives, outdated, off by one, and answers that instruct the judge. No benchmark's questions are in it.

It says how a judge treats such answers, not how often they occur: rates of another mix of answers are others. The labels are strict on purpose, so that a
protocol that is lenient by rule (`locomo` with vague answers, `longmemeval` with one day more or less) shows it here.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from napmem_rl.atomic import write_file
from napmem_rl.config.sections import JudgeConfig
from napmem_rl.errors import DataError, JudgeError
from napmem_rl.rewards.agreement import Rate, wilson_rate
from napmem_rl.rewards.judge import Judge, LexicalJudge
from napmem_rl.rewards.verdict import Verdict
from napmem_rl.schema import AnswerKey, AnswerKind, Task

ITEMS = Path(__file__).with_name("calibration") / "items.jsonl"
Outcome = Verdict | JudgeError
_NUM_FIRST = 10  # items that show whether a judge gives verdicts at all


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationItem:
    """One answer whose worth is known."""

    case: str  # kind of difficulty
    task: Task  # its id is the item's
    key: AnswerKey
    answer: str
    is_correct: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """The items of one case, all right or all wrong answers. `errors` counts the false accepts or rejects among those that were judged."""

    case: str
    is_correct: bool  # what its answers are
    errors: Rate
    num_unjudged: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationResult:
    """How a judge fared. What it gave no verdict on is in neither rate, and counted."""

    judge: str
    items_version: str  # of the set
    false_accepts: Rate  # of wrong answers
    false_rejects: Rate  # of right ones
    num_unjudged: int
    cases: tuple[CaseResult, ...]
    mistakes: tuple[str, ...]  # ids of items that were judged wrongly
    problem: str = ""  # why there was no verdict, the first time


@functools.cache
def load_items() -> tuple[CalibrationItem, ...]:
    """The built-in set, in the order of its file."""
    return tuple(_read_item(json.loads(line)) for line in ITEMS.read_text(encoding="utf-8").splitlines())


@functools.cache
def items_version() -> str:
    """Changes with every change of the set."""
    return hashlib.sha256(ITEMS.read_bytes()).hexdigest()[:12]


def calibrate(judge: Judge) -> CalibrationResult:
    """Ask a judge about the whole set; not from within an event loop, save for the lexical judge.

    Raises:
        JudgeError: there was not one verdict.
    """
    if isinstance(judge, LexicalJudge):
        return _calibrate_lexical()
    return asyncio.run(measure_calibration(judge))


async def measure_calibration(judge: Judge) -> CalibrationResult:
    """The same, within an event loop; the judge is asked about all items at once, as far as its own limits let it.

    Raises:
        JudgeError: there was no verdict on the first items; the others are not asked about then.
    """
    items = load_items()
    first = await asyncio.gather(*(_ask(judge, item) for item in items[:_NUM_FIRST]))
    _check_any_verdict(judge.name, first)
    return tally(judge.name, items, [*first, *await asyncio.gather(*(_ask(judge, item) for item in items[_NUM_FIRST:]))])


def tally(judge: str, items: Sequence[CalibrationItem], outcomes: Sequence[Outcome]) -> CalibrationResult:
    """Rates out of verdicts, item by item.

    Raises:
        JudgeError: there was not one verdict.
    """
    _check_any_verdict(judge, outcomes)
    problems = [outcome.message for outcome in outcomes if isinstance(outcome, JudgeError)]
    pairs = list(zip(items, outcomes, strict=True))
    cases = tuple(_tally_case(case, [pair for pair in pairs if pair[0].case == case]) for case in dict.fromkeys(item.case for item in items))
    return CalibrationResult(
        judge=judge,
        items_version=items_version(),
        false_accepts=_sum_rates(cases, is_correct=False),
        false_rejects=_sum_rates(cases, is_correct=True),
        num_unjudged=len(problems),
        cases=cases,
        mistakes=tuple(item.task.task_id for item, outcome in pairs if _is_mistake(item, outcome)),
        problem=problems[0] if problems else "",
    )


def save_calibration(result: CalibrationResult, directory: Path) -> Path:
    """Keep a result for `load_calibration`; an older one of the same judge is replaced."""
    path = directory / _file_name(result.judge)
    write_file(path, json.dumps(asdict(result), ensure_ascii=False, indent=1) + "\n")
    return path


def load_calibration(judge_name: str, directory: Path) -> CalibrationResult | None:
    """The kept result of a judge; None where there is none, or one of another version of the set.

    Raises:
        DataError: the file cannot be read.
    """
    path = directory / _file_name(judge_name)
    if not path.is_file():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        cases = tuple(CaseResult(**{**case, "errors": Rate(**case["errors"])}) for case in raw["cases"])
        rates = {name: Rate(**raw[name]) for name in ("false_accepts", "false_rejects")}
        result = CalibrationResult(**{**raw, **rates, "cases": cases, "mistakes": tuple(raw["mistakes"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "Remove it, and calibrate again with `napmem judge calibrate`."
        raise DataError.of(f"calibration {path}", f"cannot be read ({type(error).__name__}: {error})", fix=fix) from error
    return result if result.items_version == items_version() and result.judge == judge_name else None


def find_calibration_dir(config: JudgeConfig) -> Path:
    """Where results of a recipe's judge are kept: beside its verdicts, or in runs/calibration of the directory in which the command runs."""
    return Path(config.cache_dir) / "calibration" if config.cache_dir is not None else Path("runs") / "calibration"


def find_calibration(judge_name: str, directory: Path | None) -> CalibrationResult | None:
    """The lexical judge's result, made at once; of any other judge the kept one, or None. For whoever shows a judged score."""
    if judge_name == LexicalJudge.name:
        return _calibrate_lexical()
    return load_calibration(judge_name, directory) if directory is not None else None


def describe_calibration(result: CalibrationResult | None, judge_name: str = "") -> str:
    """One line to stand beside a judged score.

    Example: "judge lexical: false accepts 3.1% [1.1, 8.8] of 96 wrong answers, false rejects 8.3% [3.6, 18.1] of 60 right ones"
    """
    if result is None:
        return f"judge {judge_name}: not calibrated, its errors are not known; `napmem judge calibrate` measures them"
    accepts = f"false accepts {render_rate(result.false_accepts)} of {result.false_accepts.n} wrong answers"
    rejects = f"false rejects {render_rate(result.false_rejects)} of {result.false_rejects.n} right ones"
    unjudged = f", {result.num_unjudged} not judged" if result.num_unjudged else ""
    return f"judge {result.judge}: {accepts}, {rejects}{unjudged}"


def render_calibration(result: CalibrationResult) -> str:
    """The one line, and a table of all cases."""
    header = f"{'case':18} {'answers':8} {'n':>3}  {'judged wrongly':>14}  {'share [95% interval]':22}"
    lines = [describe_calibration(result), "", header.rstrip()]
    for case in sorted(result.cases, key=lambda case: not case.is_correct):
        is_judged = case.errors.n > 0
        counts = f"{case.errors.n:3}  {case.errors.count if is_judged else '':>14}  {render_rate(case.errors) if is_judged else 'not judged'}"
        unjudged = f"  ({case.num_unjudged} not judged)" if is_judged and case.num_unjudged else ""
        lines.append(f"{case.case.replace('_', ' '):18} {'right' if case.is_correct else 'wrong':8} {counts}{unjudged}")
    return "\n".join([*lines, *([f"not judged: {result.problem}"] if result.problem else [])])


def render_rate(rate: Rate) -> str:
    """A share in per cent with its interval: "3.1% [1.1, 8.8]"; "absent" where nothing was judged."""
    if rate.value is None or rate.low is None or rate.high is None:
        return "absent"
    return f"{rate.value:.1%} [{rate.low * 100:.1f}, {rate.high * 100:.1f}]"


@functools.cache
def _calibrate_lexical() -> CalibrationResult:
    judge = LexicalJudge()
    return tally(judge.name, load_items(), [_decide(judge, item) for item in load_items()])


def _check_any_verdict(judge: str, outcomes: Sequence[Outcome]) -> None:
    problems = [outcome.message for outcome in outcomes if isinstance(outcome, JudgeError)]
    if len(problems) == len(outcomes):
        raise JudgeError.of(f"judge {judge}", f"gave no verdict on any of {len(outcomes)} items of the calibration set", got=problems[0] if problems else None)


def _decide(judge: LexicalJudge, item: CalibrationItem) -> Outcome:
    try:
        return judge.decide(item.task, item.key, item.answer)
    except JudgeError as error:
        return error


async def _ask(judge: Judge, item: CalibrationItem) -> Outcome:
    try:
        return await judge.judge(item.task, item.key, item.answer)
    except JudgeError as error:
        return error


def _tally_case(case: str, pairs: Sequence[tuple[CalibrationItem, Outcome]]) -> CaseResult:
    num_judged = sum(isinstance(outcome, Verdict) for _, outcome in pairs)
    errors = wilson_rate(sum(_is_mistake(item, outcome) for item, outcome in pairs), num_judged)
    return CaseResult(case=case, is_correct=pairs[0][0].is_correct, errors=errors, num_unjudged=len(pairs) - num_judged)


def _is_mistake(item: CalibrationItem, outcome: Outcome) -> bool:
    return isinstance(outcome, Verdict) and outcome.is_correct is not item.is_correct


def _sum_rates(cases: Sequence[CaseResult], *, is_correct: bool) -> Rate:
    rates = [case.errors for case in cases if case.is_correct is is_correct]
    return wilson_rate(sum(rate.count for rate in rates), sum(rate.n for rate in rates))


def _file_name(judge_name: str) -> str:
    """Readable, and different for every judge whatever stands in its name."""
    shown = re.sub(r"[^A-Za-z0-9.]+", "-", judge_name).strip("-.")[:80]
    return f"calibration-{shown}-{hashlib.sha256(judge_name.encode()).hexdigest()[:8]}.json"


def _read_item(raw: dict) -> CalibrationItem:
    task = Task(task_id=raw["id"], bank_id="calibration", question=raw["question"], category=raw["category"], needs_memory=True)
    key = AnswerKey(task_id=raw["id"], references=tuple(raw["references"]), kind=AnswerKind(raw["kind"]))
    return CalibrationItem(case=raw["case"], task=task, key=key, answer=raw["answer"], is_correct=raw["is_correct"])

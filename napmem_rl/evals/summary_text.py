"""The summary of an evaluation as Markdown: what is in summary.json, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from napmem_rl.evals.packet_tables import list_packet_tables
from napmem_rl.evals.summary import COSTS, sort_metrics

Summary = Mapping[str, Any]
FEW_GROUPS = 10  # a percentile bootstrap over fewer covers less than it says
COST_NAMES = {
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "completion tokens",
    "latency_s": "seconds",
    "retrieval_s": "seconds in retrieval",
    "context_messages": "messages in context",
}


def render_markdown(summary: Summary) -> str:
    """The whole of summary.md."""
    return "\n".join(_lines(summary)) + "\n"


def show_interval(interval: Mapping[str, Any] | None, digits: int = 3) -> str:
    """`0.412 [0.380, 0.447]`; without an interval where there is one group only, a dash where there is no value."""
    if interval is None:
        return "–"
    if interval["low"] is None:
        return f"{interval['mean']:.{digits}f} [one group]"
    return f"{interval['mean']:.{digits}f} [{interval['low']:.{digits}f}, {interval['high']:.{digits}f}]"


def describe_counts(part: Summary) -> str:
    """How many questions were asked and answered, in words."""
    said = f"{part['num_answers']:,} of {part['num_wanted']:,} attempts answered"
    if part["samples"] > 1:
        said += f" ({part['num_questions']:,} questions × {part['samples']})"
    if part["num_available"] > part["num_questions"]:
        said += f"; {part['num_questions']:,} of {part['num_available']:,} questions were drawn"
    errors, not_asked = sum(error["count"] for error in part["errors"]), part["not_asked"]["count"]
    said += f"; {errors:,} failed by our doing and are not scored" if errors else ""
    return said + (f"; {not_asked:,} could not be asked" if not_asked else "")


def describe_policy(summary: Summary) -> list[str]:
    """The policy's facts, one `name: value` each."""
    return [f"{name}: {value}" for name, value in summary["policy"]["facts"].items() if value not in (None, "", {}, [])]


def list_absent(scores: Summary) -> list[str]:
    """Why metrics have no value, and of how many answers; "it does not fit" of the unanswerable questions is left out, since it says nothing."""
    counts: Counter[str] = Counter()
    for part, found in (("overall", scores["overall"]), ("unanswerable", scores["unanswerable"])):
        for metric, summary in found.items():
            if part == "overall" or summary["interval"] is not None or metric == "judge":
                counts.update({f"{metric}: {reason}": count for reason, count in summary["absent"].items()})
    return [f"{line} ({count})" for line, count in sorted(counts.items())]


def _lines(summary: Summary) -> Iterator[str]:
    yield f"# {summary['policy']['name']}"
    yield ""
    yield f"Policy: {'; '.join(describe_policy(summary)) or 'no facts'}."
    line = summary["judge"].get("calibration_line") or f"judge {summary['judge'].get('name')}"
    yield f"{line[0].upper()}{line[1:]}."
    yield "Scores are means with 95% intervals that resample groups (conversations or users); n is the number of answers."
    if not summary["is_complete"]:
        yield ""
        yield "**Not complete: see the counts below. The same command goes on.**"
    for note in summary["notes"]:
        yield f"- {note}"
    for name, part in summary["benchmarks"].items():
        yield from _benchmark(name, part)


def _benchmark(name: str, part: Summary) -> Iterator[str]:
    yield from ("", f"## {name}", "", f"{describe_counts(part)}.")
    for error in part["errors"]:
        yield f"- {error['count']} × {error['status']}: {error['detail']}"
    for reason, count in part["not_asked"]["by_reason"].items():
        yield f"- {count} not asked: {reason}"
    scores = part["scores"]
    yield from _scores(scores["overall"])
    num_groups = max((found["interval"]["num_users"] for found in scores["overall"].values() if found["interval"]), default=0)
    if 1 < num_groups < FEW_GROUPS:
        yield from ("", f"{num_groups} groups are few: such intervals are narrower than they should be.")
    yield from _table(("over all answers at once", "value", "n", "absent"), [_corpus_row(*item) for item in part["corpus"].items()])
    yield from _categories("By category", scores["by_category"])
    if scores["unanswerable"]:
        yield from ("", f"Unanswerable questions ({scores['num_unanswerable']}), which are not in the table above:")
        yield from _scores(scores["unanswerable"])
    if scores["num_labelled"]:
        yield from ("", f"{scores['num_labelled']:,} answers have an audited label; the reference of {scores['num_known_wrong']:,} is known to be wrong.")
    absent = list_absent(scores)
    yield from ("", *(f"- absent: {line}" for line in absent)) if absent else ()
    yield from _cost(part)
    yield from _tool_use(part)
    for title, head, rows in list_packet_tables(part["packets"]):
        yield from ("", f"{title}:") if rows else ()
        yield from _table(head, rows)


def _scores(found: Mapping[str, Any]) -> Iterator[str]:
    """One row a metric that has a value."""
    known = [metric for metric in sort_metrics(found) if found[metric]["interval"]]
    is_audited = any(found[metric]["audited"] for metric in known)
    head = ("metric", "score [95%]", "n", "groups", *(("without known wrong references",) if is_audited else ()))
    yield from _table(head, [_score_row(metric, found[metric], is_audited) for metric in known])


def _score_row(metric: str, found: Mapping[str, Any], is_audited: bool) -> tuple[str, ...]:
    interval = found["interval"]
    counts = (str(interval["num_values"]), str(interval["num_users"]))
    return (metric, show_interval(interval), *counts, *((show_interval(found["audited"]),) if is_audited else ()))


def _corpus_row(metric: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    return (metric, "–" if found["value"] is None else f"{found['value']:.3f}", str(found["num_answers"]), found["absent"] or "")


def _categories(title: str, by_category: Mapping[str, Any]) -> Iterator[str]:
    """One row a category, one column a metric, with its own n where some answers lack it; ranks and sessions are in summary.json."""
    metrics = sort_metrics(metric for found in by_category.values() for metric, value in found.items() if value["interval"])
    metrics = [metric for metric in metrics if "@" not in metric and not metric.startswith("session")]
    if not metrics:
        return
    rows = []
    for category, found in by_category.items():
        values = [found[metric]["interval"] if metric in found else None for metric in metrics]
        most = max((value["num_values"] for value in values if value), default=0)
        fewer = [f" (n {value['num_values']})" if value and value["num_values"] < most else "" for value in values]
        rows.append((category, str(most), *(show_interval(value) + short for value, short in zip(values, fewer, strict=True))))
    yield from ("", f"{title}:")
    yield from _table(("category", "n", *metrics), rows)


def _cost(part: Summary) -> Iterator[str]:
    rows = [
        (COST_NAMES[name], f"{spent['mean']:.4g}", f"{spent['p50']:.4g}", f"{spent['p95']:.4g}", f"{spent['total']:.6g}", str(spent["n"]))
        for name, spent in part["cost"].items()
    ]
    unknown = [COST_NAMES[name] for name in COSTS if name not in part["cost"]]
    yield from ("", "Cost of an attempt:")
    yield from _table(("", "mean", "median", "95th percentile", "total", "n"), rows)
    if unknown and part["num_answers"]:
        yield from ("", f"Not told by the engine: {', '.join(unknown)}.")
    storage = part["storage"]
    if storage:
        yield from ("", f"Memory on disk: {storage['n']} banks, {storage['mean_bytes'] / 1e6:.3g} MB each, with all versions and indexes.")


def _tool_use(part: Summary) -> Iterator[str]:
    use = part["tool_use"]
    if use:
        yield from ("", f"{use['calls_per_question']:.2f} calls a question ({use['failed_calls']} failed), over {use['n']} attempts:")
        names = [*use["calls_by_level"], *(name for name in use["first_action"] if name not in use["calls_by_level"])]
        rows = [(name, f"{use['calls_by_level'].get(name, 0.0):.2f}", f"{use['first_action'].get(name, 0.0):.0%}") for name in names]
        yield from _table(("level", "calls a question", "is the first action"), rows)
    plain = {name: value for name, value in part["navigation"].items() if isinstance(value, int | float | str)}
    if plain:
        rows = [(name, f"{value:.4g}" if isinstance(value, int | float) else value) for name, value in plain.items()]
        yield from _table(("navigation", "value"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"

"""The page of an evaluation: one HTML file that fetches nothing, runs no script, and shows summary.json with the questions behind it.

Questions, answers and memories are untrusted: every text is escaped, and a content security policy forbids scripts and requests altogether.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from napmem_rl.evals.answer_log import is_error
from napmem_rl.evals.evaluation_plots import Point, region, render_bars, render_scatter, render_shares
from napmem_rl.evals.packet_block import render_packet_block
from napmem_rl.evals.packet_tables import list_packet_tables
from napmem_rl.evals.result_rows import AnswerRow, ScoreRow
from napmem_rl.evals.summary import BenchmarkResult, find_main_metric, sort_metrics
from napmem_rl.evals.summary_text import COST_NAMES, describe_counts
from napmem_rl.report.page import hash_source, read_asset
from napmem_rl.systems.memchain.rendering import PACKET

MAX_QUESTIONS = 400  # of a benchmark, in the page
_MAX_TEXT = 2000
_PAGE = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '$style_hash'; img-src data:; base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
<title>$title · napmem_rl</title>
<style>$style</style>
</head>
<body>
<a class="skip" href="#content">Skip to the figures</a>
<header class="top"><div><p class="eyebrow">napmem_rl evaluation</p><h1>$title</h1></div><nav aria-label="Benchmarks">$links</nav></header>
<main id="content" tabindex="-1">
$body
</main>
<footer>Made by launch/evaluate.py of napmem_rl. One file, nothing fetched, no script. Whiskers, brackets: 95% intervals over conversations or users.</footer>
</body>
</html>
"""
)


def render_evaluation_page(summary: Mapping[str, Any], results: Sequence[BenchmarkResult]) -> str:
    """The HTML of report.html.

    Args:
        summary: of `build_summary`.
        results: what it was made of, for the questions.
    """
    style = read_asset("report.css") + read_asset("evaluation.css")
    names = list(summary["benchmarks"])
    links = "".join(f'<a href="#benchmark-{place}">{_text(name)}</a>' for place, name in enumerate(names))
    sections = [_benchmark(place, summary["benchmarks"][result.benchmark.name], result) for place, result in enumerate(results)]
    title = _text(summary["policy"]["name"])
    return _PAGE.substitute(title=title, style=style, style_hash=hash_source(style), links=links, body=_overview(summary) + "".join(sections))


def _overview(summary: Mapping[str, Any]) -> str:
    facts = [(name, value) for name, value in summary["policy"]["facts"].items() if value not in (None, "", {}, [])]
    listed = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts)
    judge = summary["judge"].get("calibration_line") or f"judge {summary['judge'].get('name')}"
    notices = list(summary["notes"])
    if not summary["is_complete"]:
        notices.insert(0, "Not complete: some attempts have no answer, see the counts. The same command goes on.")
    told = "".join(f'<p class="notice">{_text(notice)}</p>' for notice in notices)
    return f'<section aria-label="Overview"><dl class="run-facts">{listed}</dl><p>{_text(judge)}</p>{told}</section>'


def _benchmark(place: int, part: Mapping[str, Any], result: BenchmarkResult) -> str:
    name = result.benchmark.name
    metric = part["main_metric"]
    parts = [f"<p>{_text(describe_counts(part))}.</p>", *_failures(part), _scores(part)]
    if metric is not None:
        parts += [_by_type(part, metric), _costs(part, metric)]
    parts += [_cost_table(part), _tool_use(part), _packets(part), _questions(result, part)]
    return f'<section id="benchmark-{place}" aria-labelledby="title-{place}"><h2 id="title-{place}">{_text(name)}</h2>{"".join(parts)}</section>'


def _failures(part: Mapping[str, Any]) -> list[str]:
    told = [f"{error['count']} attempts: {error['status']}, {error['detail']}" for error in part["errors"]]
    told += [f"{count} not asked: {reason}" for reason, count in part["not_asked"]["by_reason"].items()]
    return [f'<p class="notice">{_text(line)}</p>' for line in told]


def _scores(part: Mapping[str, Any]) -> str:
    """All metrics, unanswerable questions apart, and what is absent."""
    scores = part["scores"]
    overall = [(metric, scores["overall"][metric]["interval"]) for metric in sort_metrics(scores["overall"]) if scores["overall"][metric]["interval"]]
    shown = [render_bars(overall, caption="Scores, answerable questions")] if overall else []
    if scores["unanswerable"]:
        rows = [(metric, found["interval"]) for metric, found in scores["unanswerable"].items() if found["interval"]]
        shown.append(render_bars(rows, caption=f"Unanswerable questions ({scores['num_unanswerable']}), not in the table above", is_apart=True))
    if scores["num_labelled"]:
        rows = [(metric, found["audited"]) for metric, found in scores["overall"].items() if found["audited"]]
        said = f"Without the {scores['num_known_wrong']} answers whose reference is known to be wrong ({scores['num_labelled']} are labelled)"
        shown.append(render_bars(rows, caption=said, is_apart=True))
    absent = sorted({f"{metric}: {reason} ({count})" for metric, found in scores["overall"].items() for reason, count in found["absent"].items()})
    if absent:
        shown.append(f"<details><summary>Absent metrics</summary><ul>{''.join(f'<li>{_text(line)}</li>' for line in absent)}</ul></details>")
    return f'<div class="card">{"".join(shown)}</div>'


def _by_type(part: Mapping[str, Any], metric: str) -> str:
    rows = [(category, found[metric]["interval"] if metric in found else None) for category, found in part["scores"]["by_category"].items()]
    bars = render_bars(rows, caption=f"{metric} by type of question")
    others = [name for name in sort_metrics(part["scores"]["overall"]) if name != metric]
    return f'<div class="card">{bars}{_table_by_type(part, others)}</div>'


def _table_by_type(part: Mapping[str, Any], metrics: Sequence[str]) -> str:
    by_category = part["scores"]["by_category"]
    shown = [metric for metric in metrics if any(metric in found and found[metric]["interval"] for found in by_category.values())]
    if not shown:
        return ""
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in ("type", *shown))
    body = ""
    for category, found in by_category.items():
        cells = [found[metric]["interval"] if metric in found else None for metric in shown]
        said = "".join(f"<td>{'–' if cell is None else format(cell['mean'], '.3f')}</td>" for cell in cells)
        body += f'<tr><th scope="row">{_text(category)}</th>{said}</tr>'
    table = region(f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>', "other metrics by type")
    return f"<details><summary>Other metrics by type</summary>{table}</details>"


def _costs(part: Mapping[str, Any], metric: str) -> str:
    """Tokens and seconds against the score, one mark a type of question."""
    scores = part["scores"]
    whole = scores["overall"][metric]["interval"]
    places = [("all", part["cost"], whole, True)]
    for category, found in scores["by_category"].items():
        interval = found[metric]["interval"] if metric in found else None
        places.append((category, part["cost_by_category"].get(category, {}), interval, False))
    plots = []
    for title, x_name, measure in (("Tokens against score", "tokens an attempt", _tokens), ("Seconds against score", "seconds an attempt", _seconds)):
        points = [
            Point(name=name, x=x, y=interval["mean"], low=interval["low"], high=interval["high"], is_whole=is_whole)
            for name, cost, interval, is_whole in places
            if interval is not None and (x := measure(cost)) is not None
        ]
        plots.append(render_scatter(points, title=title, x_name=x_name, y_name=metric))
    return f'<div class="plots">{"".join(plots)}</div>' if any(plots) else ""


def _tokens(cost: Mapping[str, Any]) -> float | None:
    known = [cost[name]["mean"] for name in ("prompt_tokens", "completion_tokens") if name in cost]
    return sum(known) if known else None


def _seconds(cost: Mapping[str, Any]) -> float | None:
    return cost["latency_s"]["mean"] if "latency_s" in cost else None


def _cost_table(part: Mapping[str, Any]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in ("an attempt", "mean", "median", "95th percentile", "total", "n"))
    body = "".join(
        f'<tr><th scope="row">{COST_NAMES[name]}</th>' + "".join(f"<td>{spent[column]:.5g}</td>" for column in ("mean", "p50", "p95", "total", "n")) + "</tr>"
        for name, spent in part["cost"].items()
    )
    return f'<div class="card">{region(f"<table class=plain><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>", "cost of an attempt")}</div>'


def _tool_use(part: Mapping[str, Any]) -> str:
    use = part["tool_use"]
    if not use:
        return ""
    by_level = render_shares(list(use["calls_by_level"].items()), caption="Tool use by level", unit="calls a question")
    first = render_shares(list(use["first_action"].items()), caption="First action", unit="share of questions")
    plain = [(name, value) for name, value in part["navigation"].items() if isinstance(value, int | float)]
    body = "".join(f'<tr><th scope="row">{_text(name)}</th><td>{value:.4g}</td></tr>' for name, value in plain)
    table = region(f'<table class="plain"><caption>Navigation</caption><tbody>{body}</tbody></table>', "navigation") if plain else ""
    return f'<div class="card">{by_level}{first}{table}</div>'


def _packets(part: Mapping[str, Any]) -> str:
    """MemChain's packets: what they did with candidates, sizes and seconds, faults."""
    shown = []
    for title, head, rows in list_packet_tables(part["packets"]):
        columns = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
        body = "".join(f'<tr><th scope="row">{_text(first)}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in cells)}</tr>' for first, *cells in rows)
        if rows:
            table = f'<table class="plain"><caption>{_text(title)}</caption><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>'
            shown.append(region(table, title))
    return f'<div class="card">{"".join(shown)}</div>' if shown else ""


def _questions(result: BenchmarkResult, part: Mapping[str, Any]) -> str:
    """Questions with what was answered, those that went wrong first."""
    scores = {(row.task_id, row.sample): row for row in result.scores}
    metric = part["main_metric"] or find_main_metric(name for row in result.scores for name in row.scores)
    rows = _choose(result.answers, scores, metric)
    shown = "".join(_question(row, scores.get(row.identity), metric) for row in rows)
    how = f"{len(rows):,} of {len(result.answers):,}, those with the lowest {metric or 'score'} first, types in turn; answers.jsonl has all."
    return f'<div class="card"><h3>Questions</h3><p class="about">{_text(how)}</p>{shown}</div>'


def _choose(answers: Sequence[AnswerRow], scores: Mapping[tuple[str, int], ScoreRow], metric: str | None) -> list[AnswerRow]:
    """At most MAX_QUESTIONS: each type's worst first, types in turn."""
    by_type: dict[str, list[AnswerRow]] = defaultdict(list)
    for row in sorted(answers, key=lambda row: _value(scores.get(row.identity), metric)):
        by_type[row.trajectory["category"]].append(row)
    queues = [by_type[name] for name in sorted(by_type)]
    longest = max(map(len, queues), default=0)
    turns = [queue[place] for place in range(longest) for queue in queues if place < len(queue)]
    return sorted(turns[:MAX_QUESTIONS], key=lambda row: _value(scores.get(row.identity), metric))


def _value(score: ScoreRow | None, metric: str | None) -> float:
    return -1.0 if score is None or metric is None else score.scores.get(metric, -0.5)


def _question(row: AnswerRow, score: ScoreRow | None, metric: str | None) -> str:
    trajectory = row.trajectory
    value = None if score is None or metric is None else score.scores.get(metric)
    kind = "none" if value is None else "good" if value >= 0.5 else "bad"
    mark = "not scored" if value is None else f"{value:.2f}"
    calls = [call for turn in trajectory["turns"] for call in turn["calls"]]
    facts = [
        ("answer", trajectory["final_answer"] if trajectory["final_answer"] is not None else f"{trajectory['status']}: {trajectory['detail']}"),
        ("reference", "\n".join(score.references) if score else ""),
        ("options", "\n".join(trajectory["options"])),
        ("verdict", score.verdict_reason if score else ""),
        ("scores", ", ".join(f"{name} {value:.3g}" for name, value in score.scores.items()) if score else ""),
        ("calls", " → ".join(call["name"] for call in calls)),
        ("context", f"{len(row.context_ids)} messages" + (_hits(row, score) if score and score.evidence_ids else "")),
        ("spent", ", ".join(_spent(row))),
        ("audit", "the reference is known to be wrong" if score and score.audited is False else ""),
        ("id", f"{row.task_id}, sample {row.sample}, {trajectory['category']}"),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{_text(text[:_MAX_TEXT])}</dd>" for name, text in facts if text)
    failed = " (our failure)" if is_error(row) else ""
    head = f'<span class="mark {kind}">{mark}</span><span>{_text(trajectory["question"][:300])}{failed}</span>'
    packet = render_packet_block(row.details[PACKET]) if PACKET in row.details else ""
    return f'<details class="question"><summary>{head}</summary><dl>{listed}</dl>{packet}</details>'


def _hits(row: AnswerRow, score: ScoreRow) -> str:
    found = len(set(score.evidence_ids) & set(row.context_ids))
    return f", {found} of {len(set(score.evidence_ids))} with gold evidence"


def _spent(row: AnswerRow) -> list[str]:
    known = [(row.prompt_tokens, "prompt tokens"), (row.completion_tokens, "completion tokens")]
    return [f"{value:,} {name}" for value, name in known if value is not None] + [f"{row.latency_s:.2f} s"]


def _text(value: Any) -> str:
    """Any value as text that is no markup."""
    return html.escape(str(value)).encode("utf-8", "replace").decode()

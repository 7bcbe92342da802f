"""The `napmem judge` commands: how often a judge is wrong, and how far labels agree."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

from napmem_rl.config.judge_section import build_judge_section, load_judge_section
from napmem_rl.config.sections import JUDGE_PROTOCOLS, JudgeConfig
from napmem_rl.errors import ConfigError
from napmem_rl.rewards.agreement_report import load_labels, render_agreement, report_agreement
from napmem_rl.rewards.judge import Judge, LexicalJudge, LLMJudge, build_judge
from napmem_rl.rewards.judge_calibration import (
    CalibrationResult,
    calibrate,
    find_calibration_dir,
    load_items,
    measure_calibration,
    render_calibration,
    save_calibration,
)


def add_judge_commands(areas: argparse._SubParsersAction) -> None:
    """Add `judge` and its commands to the areas of `napmem`."""
    judge = areas.add_parser("judge", help="how often a judge is wrong, and how far labels agree").add_subparsers(required=True, metavar="COMMAND")
    ask = judge.add_parser("calibrate", help="ask a judge about a built-in set of answers whose worth is known; the lexical judge unless a model is named")
    ask.add_argument("--recipe", type=Path, metavar="FILE", help="a training or evaluation recipe, for its `judge` section; options below win over it")
    ask.add_argument("--kind", choices=("lexical", "openai"), help="openai: any OpenAI-compatible endpoint; follows from --model")
    ask.add_argument("--base-url", metavar="URL", help="of the endpoint")
    ask.add_argument("--model", metavar="NAME", help="as the endpoint knows it")
    ask.add_argument("--api-key-env", metavar="VARIABLE", help='NAME of the environment variable that holds the key; "" for a server without keys')
    ask.add_argument("--protocol", choices=JUDGE_PROTOCOLS, help="the rules that a model judges by")
    ask.add_argument("--dir", type=Path, metavar="DIR", help="where the result is kept; default: calibration/ in judge.cache_dir, or runs/calibration")
    ask.add_argument("--mistakes", action="store_true", help="show every item that was judged wrongly")
    ask.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")
    ask.set_defaults(run=run_calibrate)
    labels = judge.add_parser("agreement", help="accuracy, F1 and kappas of raters, and of a judge with them, from a file of labels")
    labels.add_argument("--labels", type=Path, required=True, metavar="FILE", help='rows {"labels": {"ana": true, …}, "judge": true}: JSON lines or a list')
    labels.add_argument("--json", action="store_true", help="JSON on stdout instead of lines")
    labels.set_defaults(run=run_agreement)


def run_calibrate(args: argparse.Namespace) -> int:
    """Ask the judge, keep the result, show it."""
    config = _read_config(args)
    directory = args.dir or find_calibration_dir(config)
    if directory.exists() and not directory.is_dir():
        raise ConfigError.of(f"--dir {directory}", "is a file", expected="a directory for the result")
    result = _calibrate(build_judge(config))
    path = save_calibration(result, directory)
    if args.json:
        print(json.dumps(dataclasses.asdict(result), ensure_ascii=False))
        return 0
    print(render_calibration(result))
    if args.mistakes:
        print("\n".join(["", "judged wrongly:", *_show_mistakes(result)]))
    print(f"kept in {path}")
    return 0


def run_agreement(args: argparse.Namespace) -> int:
    """Statistics of a file of labels."""
    report = report_agreement(load_labels(args.labels))
    print(json.dumps(report.as_json(), ensure_ascii=False) if args.json else render_agreement(report))
    return 0


def _read_config(args: argparse.Namespace) -> JudgeConfig:
    """The judge section out of the recipe and the options. Raises ConfigError."""
    names = ("kind", "base_url", "model", "api_key_env", "protocol")
    given: dict[str, Any] = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if "model" in given and "kind" not in given:
        given["kind"] = "openai"
    if args.recipe is not None:
        return load_judge_section(args.recipe, given)
    return build_judge_section(given, "command line")


def _calibrate(judge: Judge) -> CalibrationResult:
    if isinstance(judge, LexicalJudge):
        return calibrate(judge)

    async def check_and_measure() -> CalibrationResult:
        try:
            if isinstance(judge, LLMJudge):
                await judge.check_connection()
            return await measure_calibration(judge)
        finally:
            if isinstance(judge, LLMJudge):
                await judge.close()

    return asyncio.run(check_and_measure())


def _show_mistakes(result: CalibrationResult) -> list[str]:
    items = {item.task.task_id: item for item in load_items()}
    return [
        f"{name}  {item.task.question}  [{' | '.join(item.key.references)}]  {json.dumps(item.answer, ensure_ascii=True)}"
        f"  is {'right' if item.is_correct else 'wrong'}"
        for name in result.mistakes
        for item in (items[name],)
    ]

"""`napmem replay` and `napmem counterfactual`: a recorded episode played again, as it was and without a memory.

::

    napmem replay RUN ID                      play the recorded episode again; exit status 0 equal, 1 something differs, 2 it cannot be replayed
    napmem replay RUN ID --model [DIR]        sample it again with the recorded seed, and name the first token that differs
    napmem counterfactual RUN ID --drop MEMORY   ask again without a memory; exit status 0 the answer stays, 1 it changes, 2 it cannot be asked
    napmem counterfactual RUN ID --drop-each     without each memory that was in context, one by one
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napmem_rl.errors import NapMemError

if TYPE_CHECKING:
    from napmem_rl.backend.recorded_policy import OtherPolicy
    from napmem_rl.backend.replay_engine import Replay
    from napmem_rl.evals.counterfactual import Counterfactual
    from napmem_rl.evals.recordings import Choice, Recording

EQUAL, DIFFERS, CANNOT = 0, 1, 2
RECORDED = "recorded"  # --model without a directory


def add_replay_commands(areas: Any) -> None:
    """Add the commands to the parser's areas."""
    replay = areas.add_parser("replay", help="play a recorded episode again and name the first token that differs")
    _add_episode(replay)
    replay.add_argument("--model", nargs="?", const=RECORDED, metavar="DIR", help="sample again by these weights, or by the recorded ones")
    replay.add_argument("--engine", choices=("vllm", "transformers"), help="sample again by this engine in place of the evaluation's")
    replay.add_argument("--tokenizer", type=Path, metavar="DIR", help="where the tokenizer is now, if it has moved")
    replay.set_defaults(run=_guarded(_run_replay))
    without = areas.add_parser("counterfactual", help="ask a recorded question again without a memory")
    _add_episode(without)
    what = without.add_mutually_exclusive_group(required=True)
    what.add_argument("--drop", action="append", metavar="MEMORY", help="id of a message, record or topic file, a file's name, or profile; may be repeated")
    what.add_argument("--drop-each", action="store_true", help="each memory that was in context, one by one")
    without.add_argument("--with-dependents", action="store_true", help="leave out all that rests on it, also what rests on other memories too")
    without.add_argument("--model", type=Path, metavar="DIR", help="other weights in place of the recorded policy's")
    without.add_argument("--engine", choices=("vllm", "transformers"), help="another engine in place of the evaluation's")
    without.add_argument("--tokenizer", type=Path, metavar="DIR", help="where a training run's tokenizer is now, if it has moved")
    without.add_argument("--banks", type=Path, metavar="DIR", help="where a training run's memory banks are now, if they have moved")
    without.set_defaults(run=_guarded(_run_counterfactual))


def _add_episode(parser: argparse.ArgumentParser) -> None:
    """Which episode is meant."""
    parser.add_argument("dir", type=Path, metavar="RUN", help="an evaluation's directory, or a training run's")
    parser.add_argument("task_id", metavar="ID", help="task id")
    for name, text in (("step", "trainer step"), ("sample", "number of the sample"), ("repeat", "how often the step had the task before")):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--train", dest="is_validation", action="store_false", default=None, help="an episode of training")
    kind.add_argument("--validation", dest="is_validation", action="store_true", default=None, help="an episode of a validation")
    parser.add_argument("--benchmark", metavar="NAME", help="of an evaluation over several")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Exit status 2 for whatever keeps a command from doing what it says, since 1 means that something differs."""

    def guarded(args: argparse.Namespace) -> int:
        try:
            return run(args)
        except NapMemError as error:
            if args.json:
                print(json.dumps({"result": "cannot", "reason": error.message}, ensure_ascii=False))
            else:
                print(f"napmem: {error}", file=sys.stderr)
            return CANNOT

    return guarded


def _choice(args: argparse.Namespace) -> Choice:
    from napmem_rl.evals.recordings import Choice

    return Choice(step=args.step, sample=args.sample, repeat=args.repeat, is_validation=args.is_validation, benchmark=args.benchmark)


def _other(args: argparse.Namespace) -> OtherPolicy:
    from napmem_rl.backend.recorded_policy import OtherPolicy

    return OtherPolicy(model=None if args.model in (None, RECORDED) else Path(args.model), engine=args.engine)


def _run_replay(args: argparse.Namespace) -> int:
    from napmem_rl.evals.recordings import check_replayable, load_recording

    recording = load_recording(args.dir, args.task_id, _choice(args))
    check_replayable(recording)
    from napmem_rl.backend.recorded_policy import sample_again
    from napmem_rl.backend.replay_engine import ReplayTokenizer, replay_recording

    tokenizer = ReplayTokenizer(recording, args.tokenizer)
    if args.model is None and args.engine is None:
        found = asyncio.run(replay_recording(recording, tokenizer=tokenizer))
    else:
        found = asyncio.run(sample_again(recording, _other(args), tokenizer=tokenizer, tokenizer_dir=args.tokenizer))
    print(json.dumps(_replay_as_json(found), ensure_ascii=False, indent=2) if args.json else "\n".join(_describe_replay(found)))
    return EQUAL if found.difference is None else DIFFERS


def _describe_replay(found: Replay) -> list[str]:
    """A replay in words, a few lines."""
    from napmem_rl.evals.replay import describe_difference

    trajectory = found.recording.trajectory
    counts = _count(found)
    lines = [f"task {trajectory.task.task_id} ({found.recording.place})"]
    if found.difference is None:
        reward = "" if found.scored is None else f", reward {found.scored.reward if found.scored.reward is not None else f'none ({found.scored.abstained})'}"
        shown = [f"{count} {name.removesuffix('s') if count == 1 else name}".replace("_", " ") for name, count in counts.items()]
        lines.append(f"equal: status {trajectory.status}, {', '.join(shown)}{reward}")
    else:
        lines += describe_difference(found.difference)
    if found.logprobs is not None:
        shown = ["unknown" if value is None else f"{value:.4f}" for value in found.logprobs]
        lines.append(f"  log-prob  recorded {shown[0]}, again {shown[1]}")
    return [*lines, *(f"note: {note}" for note in found.notes)]


def _count(found: Replay) -> dict[str, int]:
    turns = found.recording.trajectory.turns
    prompts = max((len(turn.prompt_ids) for turn in turns), default=0) - sum(len(turn.response_ids) for turn in turns[:-1])
    calls, sampled = sum(len(turn.tool_results) for turn in turns), sum(len(turn.response_ids) for turn in turns)
    return {"turns": len(turns), "calls": calls, "prompt_tokens": prompts, "sampled_tokens": sampled}


def _replay_as_json(found: Replay) -> dict[str, Any]:
    trajectory = found.recording.trajectory
    return {
        "result": "equal" if found.difference is None else "differs",
        "task_id": trajectory.task.task_id,
        "place": found.recording.place,
        "status": str(trajectory.status),
        **_count(found),
        "reward": None if found.scored is None else found.scored.reward,
        "difference": None if found.difference is None else dataclasses.asdict(found.difference),
        "logprobs": None if found.logprobs is None else {"recorded": found.logprobs[0], "again": found.logprobs[1]},
        "notes": list(found.notes),
    }


def _run_counterfactual(args: argparse.Namespace) -> int:
    from napmem_rl.evals.counterfactual import as_json, describe, describe_each
    from napmem_rl.evals.recordings import load_recording

    recording = load_recording(args.dir, args.task_id, _choice(args))
    found = asyncio.run(_ask_again(recording, args))
    if args.json:
        content = [as_json(one) for one in found]
        print(json.dumps(content if args.drop_each else content[0], ensure_ascii=False, indent=2))
    else:
        print("\n".join(describe_each(found) if args.drop_each else describe(found[0])))
    return DIFFERS if any(one.is_changed for one in found) else EQUAL


async def _ask_again(recording: Recording, args: argparse.Namespace) -> list[Counterfactual]:
    """The counterfactuals that the arguments ask for."""
    from napmem_rl.backend.counterfactual_run import open_asker
    from napmem_rl.evals.counterfactual import list_memories

    options = {"with_dependents": args.with_dependents, "recorded_answer": recording.trajectory.final_answer}
    async with open_asker(recording, _other(args), tokenizer=args.tokenizer, banks=args.banks) as asker:
        if args.drop:
            return [await asker.ask_without(args.drop, **options)]
        return [await asker.ask_without([item_id], **options) for item_id in list_memories(await asker.ask_whole())]

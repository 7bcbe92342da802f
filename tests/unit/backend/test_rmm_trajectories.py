"""A reranker learns from finished runs, as their own logs wrote them: searches of a navigating policy, packets of MemChain."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bank_maker import save_sample

from napmem_rl.backend.rmm_trajectories import learn_from_run
from napmem_rl.backend.trajectory_log import TrajectoryLog
from napmem_rl.config.rmm_recipe import RmmRecipe, load_rmm_recipe
from napmem_rl.errors import DataError
from napmem_rl.llm.base import AssistantTurn
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.rerank_state import load_reranker, load_search_reranker
from napmem_rl.schema import Level, ScoredTrajectory, Status, Task, ToolCall, ToolResult, Trajectory, Turn
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.episode import run_episode
from napmem_rl.systems.memchain.rendering import render_episode
from napmem_rl.tools.parse import parse_turn

ROOT = Path(__file__).resolve().parents[3]
TASK = Task(task_id="t1", bank_id="ana", question="What bike did I buy, who moved to Oslo, like tea and work as a nurse?", category="fact", needs_memory=True)
PACKET = {
    "plan": {"intent": "lookup", "memory_types": ["fact"], "time_scope": "any", "requirement": "what was bought", "evidence_target": 1},
    "trace": [{"role": "answer", "ids": ["msg:3"], "statement": "Ana bought a red bike.", "relation": "none"}],
    "actions": [{"action": "KEEP", "ids": ["msg:3"], "rationale": "says it", "statement": None}],
    "evidence": [{"statement": "I bought a red bike.", "ids": ["msg:3"]}],
}


def search(*item_ids: str, query: str = "Ana bought a red bike and likes tea", text: str = "look") -> Turn:
    call = ToolCall(name="search_records", arguments={"query": query})
    return Turn(text=text, tool_results=(ToolResult(call=call, text="", is_success=True, level=Level.RECORD, item_ids=item_ids),))


def write_run(
    path: Path, trajectories: Sequence[Trajectory], *, details: Sequence[dict[str, object] | None] | None = None, is_validation: bool = False
) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "resolved.yaml").write_text("napmem: {}\n")
    log = TrajectoryLog(path / "trajectories", worker_name="0", run_name="r")
    for index, trajectory in enumerate(trajectories):
        scored = ScoredTrajectory(trajectory=trajectory, reward=1.0, abstained=None, terms={}, judge="lexical")
        place = {"step": 1, "sample_index": index, "is_validation": is_validation, "data_source": "test"}
        log.append(scored, **place, details=details[index] if details else None)


def navigate(answer: str) -> Trajectory:
    turns = (search("rec:3", "rec:4", "rec:99"), Turn(text=f"<answer>{answer}</answer>"))
    return Trajectory(task=TASK, turns=turns, final_answer=answer, status=Status.COMPLETED)


def load(tmp_path: Path, *more: str) -> RmmRecipe:
    save_sample(tmp_path / "data" / "banks" / "ana") if not (tmp_path / "data").exists() else None
    fixed = [f"data.dir={tmp_path / 'data'}", f"online.out={tmp_path / 'out'}", "rerank.batch_size=1", "rerank.num_candidates=4", "rerank.num_chosen=2"]
    return load_rmm_recipe(ROOT / "recipes" / "rmm" / "smoke.yaml", [*fixed, "rerank.learning_rate=0.05", *more])


def test_a_training_run_teaches_by_what_its_policy_named_and_its_validations_do_not(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [navigate("a red bike [rec:3]"), navigate("no idea")])
    write_run(tmp_path / "run", [navigate("[rec:4]")], is_validation=True)
    learned = learn_from_run(load(tmp_path), tmp_path / "run", report=print)["domain:data"]
    assert (learned["episodes"], learned["searches"], learned["num_updates"]) == (2, 2, 2)
    assert learned["usefulness"] == 0.25  # one of two shown records in the first episode, none in the second
    again = learn_from_run(load(tmp_path), tmp_path / "run", report=print)["domain:data"]
    assert (again["episodes"], again["num_updates"]) == (0, 2)
    found = load_search_reranker(tmp_path / "out" / "states" / "domain-data.npz", HashingEncoder(), ranking="dense")
    bank = MemoryBank.open(tmp_path / "data" / "banks" / "ana", encoder=HashingEncoder(), ranking="dense", reranker=found)
    assert bank.search_records("red bike", k=1)[0].record_id == "rec:3"


def test_a_packet_teaches_by_what_it_cites(tmp_path: Path) -> None:
    recipe, bank = load(tmp_path), MemoryBank.open(tmp_path / "data" / "banks" / "ana")
    candidates = [Candidate(id=message.message_id, text=message.text, time=message.time, speaker=message.speaker) for message in bank.messages[:4]]

    async def write(messages: object, tools: object) -> AssistantTurn:
        return AssistantTurn(text=json.dumps(PACKET), parsed=parse_turn("", tool_format="hermes", tools=()))

    episode = asyncio.run(run_episode(TASK, write, candidates))
    assert episode.trajectory.status is Status.COMPLETED, episode.parsed.violations
    write_run(tmp_path / "run", [episode.trajectory], details=[render_episode(episode)])
    learned = learn_from_run(recipe, tmp_path / "run", report=print)["domain:data"]
    assert (learned["searches"], learned["usefulness"]) == (1, 0.25)  # four messages were shown, one is cited
    learner, stamp = load_reranker(tmp_path / "out" / "states" / "domain-data.npz", encoder=HashingEncoder().name, dim=HashingEncoder().dim)
    assert (learner.counts.num_shown, learner.counts.num_cited) == (4, 1) and stamp.banks == {"ana": str(bank.version)}


def test_what_teaches_nothing_is_said_and_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    told: list[str] = []
    recipe = load(tmp_path)
    failed = Trajectory(task=TASK, turns=(search("rec:3"),), final_answer=None, status=Status.ERROR_LLM, detail="endpoint down")
    write_run(tmp_path / "failed", [failed])
    assert learn_from_run(recipe, tmp_path / "failed", report=told.append)["domain:data"]["num_updates"] == 0
    assert len(told) == 1 and "nothing was learned" in told[0]
    with pytest.raises(DataError, match="no episode"):
        write_run(tmp_path / "empty", [])
        (tmp_path / "empty" / "trajectories").mkdir(exist_ok=True)
        learn_from_run(recipe, tmp_path / "empty", report=told.append)
    write_run(tmp_path / "run", [navigate("[rec:3]")])
    with pytest.raises(DataError, match="cannot be opened"):
        learn_from_run(load(tmp_path, f"data.dir={tmp_path}"), tmp_path / "run", report=told.append)


def test_the_command_learns_from_a_run(tmp_path: Path) -> None:
    load(tmp_path)
    write_run(tmp_path / "run", [navigate("a red bike [rec:3]")])
    place = [f"data.dir={tmp_path / 'data'}", f"online.out={tmp_path / 'out'}"]
    command = [sys.executable, str(ROOT / "launch" / "rmm.py"), str(ROOT / "recipes" / "rmm" / "smoke.yaml"), "--from", str(tmp_path / "run"), *place]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["domain:data"]["searches"] == 1

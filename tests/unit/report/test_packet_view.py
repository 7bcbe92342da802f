"""MemChain's packets on the pages: shaped for the viewer, escaped in an evaluation's page, and their curves."""

from __future__ import annotations

import json

from run_maker import HOSTILE, make_line, write_metrics, write_trajectories

from napmem_rl.evals.packet_block import render_packet_block
from napmem_rl.report.episodes import index_episodes, load_episodes
from napmem_rl.report.metric_charts import build_charts
from napmem_rl.report.page import write_report
from napmem_rl.report.run_data import Metrics, load_run

PACKET = {
    "candidates": [
        {"id": "msg:1", "time": "2024-03-05T10:00:00", "speaker": "Ana", "text": f"I live in Oslo. {HOSTILE}", "views": ["lexical"], "sources": ["msg:1"]},
        {"id": "msg:2", "time": "", "speaker": "", "text": "I like tea.", "views": [], "sources": ["msg:2"]},
    ],
    "plan": {"intent": "lookup", "memory_types": ["fact"], "time_scope": "any", "requirement": HOSTILE, "evidence_target": 1},
    "trace": [{"role": "answer", "ids": ["msg:1"], "statement": "Ana lives in Oslo.", "relation": "none"}],
    "actions": [
        {"action": "REFINE", "ids": ["msg:1"], "rationale": "says it", "statement": "Ana lives in Oslo."},
        {"action": "DROP", "ids": ["msg:2"], "rationale": "tea", "statement": None},
    ],
    "evidence": [{"statement": "Ana lives in Oslo.", "ids": ["msg:1"]}],
    "evidence_origin": "packet",
    "cited": ["msg:1"],
    "removed": [{"part": "trace", "index": 1, "why": "trace[1]: foreign_id (msg:9)"}],
    "faults": ["trace[1]: foreign_id (msg:9)"],
    "facts": {"candidate_tokens": 12.0, "evidence_tokens": 5.0, "parsed": 1.0},
}


def test_a_packet_reaches_the_page_as_data_of_known_types(tmp_path) -> None:
    broken = {"candidates": "none", "trace": [7], "evidence": None, "facts": [], "plan": "x"}
    write_trajectories(tmp_path, [make_line(packet=PACKET), make_line(sample=1, packet=broken), make_line(sample=2)])
    index = index_episodes(tmp_path / "trajectories", [])
    whole, odd, plain = load_episodes(index.entries).values()
    assert plain["packet"] is None
    packet = whole["packet"]
    assert [item["id"] for item in packet["candidates"]] == ["msg:1", "msg:2"] and packet["plan"]["evidence_target"] == "1"
    assert packet["actions"][1] == {"ids": ["msg:2"], "action": "DROP", "rationale": "tea", "statement": ""}
    assert packet["evidence"] == [{"ids": ["msg:1"], "statement": "Ana lives in Oslo."}] and packet["removed"] == ["trace[1]: foreign_id (msg:9)"]
    assert odd["packet"]["candidates"] == [] and odd["packet"]["plan"] is None and odd["packet"]["trace"][0]["ids"] == []


def test_the_page_holds_the_packet_and_no_markup_of_it(tmp_path) -> None:
    write_trajectories(tmp_path, [make_line(packet=PACKET)])
    page = write_report(tmp_path).path.read_text()
    assert "function buildPacket" in page and HOSTILE not in page
    data = json.loads(page.split('id="run-data">')[1].split("</script>")[0])
    assert data["episodes"][0]["packet"]["candidates"][0]["text"].endswith(HOSTILE)


def test_an_evaluations_page_shows_the_packet_escaped() -> None:
    block = render_packet_block(PACKET)
    assert HOSTILE not in block and "&lt;script&gt;" in block
    for part in ("Candidates", "Trace and actions", "Evidence", "2, 12 tokens", "1, 5 tokens", "1 steps, 2 actions", "foreign_id (msg:9)"):
        assert part in block
    candidates = block.split("</ul>")[0]
    assert candidates.count('class="entry used"') == 1 and "REFINE" in candidates and "DROP" in candidates
    lone = PACKET | {"evidence": [{"statement": "half \ud800", "ids": ["msg:1"]}]}
    render_packet_block(lone).encode()


def test_curves_of_packets_are_there_where_packets_were_logged(tmp_path) -> None:
    logged = {"napmem/parsed": 0.9, "napmem/correctness": 0.5, "napmem/actions/KEEP": 2.0, "napmem/evidence_tokens": 30.0, "napmem/candidate_tokens": 300.0}
    logged |= {"napmem/packet_s": 0.5, "actor/pg_loss": 0.1, "actor/kl_loss": 0.01, "actor/grad_norm": 2.0, "response_length/clip_ratio": 0.25}
    write_metrics(tmp_path, [1, 2], **logged)
    charts = {chart.name: chart for chart in build_charts(load_run(tmp_path).metrics)}
    assert dict(charts["sizes"].series)["evidence"] == [30.0, 30.0]
    assert [label for label, _ in charts["actions"].series] == ["KEEP"] and charts["latency"].series[0][0] == "packet"
    assert [label for label, _ in charts["loss"].series] == ["actor/pg_loss", "actor/kl_loss"] and charts["grad"].series[0][1] == [2.0, 2.0]
    assert any("clip ratio" in label for label, _ in charts["cuts"].series)
    assert not {"signals", "actions", "sizes"} & {chart.name for chart in build_charts(Metrics(by_step={1: {"napmem/correctness": 0.5}}))}

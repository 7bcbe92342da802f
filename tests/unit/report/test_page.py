"""The page as a file: self-contained, safe whatever its texts hold, and honest about what is not in it."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from run_maker import HOSTILE, make_line, write_bank, write_metrics, write_run, write_trajectories

from napmem_rl import cli
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes
from napmem_rl.report.memories import load_memories
from napmem_rl.report.page import embed_json, write_report
from napmem_rl.report.summary_table import build_summary_table
from napmem_rl.schema import RecordOperation, RecordRevision


def read_data(path) -> dict:
    """The JSON of a written page."""
    found = re.search(r'<script type="application/json" id="run-data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found[1])


def test_the_page_holds_a_whole_run(tmp_path):
    run_dir = write_run(tmp_path)
    written = write_report(run_dir)
    data = read_data(written.path)
    assert written.path == run_dir / "report.html"
    assert (written.num_shown, written.num_episodes, written.num_problems) == (33, 33, 0)
    assert data["steps"] == [1, 2, 3, 4] and {chart["name"] for chart in data["charts"]} >= {"reward", "calls", "phases", "drops", "mismatch"}
    assert data["notices"] == [] and data["problems"]["count"] == 0
    assert data["memories"]["items"]["ana"]["rec:1"]["sources"] == ["msg:1"]
    assert "msg:2" not in data["memories"]["items"]["ana"]  # nobody looked at it
    assert len({episode["key"] for episode in data["episodes"]}) == 33
    assert sorted({sum(other["group"] == episode["group"] for other in data["episodes"]) for episode in data["episodes"]}) == [1, 4]


def test_nothing_is_fetched_and_nothing_of_a_memory_becomes_markup(tmp_path):
    path = write_report(write_run(tmp_path)).path
    text = path.read_text(encoding="utf-8")
    assert "window.hacked" in text and HOSTILE not in text
    assert text.count("<script") == 2 and text.count("</script>") == 2
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    assert "default-src 'none'" in text and "unsafe-inline" not in text
    assert "innerHTML" not in text and "eval(" not in text


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_embedded_json_is_read_back_as_it_was_and_holds_no_markup(value):
    text = embed_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_a_lone_surrogate_does_not_break_the_page():
    assert json.loads(embed_json({"text": "a\ud800b"})) == {"text": "a?b"}


def test_the_same_run_gives_the_same_page(tmp_path):
    run_dir = write_run(tmp_path)
    first = write_report(run_dir, out=tmp_path / "a.html").path.read_bytes()
    assert write_report(run_dir, out=tmp_path / "b.html").path.read_bytes() == first


def test_what_could_not_be_read_is_told_on_the_page(tmp_path):
    run_dir = write_run(tmp_path)
    with (run_dir / "trajectories" / "step_000001.worker_0.jsonl").open("a") as stream:
        stream.write('{"half of a line')
    (run_dir / "provenance.json").unlink()
    data = read_data(write_report(run_dir).path)
    assert data["problems"]["count"] == 2
    assert {problem["file"] for problem in data["problems"]["shown"]} == {"provenance.json", "step_000001.worker_0.jsonl"}


def test_missing_banks_are_told_and_a_moved_bank_is_found_by_option(tmp_path):
    run_dir = write_run(tmp_path)
    shutil.move(tmp_path / "banks", tmp_path / "elsewhere")
    data = read_data(write_report(run_dir).path)
    assert data["memories"]["items"] == {} and "not at hand" in data["notices"][0]
    data = read_data(write_report(run_dir, banks=tmp_path / "elsewhere").path)
    assert data["notices"] == [] and "rec:1" in data["memories"]["items"]["ana"]


def test_a_bank_that_has_changed_since_the_run_is_told(tmp_path):
    run_dir = write_run(tmp_path)
    write_bank(tmp_path / "banks", text="I live in Rome.")
    data = read_data(write_report(run_dir).path)
    assert "has changed since the run" in data["memories"]["notes"]["ana"]
    assert "rec:1" in data["memories"]["items"]["ana"]


def test_a_bank_that_has_grown_since_the_run_is_shown_as_the_policy_read_it(tmp_path):
    run_dir = write_run(tmp_path)
    with BankWriter.open(tmp_path / "banks" / "ana", bank_id="ana", writer="test") as writer:
        newer = dataclasses.replace(writer.records[0], text="Ana lives in Rome.")
        writer.commit(Changes(revisions=(RecordRevision(operation=RecordOperation.UPDATE, record=newer),)))
    data = read_data(write_report(run_dir).path)
    assert "ana" not in data["memories"]["notes"] and "Ana lives in Oslo." in data["memories"]["items"]["ana"]["rec:1"]["text"]


def test_a_bank_id_that_leads_elsewhere_opens_nothing(tmp_path):
    write_bank(tmp_path / "banks")
    inside = tmp_path / "banks" / "inner"
    inside.mkdir()
    memories = load_memories({"../ana": ["rec:1"], "..": ["rec:1"], "": ["rec:1"], "missing": ["rec:1"]}, inside, {})
    assert memories.items == {} and len(memories.notes) == 4


def test_memories_beyond_the_room_are_counted(tmp_path):
    write_bank(tmp_path)
    memories = load_memories({"ana": ["rec:2", "rec:1"]}, tmp_path, {}, max_characters=130)
    assert list(memories.items["ana"]) == ["rec:2", "msg:2"] and memories.num_left_out == 1


def test_a_profile_unfolds_to_tracks_records_and_messages(tmp_path):
    write_bank(tmp_path)
    items = load_memories({"ana": ["profile"]}, tmp_path, {}).items["ana"]
    assert items["profile"]["sources"] == ["rec:1", "trk:home"] and items["trk:home"]["sources"] == ["rec:1"] and items["msg:1"]["level"] == "raw"


def test_a_large_run_says_how_many_it_shows(tmp_path):
    run_dir = write_run(tmp_path, num_steps=20)
    written = write_report(run_dir, max_episodes=40)
    shown = read_data(written.path)["shown"]
    assert written.num_shown == shown["num"] <= 40 and shown["all"] == 161 and "whole groups" in shown["how"]


def test_an_overlong_text_is_cut_and_says_so(tmp_path):
    write_trajectories(tmp_path, [make_line(question="x" * 30_000)])
    question = read_data(write_report(tmp_path).path)["episodes"][0]["question"]
    assert len(question) < 21_000 and question.endswith("10,000 more characters in the run's files]")


def test_a_run_that_has_only_begun_still_makes_a_page(tmp_path):
    write_metrics(tmp_path, [])
    data = read_data(write_report(tmp_path).path)
    assert data["episodes"] == [] and data["charts"] == [] and data["steps"] == []


def test_fields_of_wrong_types_do_not_break_the_page(tmp_path):
    odd = make_line(terms=None, options="no", question=7, final_answer=["a"], policy_version="x", detail=None, needs_memory="yes")
    odd["turns"][0]["calls"][0] |= {"arguments": [1], "item_ids": None, "latency_s": "fast"}
    write_trajectories(tmp_path, [odd])
    episode = read_data(write_report(tmp_path).path)["episodes"][0]
    assert episode["question"] == "7" and episode["answer"] == '["a"]' and episode["terms"] == {} and episode["version"] is None


def test_the_quickstarts_summary_becomes_a_table():
    side = {"reward": -0.16, "correctness": 0.23}
    gain = {"before": -0.2, "after": 0.4, "gain": 0.6, "gain_low": 0.5, "gain_high": 0.7}
    by_mode = {mode: {"fact": {"before": side, "after": {"reward": 0.84}}} for mode in ("sampled", "greedy")}
    metrics = {mode: {"before": side, "after": side} for mode in by_mode}
    summary = {"by_type": by_mode, "metrics": metrics, "sampled": gain, "judge": "lexical", "seconds": {"grpo": 426.0, "install": None}}
    table = build_summary_table(summary | {"references": [{"name": "script", "mode": "fixed", "metrics": {"reward": 0.7}}]})
    assert table["rows"][0]["cells"][:2] == [["−0.16", "0.84"], ["0.23", "–"]]
    assert [row["name"] for row in table["rows"]] == ["fact", "fact", "all", "all", "for reference: script"]
    assert table["about"] == ["sampled: reward -0.20 → +0.40, gain +0.60 [+0.50, +0.70] (95% over users); judge: lexical", "seconds by phase: grpo 426 s"]
    assert build_summary_table({"seed": 0}) is None


def test_the_command_writes_the_page_and_names_it(tmp_path, capsys):
    run_dir = write_run(tmp_path)
    assert cli.main(["report", str(run_dir), "--out", str(tmp_path / "page.html"), "--max-trajectories", "8"]) == 0
    assert "page.html" in capsys.readouterr().out and (tmp_path / "page.html").is_file()
    assert cli.main(["report", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().err


def test_the_report_needs_no_engine_and_no_torch():
    code = "import sys, napmem_rl.report.page; print(sorted({'torch', 'ray', 'verl', 'wandb', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

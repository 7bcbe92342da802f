"""Quotations of forgotten texts are found in whatever form, and cleaned from run directories and caches; everything else stays as it is."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import unicodedata
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from byte_search import find_traces

from napmem_rl.errors import ConfigError
from napmem_rl.llm.disk_cache import DiskCache
from napmem_rl.memory.builder import build_bank, load_writer
from napmem_rl.memory.forget_places import find_places
from napmem_rl.memory.forget_selection import Selectors
from napmem_rl.memory.forgetting import look
from napmem_rl.memory.text_traces import Traces
from napmem_rl.memory.trace_files import MARK, Action, clean_file, trace_run
from napmem_rl.schema import Message

SECRET = 'My locker holds a "Zorbulon" — número 4711, naïve é.'
TRACES = Traces([SECRET, "Bo left town"], kept=["My locker holds a bike and a helmet."])


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        SECRET.upper(),
        json.dumps({"a": SECRET}),
        json.dumps({"a": json.dumps({"b": SECRET})}),
        json.dumps({"a": json.dumps({"b": SECRET}, ensure_ascii=False)}),
        "she said: holds a “Zorbulon”, número\n4711!",
        "then bo  left\ntown.",
        unicodedata.normalize("NFD", SECRET),
        json.dumps({"a": unicodedata.normalize("NFD", SECRET)}),
    ],
)
def test_a_quotation_is_found_whatever_its_case_spacing_punctuation_and_escapes(text):
    assert TRACES.are_in(text)


@pytest.mark.parametrize("text", ["", "My locker holds a bike", "a Zorbulon", "Bo left", "número 4711", "She left town with Bo"])
def test_what_the_bank_still_says_and_single_words_are_no_quotation(text):
    assert not TRACES.are_in(text)


def test_texts_too_short_to_be_looked_for_are_counted():
    traces = Traces(["Yes.", "4711", "—", "Elephant"])
    assert traces.num_short == 2 and traces.are_in("an elephant") and not traces.are_in("yes 4711")


def test_text_without_spaces_is_compared_sign_by_sign():
    traces = Traces(["我上个星期搬到了卑尔根，我的妹妹帮了我。"])
    assert traces.are_in("她说：搬到了卑尔根。") and not traces.are_in("我的姐姐")


def make_run(tmp_path):
    run = tmp_path / "run"
    (run / "trajectories").mkdir(parents=True)
    turn = {"text": f"You said: {SECRET}", "new_prompt_ids": [1, 2], "response_ids": [3], "calls": [{"name": "search", "result": "ok"}]}
    rows = [{"task_id": "t1", "reward": 1.0, "turns": [turn]}, {"task_id": "t2", "reward": 0.5, "turns": [{"text": "Hello there", "response_ids": [9]}]}]
    (run / "trajectories" / "step.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "answers.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()))
    (run / "table.json").write_text(json.dumps({"columns": ["q"], "data": [[SECRET], ["fine"]]}))
    (run / "log.txt").write_text(f"start\n{SECRET[:18]}\n{SECRET[18:]}\nBo left\ntown\nend\n")
    (run / "report.html").write_text(f"<p>{SECRET[:18]}<b>{SECRET[18:]}</b></p>")
    pq.write_table(pa.table({"text": [SECRET, "fine"], "token_ids": [[1, 2], [3]], "n": [1, 2]}), run / "rows.parquet")
    (run / "data.sqlite").write_bytes(b"SQLite\0" + SECRET.encode() + b"\0")
    (run / "broken.gz").write_bytes(b"\x1f\x8bnothing")
    (run / "model.safetensors").write_bytes(b"\0")
    (run / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    return run


def test_a_run_directory_is_cleaned_file_by_file_and_what_cannot_be_is_named(tmp_path):
    run = make_run(tmp_path)
    untouched = {name: (run / name).read_bytes() for name in ("metrics.jsonl", "model.safetensors", "data.sqlite", "broken.gz")}
    found = trace_run(run, TRACES)
    actions = {file.path.name: file.action for file in found}
    cleaned = {"step.jsonl", "answers.jsonl.gz", "table.json", "log.txt", "rows.parquet"}
    others = {"report.html": Action.REMOVED, "data.sqlite": Action.LEFT, "broken.gz": Action.UNREAD, "model.safetensors": Action.WEIGHTS}
    assert actions == dict.fromkeys(cleaned, Action.CLEANED) | others
    for file in found:
        clean_file(file, TRACES)
    assert find_traces("Zorbulon", run) == [str(run / "data.sqlite")]
    assert {name: (run / name).read_bytes() for name in untouched} == untouched
    first, second = map(json.loads, (run / "trajectories" / "step.jsonl").read_text().splitlines())
    assert first == {"task_id": "t1", "reward": 1.0, "turns": [{"text": MARK, "calls": [{"name": "search", "result": "ok"}]}]}, "tokens spell the text"
    assert second == {"task_id": "t2", "reward": 0.5, "turns": [{"text": "Hello there", "response_ids": [9]}]}
    assert [json.loads(line) for line in gzip.decompress((run / "answers.jsonl.gz").read_bytes()).splitlines()] == [first, second]
    assert json.loads((run / "table.json").read_text()) == {"columns": ["q"], "data": [[MARK], ["fine"]]}
    assert (run / "log.txt").read_text() == f"start\n{MARK}\nend\n", "no line of it is left"
    assert pq.read_table(run / "rows.parquet").to_pylist() == [{"text": MARK, "token_ids": [], "n": 1}, {"text": "fine", "token_ids": [3], "n": 2}]
    assert {file.path.name for file in trace_run(run, TRACES)} == {"data.sqlite", "broken.gz", "model.safetensors"}, "cleaned once is clean"


def test_the_byte_search_of_these_tests_sees_every_form(tmp_path):
    forms = {
        "utf16": SECRET.encode("utf-16"),
        "json": json.dumps(json.dumps(SECRET)).encode(),
        "gz": gzip.compress(SECRET.encode()),
        "base64": b"xx" + base64.b64encode(b"some text before " + SECRET.encode() + b" and after"),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
    pq.write_table(pa.table({"a": [SECRET]}), tmp_path / "parquet")
    assert len(find_traces(SECRET, tmp_path)) == 5


def test_a_cache_loses_the_entries_that_quote_it_in_key_or_value_and_keeps_those_of_other_users(tmp_path):
    said = [Message(message_id="msg:1", session_id="s", role="user", speaker="Ana", text=SECRET, time="2024-03-01T10:00:00")]
    build_bank(tmp_path / "ana", "ana", said)
    cache = DiskCache(tmp_path / "cache")
    prompt = json.dumps({"messages": [{"label": "m1", "text": SECRET}]})
    cache.put({"messages": [{"content": prompt}]}, {"text": "{}"})
    cache.put({"messages": [{"content": "of Bo"}]}, {"text": SECRET})
    cache.put({"messages": [{"content": "of Bo"}], "n": 2}, {"text": "Bo likes tea."})
    plan = look(tmp_path / "ana", Selectors(message_ids=("msg:1",)), lambda: load_writer("ana", "rules"))
    places = find_places(plan, [tmp_path / "cache"], [])
    assert list(places.describe()) == [f"cache {tmp_path / 'cache'}: 2 entries quote it"]
    places.clean()
    assert find_traces("Zorbulon", tmp_path / "cache") == [] and cache.get({"messages": [{"content": "of Bo"}], "n": 2}) == {"text": "Bo likes tea."}
    with pytest.raises(ConfigError, match="nowhere: is not there"):
        find_places(plan, [], [tmp_path / "nowhere"])


def clean_one(tmp_path, name, content):
    """The file's bytes after it was cleaned, and what became of it; (None, None) where nothing was found in it."""
    (tmp_path / "one").mkdir(exist_ok=True)
    path = tmp_path / "one" / name
    path.write_bytes(content)
    for traced in trace_run(path, TRACES):
        clean_file(traced, TRACES)
        return path.read_bytes(), traced.action
    return None, None


def test_of_a_quotation_over_several_lines_no_line_is_left(tmp_path):
    text = 'kept\n> My locker\n> holds a "Zorbulon" — número\n> 4711, naïve é.\nkept too\n'
    assert clean_one(tmp_path, "notes.md", text.encode()) == (f"kept\n{MARK}\nkept too\n".encode(), Action.CLEANED)
    text = '{"a": 1}\nMy locker holds a Zorbulon\nnúmero 4711 naïve é\n{"b": "número 4711"}\n'
    assert clean_one(tmp_path, "rows.jsonl", text.encode())[0] == f'{{"a": 1}}\n{MARK}\n{{"b": "número 4711"}}\n'.encode()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_text_in_another_encoding_is_cleaned_in_it(tmp_path, encoding):
    content, action = clean_one(tmp_path, "log.txt", f"first\n{SECRET}\nlast\n".encode(encoding))
    assert action is Action.CLEANED and content.decode(encoding) == f"first\n{MARK}\nlast\n"


def test_packed_files_are_looked_into_and_those_of_no_known_kind_are_named(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sheet.xml", SECRET.replace(" ", "</t> <t>"))
    assert clean_one(tmp_path, "table.xlsx", packed.getvalue()) == (packed.getvalue(), Action.LEFT)
    content, action = clean_one(tmp_path, "run.log.bz2", bz2.compress(f"{SECRET}\nkept".encode()))
    assert action is Action.CLEANED and bz2.decompress(content).decode() == f"{MARK}\nkept"


def test_a_text_in_pieces_beside_the_text_goes_with_it(tmp_path):
    row = json.dumps({"text": SECRET, "pieces": ["My lock", "er holds", " a Zor", "bulon", " número", " 4711"], "other": ["kept"]})
    content, action = clean_one(tmp_path, "row.jsonl", row.encode())
    assert action is Action.CLEANED and json.loads(content) == {"text": MARK, "pieces": [MARK], "other": ["kept"]}

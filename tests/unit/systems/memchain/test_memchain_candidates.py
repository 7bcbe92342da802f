"""Candidates out of a bank and out of a file."""

from __future__ import annotations

import ast
import inspect
import json
import typing
from dataclasses import fields, replace
from pathlib import Path

import pytest
from bank_maker import make_message, make_record

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.memory.bank import MemoryBank, save_bank
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.schema import AnswerKey, Level, Profile, Task
from napmem_rl.systems.memchain import candidate_file, candidates, intent
from napmem_rl.systems.memchain.candidate_file import find_candidates, load_candidates, save_candidates
from napmem_rl.systems.memchain.candidates import BankViews, Candidate, CandidateConfig, View, retrieve_candidates
from napmem_rl.systems.memchain.intent import find_inner_names, find_names, guess_intent
from napmem_rl.systems.memchain.packet import Intent

SAID = (
    "My sister is called Mirela.", "The weather is mild.", "I read a novel.", "I repaired the old lamp.", "Then we went for a walk.",
    "The lamp was my aunt's.", "I planted tulips.", "Tulips like the sun.", *(f"Dinner number {number} was fine." for number in range(9, 30)),
    "Mirela left for Gdansk.",
)  # fmt: skip
FAR = "msg:30"
TASK = Task(task_id="t1", bank_id="ana", question="Which town did my sister move to?", category="two_hop", needs_memory=True)


@pytest.fixture(scope="module")
def bank(tmp_path_factory) -> MemoryBank:
    path = tmp_path_factory.mktemp("banks") / "ana"
    messages = tuple(make_message(number, text) for number, text in enumerate(SAID, 1))
    records = (make_record(1, "Ana's sister is Mirela."), make_record(30, "Mirela lives in Gdansk."))
    save_bank(path, bank_id="ana", messages=messages, records=records, tracks=(), profile=Profile(text="", time="", source_ids=()), writer="hand")
    return MemoryBank.open(path)


def retrieve(bank: MemoryBank, task: Task = TASK, *, encoder=None, **settings) -> tuple[Candidate, ...]:
    config = CandidateConfig(**settings)
    return retrieve_candidates(task, BankViews(bank, encoder=encoder, levels=config.levels), config)


def test_a_memory_that_shares_no_word_with_the_question_is_reached_over_a_name(bank) -> None:
    found = {candidate.id: candidate for candidate in retrieve(bank)}
    assert found[FAR].views == (View.BRIDGE,) and found[FAR].text == "Mirela left for Gdansk."
    assert View.LEXICAL in found["msg:1"].views
    first = found["msg:1"]
    assert (first.time, first.speaker, first.session_id, first.level, first.source_ids) == ("2024-03-01T10:00:00", "Ana", "s1", Level.RAW, ("msg:1",))


def test_turns_around_a_find_are_candidates_too(bank) -> None:
    found = {candidate.id: candidate for candidate in retrieve(bank, replace(TASK, question="What was repaired?"))}
    assert View.LEXICAL in found["msg:4"].views
    assert View.NEIGHBOURHOOD in found["msg:5"].views and View.LEXICAL not in found["msg:5"].views


def test_names_are_searched_for_by_themselves(bank) -> None:
    found = {candidate.id: candidate for candidate in retrieve(bank, replace(TASK, question="Did Mirela ever see Gdansk?"))}
    assert View.ENTITY in found[FAR].views and View.ENTITY in found["msg:1"].views


def test_the_dense_view_is_there_with_an_encoder_alone(bank) -> None:
    assert any(View.DENSE in candidate.views for candidate in retrieve(bank, encoder=HashingEncoder()))
    assert not any(View.DENSE in candidate.views for candidate in retrieve(bank))


def test_candidates_are_few_best_first_each_once_and_the_same_every_time(bank) -> None:
    task = replace(TASK, question="How was dinner with the lamp, the tulips and Mirela's walk?")
    found = retrieve(bank, task)
    assert len(found) == 24 and len({candidate.id for candidate in found}) == 24
    assert [candidate.score for candidate in found] == sorted((candidate.score for candidate in found), reverse=True)
    assert found == retrieve(bank, task) and len(retrieve(bank, task, max_candidates=5)) == 5


def test_nothing_later_than_the_question_is_a_candidate(bank) -> None:
    found = retrieve(bank, replace(TASK, question="What about dinner and Mirela?", asked_at="2024-03-12T00:00:00"))
    assert found and max(candidate.time for candidate in found) <= "2024-03-12T00:00:00"


def test_records_are_candidates_where_asked_for_with_the_messages_they_rest_on(bank) -> None:
    found = retrieve(bank, levels=(Level.RECORD,))
    assert {candidate.id: candidate.source_ids for candidate in found} == {"rec:1": ("msg:1",), "rec:30": (FAR,)}
    assert {candidate.level for candidate in retrieve(bank, levels=(Level.RAW, Level.RECORD))} == {Level.RAW, Level.RECORD}


def test_a_question_without_a_match_has_no_candidates(bank) -> None:
    assert retrieve(bank, replace(TASK, question="Xylophones?")) == ()


def test_retrieval_reads_the_question_and_its_moment_and_nothing_else_of_a_task(bank) -> None:
    class Watched:
        """Hands on what is asked for and notes its name."""

        seen: set[str] = set()

        def __getattr__(self, name: str):
            self.seen.add(name)
            return getattr(TASK, name)

    assert retrieve(bank, Watched()) == retrieve(bank)
    assert Watched.seen == {"question", "asked_at", "task_id"}


@pytest.mark.parametrize("module", [candidates, candidate_file, intent])
def test_retrieval_has_no_way_to_an_answer(module) -> None:
    """Neither signatures nor imports nor names of the modules know of answer keys, references or gold evidence."""
    tree = ast.parse(inspect.getsource(module))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import) for alias in node.names}
    sources = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "AnswerKey" not in imported and not any(name.startswith(("napmem_rl.rewards", "napmem_rl.data", "napmem_rl.evals")) for name in sources)
    assert "schema" not in imported  # no way around the names
    classes = [item for _, item in inspect.getmembers(module, inspect.isclass) if item.__module__ == module.__name__]
    for _, function in (pair for holder in (module, *classes) for pair in inspect.getmembers(holder, inspect.isfunction)):
        if function.__module__ != module.__name__:
            continue
        hints = typing.get_type_hints(function, vars(module))
        assert AnswerKey not in hints.values() and not any("AnswerKey" in str(hint) for hint in hints.values())
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    secrets = {field.name for field in fields(AnswerKey)} - {"task_id"} | {"category", "needs_memory"}
    assert not attributes & (secrets - {"kind"})


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Where does Ana live?", Intent.LOOKUP),
        ("When did Ana move?", Intent.TEMPORAL),
        ("How many weeks passed between the two trips?", Intent.TEMPORAL),
        ("How many times did I visit the dentist?", Intent.COUNT),
        ("Which phone do I have now?", Intent.UPDATE),
        ("Which trip was longer, Rome or Oslo?", Intent.COMPARISON),
        ("Was the lamp cheaper than the rug?", Intent.COMPARISON),
        ("Can you recommend a film for tonight?", Intent.PREFERENCE),
        ("What is the job of the person who lives next door?", Intent.MULTI_HOP),
        ("Which hobby does Ana's older cousin enjoy?", Intent.MULTI_HOP),
        ("Where does my neighbour work?", Intent.MULTI_HOP),
        ("What happened on 5 May 2023?", Intent.TEMPORAL),
    ],
)
def test_the_intent_is_read_from_the_words_of_the_question(question: str, expected: Intent) -> None:
    assert guess_intent(question) is expected


def test_names_leave_out_words_that_only_start_a_sentence() -> None:
    assert find_names("What did Ana's friend say of “Blue Sky” in New York on Monday?") == ("Blue Sky", "Ana", "New York")
    assert find_names("Did he go?") == ()
    assert find_inner_names("Wow! Yes, my sister is Mirela. Lunch with Tom Reed was nice.") == ("Mirela", "Tom Reed")


@pytest.mark.parametrize(("name", "value"), [("max_candidates", 25), ("depth", 0), ("levels", ()), ("levels", (Level.PROFILE,))])
def test_settings_out_of_range_are_refused(name: str, value) -> None:
    with pytest.raises(ConfigError, match=name):
        CandidateConfig(**{name: value})


def test_candidates_come_back_from_a_file_as_they_were_saved(bank, tmp_path) -> None:
    found = retrieve(bank)
    save_candidates(tmp_path / "c.jsonl", {"t1": found, "t2": ()})
    assert load_candidates(tmp_path / "c.jsonl") == {"t1": found, "t2": ()}


def write(path: Path, *candidates_of_t1: dict, **more) -> Path:
    path.write_text(json.dumps({"task_id": "t1", "candidates": list(candidates_of_t1)} | more) + "\n")
    return path


def test_a_retriever_needs_to_give_no_more_than_ids_and_texts(tmp_path) -> None:
    path = write(tmp_path / "c.jsonl", {"id": "chunk-é-1", "text": "We moved."})
    assert load_candidates(path)["t1"] == (Candidate(id="chunk-é-1", text="We moved."),)


@pytest.mark.parametrize(
    ("rows", "more", "problem"),
    [
        ([{"id": "a", "text": "x"}, {"id": " a", "text": "y"}], {}, "an id twice"),
        ([{"id": "caf\u00e9", "text": "x"}, {"id": "cafe\u0301", "text": "y"}], {}, "an id twice"),
        ([{"id": "a b", "text": "x"}], {}, "cannot be cited"),
        ([{"id": "", "text": "x"}], {}, "cannot be cited"),
        ([{"id": "a"}], {}, "misses text"),
        ([{"id": "a", "text": " "}], {}, "has no text"),
        ([{"id": "a", "text": "x", "answer": "Oslo"}], {}, "unknown field; got 'answer'"),
        ([{"id": 1, "text": "x"}], {}, "id that is no text"),
        ([{"id": "a", "text": "x", "time": "yesterday"}], {}, "no time that can be read"),
        ([{"id": "a", "text": "x", "score": "high"}], {}, "no number"),
        ([{"id": "a", "text": "x", "level": "attic"}], {}, "unknown level"),
        ([{"id": "a", "text": "x", "views": "bm25"}], {}, "no list of texts"),
        ([{"id": f"a{number}", "text": "x"} for number in range(25)], {}, "too many; got 25"),
        ([], {"gold": 1}, "unknown field; got 'gold'"),
        ([], {"candidates": None}, "list of candidates"),
        ([[]], {}, "no JSON object"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(tmp_path, rows, more, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        load_candidates(write(tmp_path / "c.jsonl", *rows, **more))
    assert "c.jsonl, line 1" in caught.value.message


def test_broken_files_are_told(tmp_path) -> None:
    path = tmp_path / "c.jsonl"
    line = '{"task_id": "t1", "candidates": []}\n'
    for content, problem in ((line + line, "line 2: names a task again"), ("{", "no JSON object"), ('{"a": 1, "a": 2}', "given twice")):
        path.write_text(content)
        with pytest.raises(DataError, match=problem):
            load_candidates(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        load_candidates(path)
    with pytest.raises(DataError, match="cannot be read"):
        load_candidates(tmp_path / "none.jsonl")


def test_a_file_that_lacks_a_task_or_knows_the_future_is_refused(tmp_path) -> None:
    path = write(tmp_path / "c.jsonl", {"id": "a", "text": "x", "time": "2024-03-05T10:00:00"})
    found = load_candidates(path)
    assert find_candidates(found, TASK, path=path)[0].id == "a"
    with pytest.raises(DataError, match="do not have a task; got 't2'"):
        find_candidates(found, replace(TASK, task_id="t2"), path=path)
    with pytest.raises(DataError, match="later than the question"):
        find_candidates(found, replace(TASK, asked_at="2024-03-04T00:00:00"), path=path)

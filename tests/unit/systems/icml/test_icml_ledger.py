"""The ledger: every rule has a book that breaks it, and random lives of a user keep them all, whenever the process is killed."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kill_points import kill_at, run_in_child

from napmem_rl.cli import main
from napmem_rl.errors import DataError
from napmem_rl.systems.icml.ledger import Entry, Kind, check_entries, find_pending, parse_entry
from napmem_rl.systems.icml.steps import Decision, PlannerStep, Utterances
from napmem_rl.systems.icml.user_state import LEDGER, STATE, UserState, UserStore

SAVE = Entry(kind=Kind.SAVE, session_id="s1", step_id="s1/0/planner", agent="planner", amount=0.5, memory_id="mem:0")
CHOICE = Entry(kind=Kind.QUALITY, session_id="s1", step_id="s1/0/trigger", agent="trigger", amount=0.8)
END = Entry(kind=Kind.END, session_id="s1")
HIT = Entry(kind=Kind.QUALITY, session_id="s2", step_id="s2/0/trigger", agent="trigger", amount=0.8, memory_id="mem:0")
TRUTH = Entry(kind=Kind.TRUTH, session_id="s2", step_id="s1/0/planner", agent="planner", amount=0.4, memory_id="mem:0", cause="s2/0/trigger")
DISCARD = Entry(kind=Kind.DISCARD, session_id="s2", step_id="s2/0/planner", agent="planner", amount=0.0)
BOOK = (CHOICE, SAVE, END, HIT, TRUTH, DISCARD, Entry(kind=Kind.END, session_id="s2"))


def without(*entries: Entry) -> list[Entry]:
    return [entry for entry in BOOK if entry not in entries]


def changed(entry: Entry, **fields: object) -> list[Entry]:
    return [dataclasses.replace(found, **fields) if found is entry else found for found in BOOK]


def test_a_book_that_keeps_the_rules_has_no_problem_and_a_hit_leaves_the_buffer() -> None:
    assert check_entries(BOOK, truth_weight=0.5) == []
    assert find_pending(BOOK) == {} and find_pending(BOOK[:4]) == {"mem:0": "s1/0/planner"}


@pytest.mark.parametrize(
    ("book", "problem"),
    [
        ([*BOOK[:2], SAVE, *BOOK[2:]], "was paid before"),
        ([*BOOK[:5], TRUTH, *BOOK[5:]], "was paid truth or withdrawn before"),
        (changed(TRUTH, memory_id="mem:9"), "was never saved"),
        (changed(TRUTH, cause="s2/7/trigger"), "no choice that was made"),
        (changed(HIT, memory_id=""), "chose no memory"),
        (changed(HIT, amount=None), "no quality"),
        (changed(TRUTH, amount=0.5), "expected 0.5 times 0.8"),
        (changed(TRUTH, step_id="s2/0/planner"), "was saved by s1/0/planner"),
        (changed(SAVE, session_id="s2"), "not in its own"),
        (changed(SAVE, amount=float("inf")), "not finite"),
        (changed(SAVE, agent="trigger"), "expected planner"),
        (changed(SAVE, memory_id=""), "has no id"),
        (without(DISCARD), "not paid alike"),
        ([*BOOK, dataclasses.replace(DISCARD, step_id="s2/1/planner")], "had ended"),
        ([*BOOK[:4], Entry(kind=Kind.WITHDRAWN, session_id="s2", memory_id="mem:0"), *BOOK[4:]], "was paid truth or withdrawn before"),
    ],
)
def test_a_broken_rule_is_named(book: Sequence[Entry], problem: str) -> None:
    assert any(problem in line for line in check_entries(book, truth_weight=0.5)), check_entries(book, truth_weight=0.5)


def test_entries_survive_json_and_others_are_refused() -> None:
    assert [parse_entry(entry.as_row(), "entry") for entry in BOOK] == list(BOOK)
    wrong = [[], {"kind": "save"}, {"kind": "gift", "session_id": "s"}, {"kind": "save", "session_id": "s", "amount": "1"}, {"kind": "end", "session_id": 3}]
    for row in wrong:
        with pytest.raises(DataError, match="line 3"):
            parse_entry(row, "ledger.jsonl, line 3")


def make_step(step_id: str) -> PlannerStep:
    turn = Utterances(user=f"words of {step_id} — ünï", assistant="I see.")
    return PlannerStep(step_id=step_id, turn=turn, decision=Decision(action=1, log_prob=-0.1, value=0.3, policy_version=2), reward=0.5)


def make_session(session_id: str, turns: Sequence[tuple[bool, int, float | None]], waiting: Mapping[str, PlannerStep]):
    """Entries and waiting decisions of a session; a turn is (saves, which waiting memory it triggers, quality)."""
    entries, left, known = [], dict(waiting), list(waiting)
    for number, (saves, wanted, quality) in enumerate(turns):
        chosen = known[wanted % len(known)] if known and wanted else ""
        step = f"{session_id}/{number}"
        entries.append(Entry(kind=Kind.QUALITY, session_id=session_id, step_id=f"{step}/trigger", agent="trigger", amount=quality, memory_id=chosen))
        if chosen in left and quality is not None:
            paid = {"step_id": left.pop(chosen).step_id, "amount": 0.5 * quality, "memory_id": chosen, "cause": f"{step}/trigger"}
            entries.append(Entry(kind=Kind.TRUTH, session_id=session_id, agent="planner", **paid))
        memory = f"mem:{step}" if saves else ""
        kind = Kind.SAVE if saves else Kind.DISCARD
        entries.append(Entry(kind=kind, session_id=session_id, step_id=f"{step}/planner", agent="planner", amount=0.5, memory_id=memory))
        if saves:
            left[memory] = make_step(f"{step}/planner")
            known.append(memory)
    return [*entries, Entry(kind=Kind.END, session_id=session_id)], left


def add_session(store: UserStore, turns: Sequence[tuple[bool, int, float | None]]) -> UserState:
    state = store.load()
    number = len(state.sessions)
    entries, waiting = make_session(f"s{number}", turns, state.waiting)
    return store.commit(state, entries, waiting=waiting, bank_version=f"v{number}", policy_version=number)


TURNS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.none() | st.floats(0, 1)), max_size=5)


@settings(max_examples=40, deadline=None)
@given(sessions=st.lists(TURNS, max_size=5))
def test_whatever_happens_in_the_sessions_nothing_is_lost_and_nothing_paid_twice(tmp_path_factory, sessions) -> None:
    store = UserStore(tmp_path_factory.mktemp("user"), "ana")
    expected = UserState(user_id="ana")
    for turns in sessions:
        expected = add_session(store, turns)
        assert store.load() == expected
    saved = [entry.memory_id for entry in expected.entries if entry.kind is Kind.SAVE]
    truths = [entry.memory_id for entry in expected.entries if entry.kind is Kind.TRUTH]
    assert sorted([*truths, *expected.waiting]) == sorted(saved) and len(set(truths)) == len(truths)
    assert check_entries(expected.entries, truth_weight=0.5) == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_killed_amid_a_commit_leaves_the_session_whole_or_not_at_all(tmp_path: Path, moment: str) -> None:
    turns = [(True, 1, 0.5), (False, 0, None), (True, 2, 1.0)]
    add_session(UserStore(tmp_path / "old", "ana"), [(True, 0, 0.1), (True, 0, 0.2)])
    old = UserStore(tmp_path / "old", "ana").load()
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    new = add_session(UserStore(tmp_path / "new", "ana"), turns)
    found = []
    for point in range(1, 20):
        path = tmp_path / str(point)
        shutil.copytree(tmp_path / "old", path)
        status = run_in_child(lambda path=path, point=point: (kill_at(point, moment), add_session(UserStore(path, "ana"), turns)))
        state = UserStore(path, "ana").load()
        found.append(state == new)
        assert state in (old, new)
        if state == old:
            assert add_session(UserStore(path, "ana"), turns) == new, "the session can be held again"
        if not os.WIFSIGNALED(status):
            assert status == 0
            break
    assert len(found) > 4 and found == sorted(found) and found[-1] and not found[0]


def test_a_half_written_line_that_no_state_knows_is_cut_off(tmp_path: Path) -> None:
    store = UserStore(tmp_path, "ana")
    before = add_session(store, [(True, 0, 0.5)])
    with (tmp_path / LEDGER).open("ab") as stream:
        stream.write(b'{"kind": "tru')
    assert store.load() == before
    after = add_session(store, [(False, 1, 1.0)])
    assert store.load() == after and b"tru\n" not in (tmp_path / LEDGER).read_bytes() and after.waiting == {}


def test_two_processes_on_one_user_cannot_both_add_a_session(tmp_path: Path) -> None:
    store = UserStore(tmp_path, "ana")
    seen = store.load()
    mine, waiting = make_session("s0", [(True, 0, 0.5)], {})
    add_session(store, [(False, 0, 0.5)])
    with pytest.raises(DataError, match="has got another session"):
        store.commit(seen, mine, waiting=waiting, bank_version="v", policy_version=0)
    assert store.load().sessions == ("s0",) and store.load().waiting == {}


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    store = UserStore(tmp_path, "ana")
    add_session(store, [(True, 0, 0.5)])
    with pytest.raises(DataError, match="another user"):
        UserStore(tmp_path, "bob").load()
    book = (tmp_path / LEDGER).read_bytes()
    (tmp_path / LEDGER).write_bytes(book.replace(b"0.5", b"0.9", 1))
    with pytest.raises(DataError, match="is not what state.json was written with"):
        store.load()
    (tmp_path / LEDGER).write_bytes(book)
    (tmp_path / STATE).write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="cannot be read"):
        store.load()


def test_a_session_that_breaks_a_rule_is_not_taken_in(tmp_path: Path) -> None:
    store = UserStore(tmp_path, "ana")
    entries, waiting = make_session("s0", [(True, 0, 0.5)], {})
    for wrong, left in ((entries[:-1], waiting), (entries, {}), ([*entries[:-1], entries[-2], entries[-1]], waiting)):
        with pytest.raises(DataError, match="breaks the ledger's rules"):
            store.commit(store.load(), wrong, waiting=left, bank_version="v", policy_version=0)
    assert not (tmp_path / STATE).exists() and not (tmp_path / LEDGER).exists()


def test_the_command_verifies_a_users_ledger_and_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = UserStore(tmp_path, "ana")
    add_session(store, [(True, 0, 0.5)])
    add_session(store, [(False, 1, 0.5)])
    assert main(["ledger", "verify", str(tmp_path)]) == 0
    assert "ana: 2 sessions, 7 entries, 0 memories wait for their truth: every rule holds" in capsys.readouterr().out
    assert main(["ledger", "verify", str(tmp_path), "--truth-weight", "0.1"]) == 1
    assert "expected 0.1 times 0.5" in capsys.readouterr().out
    assert main(["ledger", "show", str(tmp_path)]) == 0
    assert "s1/0/trigger" in capsys.readouterr().out
    assert main(["ledger", "verify", str(tmp_path / "nobody")]) == 1
    assert "there is no user" in capsys.readouterr().err

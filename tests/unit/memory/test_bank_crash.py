"""A writer that is killed at any point of its work leaves the bank at one version or the other; one writer at a time, any number of readers beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest
from bank_maker import TEXTS, make_levels, make_message, make_record, save_sample
from kill_points import kill_at, run_in_child

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_place import build_beside
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes
from napmem_rl.schema import RecordOperation, RecordRevision

SESSIONS = 25


def write_session(path: Path, **options) -> str:
    """One more message, a record of it and one that is revised, a changed profile."""
    with BankWriter.open(path, bank_id="ana", writer="hand", **options) as writer:
        number = len(writer.messages) + 1
        profile = make_levels()["profile"]
        tracks = tuple(track for track in writer.tracks if track.file_name != "bike.md")
        changed = Changes(
            messages=(make_message(number, "I sold the bike."),),
            revisions=(RecordRevision(operation=RecordOperation.STORE, record=make_record(number, "Ana sold the bike.")),),
            tracks=tracks,
            profile=type(profile)(text=f"{profile.text} {number}", time=profile.time, source_ids=profile.source_ids),
            state={"session": number},
        )
        return writer.commit(changed)


def check_after_crash(path: Path, allowed: set[str]) -> str:
    """The bank is one of these versions, whole; and writing goes on. Returns the version found."""
    version = MemoryBank.open(path).version
    assert version in allowed
    assert verify_bank(path) == []
    following = MemoryBank.open(path, expected_version=write_session(path, durable=False))
    assert following.state["session"] == len(following.messages)
    assert verify_bank(path) == [] and not list((path / "files").glob(".*")), "what the crash left is gone"
    return version


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_a_writer_killed_at_any_point_of_a_commit_leaves_the_old_version_or_the_new_one(tmp_path, moment, durable):
    old = save_sample(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    new = write_session(tmp_path / "new")
    found = []
    for point in range(1, 100):
        path = tmp_path / f"{point}"
        shutil.copytree(tmp_path / "old", path)
        status = run_in_child(lambda path=path, point=point: (kill_at(point, moment), write_session(path, durable=durable)))
        found.append(check_after_crash(path, {old, new}))
        if not os.WIFSIGNALED(status):
            assert status == 0
            break
    assert len(found) > (12 if durable else 6) and found == sorted(found, key=[old, new].index), "first the old one, from some point on the new one"
    assert {old, new} == set(found)


@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_a_writer_killed_while_it_makes_a_new_bank_leaves_a_place_to_begin_again(tmp_path, moment):
    for point in range(1, 100):
        path = tmp_path / f"{point}"

        def write(path: Path = path, point: int = point) -> None:
            kill_at(point, moment)
            with BankWriter.open(path, bank_id="ana", writer="hand") as writer:
                writer.commit(Changes(messages=(make_message(1),)))

        status = run_in_child(write)
        with BankWriter.open(path, bank_id="ana", writer="hand") as writer:
            assert len(writer.messages) in (0, 1)
            writer.commit(Changes(messages=(make_message(2),)))
        assert verify_bank(path) == []
        if not os.WIFSIGNALED(status):
            return
    pytest.fail("the writer never came to its end")


@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_a_save_killed_at_any_point_leaves_the_old_bank_or_the_new_one(tmp_path, moment):
    levels = make_levels()
    messages = (*levels["messages"], make_message(6, "I sold the bike."))
    old, new, found = save_sample(tmp_path / "old"), save_sample(tmp_path / "new", messages=messages), []
    for point in range(1, 100):
        path = tmp_path / f"{point}" / "ana"
        shutil.copytree(tmp_path / "old", path)
        status = run_in_child(lambda path=path, point=point: (kill_at(point, moment), save_sample(path, messages=messages)))
        found.append(MemoryBank.open(path).version)
        assert verify_bank(path) == []
        with build_beside(path):  # as the next save does
            assert [entry.name for entry in path.parent.iterdir()] == ["ana"], "what the crash left beside the bank is gone"
        if not os.WIFSIGNALED(status):
            break
    assert found == sorted(found, key=[old, new].index) and {old, new} == set(found) and len(found) > 15


def test_a_second_writer_is_told_at_once_who_holds_the_bank(tmp_path):
    save_sample(tmp_path / "ana")
    with BankWriter.open(tmp_path / "ana", bank_id="ana", writer="hand"):
        expected = f"is being written by process {os.getpid()} on {socket.gethostname()}"

        def write() -> None:
            with pytest.raises(BankError, match=expected):
                BankWriter.open(tmp_path / "ana", bank_id="ana", writer="hand")
            with pytest.raises(BankError, match=expected):
                save_sample(tmp_path / "ana", messages=(*make_levels()["messages"], make_message(6)))

        write()
        assert run_in_child(write) == 0
        assert MemoryBank.open(tmp_path / "ana").messages == make_levels()["messages"], "readers are not held up"
    assert [entry.name for entry in tmp_path.iterdir()] == ["ana"]
    write_session(tmp_path / "ana")


def test_the_lock_of_a_killed_writer_does_not_block(tmp_path):
    save_sample(tmp_path / "ana")

    def hold_and_die() -> None:
        BankWriter.open(tmp_path / "ana", bank_id="ana", writer="hand")
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.WTERMSIG(run_in_child(hold_and_die)) == signal.SIGKILL
    write_session(tmp_path / "ana")
    assert verify_bank(tmp_path / "ana") == []


def test_readers_beside_a_writer_always_see_one_whole_version(tmp_path, caplog):
    path = tmp_path / "ana"
    save_sample(path)
    readers = []
    for _ in range(2):
        reader = os.fork()
        if reader == 0:
            try:
                os._exit(0 if read_until_end(path) > 3 else 2)
            except BaseException as error:
                print(f"reader: {error!r}", flush=True)
                os._exit(1)
        readers.append(reader)
    for _ in range(SESSIONS):
        write_session(path, durable=False)
    assert [os.waitpid(reader, 0)[1] for reader in readers] == [0, 0]
    assert verify_bank(path) == [] and not caplog.records


def read_until_end(path: Path) -> int:
    """Open the bank until the writer has made all sessions; returns how many versions were seen."""
    seen: dict[int, str] = {}
    while max(seen, default=0) < len(TEXTS) + SESSIONS:
        bank = MemoryBank.open(path)
        number = len(bank.messages)
        assert bank.state.get("session", len(TEXTS)) == number == int(bank.messages[-1].message_id[4:])
        assert len(bank.records) == number - 1 and bank.search_messages("bike", k=1)
        assert number >= max(seen, default=0) and seen.setdefault(number, bank.version) == bank.version
        assert number == len(TEXTS) or bank.profile.text.endswith(f" {number}")
    return len(seen)


def test_a_bank_that_is_replaced_while_it_is_read_is_the_old_one_or_the_new_one(tmp_path):
    path = tmp_path / "ana"
    levels = make_levels()
    longer = (*levels["messages"], make_message(6, "I sold the bike."))
    versions = {save_sample(path, messages=longer), save_sample(path)}
    writer = os.fork()
    if writer == 0:
        for index in range(60):
            save_sample(path, messages=longer if index % 2 else levels["messages"])
        os._exit(0)
    seen = set()
    while os.waitpid(writer, os.WNOHANG) == (0, 0):
        seen.add(MemoryBank.open(path).version)
    assert seen == versions


def test_a_snapshot_keeps_giving_its_version_while_a_writer_goes_on(tmp_path):
    path = tmp_path / "ana"
    version = save_sample(path)
    bank = MemoryBank.open(path)
    before = [bank.search_messages("bike", k=5), bank.search_records("bike", k=5), list(bank.messages), list(bank.records), bank.tracks, bank.profile]
    for _ in range(3):
        write_session(path)
    shutil.rmtree(path / "index")
    again = MemoryBank.open(path, version=version)
    for snapshot in (bank, again):
        assert snapshot.version == version and snapshot.message("msg:6") is None and snapshot.record("rec:6") is None
        now = [snapshot.search_messages("bike", k=5), snapshot.search_records("bike", k=5), list(snapshot.messages), list(snapshot.records)]
        assert [*now, snapshot.tracks, snapshot.profile] == before
    assert json.loads((path / "bank.json").read_text()) == {"bank_id": "ana", "format": 2}

"""From drafts and decisions to revisions: united sources and times, and a counted repair for everything a writer can get wrong."""

from __future__ import annotations

import pytest
from scripted_memory import say

from napmem_rl.memory.build_report import Cause
from napmem_rl.memory.reconcile import MAX_RECORD_CHARS, apply_decision, check_draft
from napmem_rl.memory.writers.base import ReconcileAction, Reconciliation, RecordDraft
from napmem_rl.schema import Record, RecordOperation, RecordType

MESSAGES = {f"msg:{number}": say(number, session=f"s{(number + 1) // 2}") for number in range(1, 9)}
BATCH = [MESSAGES["msg:5"], MESSAGES["msg:6"]]
DRAFT = RecordDraft(type=RecordType.FACT, text="Ana lives in Rome.", source_ids=("msg:5",))


def record(number: int, *sources: int, text: str = "Ana lives in Oslo.") -> Record:
    newest = MESSAGES[f"msg:{max(sources)}"]
    source_ids = tuple(f"msg:{source}" for source in sources)
    return Record(record_id=f"rec:{number}", type=RecordType.FACT, text=text, time=newest.time, source_ids=source_ids, session_id=newest.session_id)


RELATED = [record(2, 1, 3), record(7, 4), record(4, 2)]


def decide(action: str, *targets: str, text: str | None = None, type: RecordType | None = None, draft: RecordDraft = DRAFT):
    decision = Reconciliation(action=ReconcileAction(action), target_ids=targets, text=text, type=type)
    return apply_decision(draft, decision, RELATED, new_id="rec:9", find_message=MESSAGES.get)


def test_a_stored_draft_is_a_record_with_the_time_and_session_of_its_newest_source():
    outcome = decide("store", draft=RecordDraft(type=RecordType.EVENT, text="x", source_ids=("msg:5", "msg:6", "msg:2")))
    stored = outcome.revision.record
    assert (stored.record_id, stored.type, stored.time, stored.session_id) == ("rec:9", RecordType.EVENT, MESSAGES["msg:6"].time, "s3")
    assert outcome.revision.operation is RecordOperation.STORE and outcome.causes == (Cause.RECORDS_STORED,)


def test_a_skipped_draft_leaves_nothing_but_a_count():
    outcome = decide("skip")
    assert outcome.revision is None and outcome.causes == (Cause.RECORDS_SKIPPED,)


def test_an_update_keeps_the_id_and_unites_sources_and_times():
    revision = decide("update", "rec:2", text="Ana moved to Rome.", type=RecordType.EVENT).revision
    assert revision.operation is RecordOperation.UPDATE and revision.merged_ids == ()
    updated = revision.record
    assert (updated.record_id, updated.text, updated.type) == ("rec:2", "Ana moved to Rome.", RecordType.EVENT)
    assert (updated.source_ids, updated.time, updated.session_id) == (("msg:1", "msg:3", "msg:5"), MESSAGES["msg:5"].time, "s3")


def test_an_update_by_older_messages_keeps_the_newer_time():
    late = RecordDraft(type=RecordType.FACT, text="x", source_ids=("msg:1",))
    updated = decide("update", "rec:7", draft=late).revision.record
    assert (updated.source_ids, updated.time, updated.session_id) == (("msg:4", "msg:1"), MESSAGES["msg:4"].time, "s2")


def test_a_merge_keeps_the_first_id_and_unites_the_sources_of_all():
    revision = decide("merge", "rec:7", "rec:2", "rec:7").revision
    assert (revision.operation, revision.record.record_id, revision.merged_ids) == (RecordOperation.MERGE, "rec:7", ("rec:2",))
    assert revision.record.source_ids == ("msg:4", "msg:1", "msg:3", "msg:5") and revision.record.text == DRAFT.text


def test_a_merge_into_one_record_is_an_update_of_it():
    outcome = decide("merge", "rec:4")
    assert outcome.revision.operation is RecordOperation.UPDATE and outcome.causes == (Cause.RECORDS_UPDATED,)


@pytest.mark.parametrize(
    ("action", "targets", "operation", "record_id", "causes"),
    [
        ("update", ["rec:77"], "store", "rec:9", [Cause.DECISION_UNKNOWN_TARGET, Cause.RECORDS_STORED]),
        ("merge", ["rec:77", "rec:4"], "update", "rec:4", [Cause.DECISION_UNKNOWN_TARGET, Cause.RECORDS_UPDATED]),
        ("merge", ["rec:77", "rec:4", "rec:2"], "merge", "rec:4", [Cause.DECISION_UNKNOWN_TARGET, Cause.RECORDS_MERGED]),
        ("update", [], "store", "rec:9", [Cause.DECISION_NO_TARGET, Cause.RECORDS_STORED]),
        ("update", ["rec:4", "rec:2"], "update", "rec:4", [Cause.DECISION_MANY_TARGETS, Cause.RECORDS_UPDATED]),
        ("store", ["rec:4"], "store", "rec:9", [Cause.RECORDS_STORED]),
    ],
)
def test_bad_targets_are_repaired_and_counted(action, targets, operation, record_id, causes):
    outcome = decide(action, *targets)
    assert (outcome.revision.operation, outcome.revision.record.record_id, list(outcome.causes)) == (operation, record_id, causes)


@pytest.mark.parametrize(
    ("text", "kept", "cause"),
    [
        (" \n ", DRAFT.text, Cause.DECISION_TEXT_REPLACED),
        ("\ud800", DRAFT.text, Cause.DECISION_TEXT_REPLACED),
        ("a " * MAX_RECORD_CHARS, "a " * (MAX_RECORD_CHARS // 2 - 1) + "…", Cause.DECISION_SHORTENED),
    ],
)
def test_bad_texts_of_a_decision_are_repaired_and_counted(text, kept, cause):
    outcome = decide("update", "rec:2", text=text)
    assert outcome.revision.record.text == kept and cause in outcome.causes


@pytest.mark.parametrize(
    ("text", "sources", "kept", "causes"),
    [
        ("  Ana\nlives here. ", ["msg:6", "msg:5"], ("Ana lives here.", ("msg:5", "msg:6")), []),
        ("x", ["msg:5", "msg:5"], ("x", ("msg:5",)), []),
        ("x", ["msg:5", "msg:1"], ("x", ("msg:5",)), [Cause.DRAFT_SOURCE_LEFT_OUT]),
        ("x", ["msg:1"], None, [Cause.DRAFT_WITHOUT_SOURCE]),
        ("x", [], None, [Cause.DRAFT_WITHOUT_SOURCE]),
        (" ", ["msg:5"], None, [Cause.DRAFT_EMPTY]),
        ("\udcff", ["msg:5"], None, [Cause.DRAFT_BROKEN_TEXT]),
    ],
)
def test_a_draft_is_kept_repaired_or_dropped_and_counted(text, sources, kept, causes):
    draft, counted = check_draft(RecordDraft(type=RecordType.FACT, text=text, source_ids=tuple(sources)), BATCH)
    assert (draft and (draft.text, draft.source_ids), counted) == (kept, causes)


def test_a_long_draft_is_cut_at_a_word():
    draft, counted = check_draft(RecordDraft(type=RecordType.FACT, text="word " * 500, source_ids=("msg:5",)), BATCH)
    assert draft.text.endswith("word …") and len(draft.text) <= MAX_RECORD_CHARS and counted == [Cause.DRAFT_SHORTENED]
    unbroken, _ = check_draft(RecordDraft(type=RecordType.FACT, text="x" * 5000, source_ids=("msg:5",)), BATCH)
    assert len(unbroken.text) == MAX_RECORD_CHARS

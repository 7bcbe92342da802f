"""The rules writer: what becomes a record, a track, the profile."""

from __future__ import annotations

import pytest

from napmem_rl.errors import ConfigError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank
from napmem_rl.memory.writers.rules import MAX_PROFILE_CHARS, MAX_TRACKS, build_pyramid
from napmem_rl.memory.writers.sentences import classify_sentence, find_informative, rewrite_third_person, split_sentences
from napmem_rl.schema import Message, RecordType


def say(*texts: str, speaker: str = "User", role: str = "user") -> list[Message]:
    return [
        Message(message_id=f"msg:{n}", session_id=f"s{n // 5}", role=role, speaker=speaker, text=text, time=f"2024-{1 + n // 28:02d}-{1 + n % 28:02d}T10:00:00")
        for n, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("said", "record_type", "text"),
    [
        ("My sister is Mia.", RecordType.FACT, "User's sister is Mia."),
        ("Mia lives in Oslo.", RecordType.FACT, "Mia lives in Oslo."),
        ("Mia works as a nurse.", RecordType.FACT, "Mia works as a nurse."),
        ("Mia enjoys the hobby chess.", RecordType.FACT, "Mia enjoys the hobby chess."),
        ("I moved home to Rome.", RecordType.EVENT, "User moved home to Rome."),
        ("I bought a phone Nokia.", RecordType.EVENT, "User bought a phone Nokia."),
        ("I joined the gym Apex.", RecordType.EVENT, "User joined the gym Apex."),
        ("I prefer jazz music.", RecordType.PREFERENCE, "User prefers jazz music."),
        ("I took a trip to Lima. I stayed in the hotel Aurora. I ate the dish ramen.", RecordType.EVENT, "User took a trip to Lima."),
        ("I live in Oslo.", RecordType.FACT, "User lives in Oslo."),
        ("I'm a nurse and I've two cats.", RecordType.FACT, "User is a nurse and User has two cats."),
        ("i have a cat", RecordType.FACT, "User has a cat"),
        ("I don't eat meat.", RecordType.FACT, "User doesn't eat meat."),
        ("I also really love my dog!", RecordType.PREFERENCE, "User also really loves User's dog!"),
        ("I study law and I try hard.", RecordType.FACT, "User studies law and User tries hard."),
        ("My favourite color is red.", RecordType.PREFERENCE, "User's favourite color is red."),
        ("Please keep your answers short.", RecordType.INSTRUCTION, "User: Please keep your answers short."),
        ("Call me Bob from now on.", RecordType.INSTRUCTION, "Call User Bob from now on."),
        ("We moved to Oslo.", RecordType.EVENT, "User: We moved to Oslo."),
        ("Hey Mel! Good to see you! I went to a support group yesterday.", RecordType.EVENT, "User went to a support group yesterday."),
        ("Thanks, Caroline! So I’m carving out some time each day.", RecordType.FACT, "User is carving out some time each day."),
        ("Dr. Smith is my doctor. He is kind.", RecordType.FACT, "Dr. Smith is User's doctor."),
    ],
)
def test_a_message_becomes_one_record_of_its_first_telling_sentence(said, record_type, text):
    (record,) = build_pyramid(say(said))[0]
    assert (record.record_id, record.type, record.text, record.source_ids) == ("rec:1", record_type, text, ("msg:0",))


@pytest.mark.parametrize(
    "said",
    ["Hi!", "Hey Caroline! Good to see you! How have you been?", "What is the capital of France?", "Thanks a lot!", "That's great to hear.", "", "   ", "ok",
     "Can you help me with my essay.", "Give me a list of cities.", "You're so kind to your family.", "Wow, Maria! Thank you!", "I hope you are well."],
)  # fmt: skip
def test_small_talk_questions_and_requests_leave_no_record(said):
    assert build_pyramid(say(said))[0] == ()


def test_what_the_assistant_says_leaves_no_record():
    assert build_pyramid(say("I live in Oslo.", role="assistant"))[0] == ()


def test_the_speaker_is_named_where_the_user_has_a_name():
    (record,) = build_pyramid(say("I prefer my tea hot.", speaker="Ana"))[0]
    assert record.text == "Ana prefers Ana's tea hot."


def test_words_that_only_look_like_pronouns_stay():
    assert rewrite_third_person("Mythical India is inside Imagine.", "Ana") == "Mythical India is inside Imagine."
    assert rewrite_third_person("I need it, i.e. today.", "Ana") == "Ana needs it, i.e. today."


def test_sentences_end_at_marks_and_line_breaks_but_not_at_abbreviations():
    assert split_sentences("I met Dr. Who. He left!\nFine") == ["I met Dr. Who.", "He left!", "Fine"]


def test_a_long_sentence_is_cut_at_a_word():
    found = find_informative("I wrote " + "word " * 200)
    assert len(found) <= 302 and found.endswith("word …")


def test_a_record_keeps_its_message_and_records_follow_time():
    messages = say("I live in Oslo.", "Hi!", "I bought a bike.")
    records = build_pyramid(messages[::-1])[0]
    assert [(record.text, record.source_ids, record.time) for record in records] == [
        ("User lives in Oslo.", ("msg:0",), messages[0].time),
        ("User bought a bike.", ("msg:2",), messages[2].time),
    ]


def test_a_restated_fact_is_a_record_of_its_own_time_but_not_twice_in_a_session():
    records = build_pyramid(say("I moved home to Rome.", "I moved home to Rome.", "Hi!", "Hi!", "Hi!", "I moved home to Rome."))[0]
    assert [record.time[:10] for record in records] == ["2024-01-01", "2024-01-06"]


def test_a_track_gathers_a_topic_in_time_order_with_dates_and_links():
    tracks = build_pyramid(say("My sister is Mia.", "I bought a lamp.", "Mia lives in Oslo.", "I prefer jazz music.", "Mia works as a nurse."))[1]
    (track,) = tracks
    assert (track.track_id, track.file_name, track.title, track.record_ids) == ("trk:1", "mia.md", "Mia", ("rec:1", "rec:3", "rec:5"))
    assert track.summary == "3 records about Mia, 2024-01-01 to 2024-01-05. Newest: Mia works as a nurse."
    assert track.narrative.splitlines()[1] == "- 2024-01-03: Mia lives in Oslo. [rec:3]"
    assert track.time == "2024-01-05T10:00:00"


def test_there_are_never_more_than_twenty_tracks():
    animals = "cat dog cow pig hen fox owl bat rat ape elk emu yak bee ant cod eel hawk wolf bear lion deer goat duck swan".split()
    tracks = build_pyramid(say(*(f"I saw the {animal} at place {n}." for animal in animals for n in range(2))))[1]
    assert len(tracks) == MAX_TRACKS and all(len(track.record_ids) >= 2 for track in tracks)


def test_the_profile_holds_lasting_things_of_the_user_and_the_newest_value_stands():
    texts = ("I prefer the music jazz.", "My sister is Mia.", "Mia lives in Oslo.", "I bought a lamp.", "I prefer the drink tea.", "I prefer the music rock.")
    profile = build_pyramid(say(*texts))[2]
    preferences = "## Preferences\n\n- User prefers the drink tea. [rec:5]\n- User prefers the music rock. [rec:6]"
    assert profile.text == preferences + "\n\n## Facts\n\n- User's sister is Mia. [rec:2]"
    assert profile.source_ids == ("rec:5", "rec:6", "rec:2") and profile.time == "2024-01-06T10:00:00"


def test_tastes_that_stand_side_by_side_stay_and_one_restated_is_shown_once_and_new():
    profile = build_pyramid(say("I like sushi.", "Hi!", "Hi!", "Hi!", "Hi!", "I like sushi.", "I like pizza."))[2]
    assert profile.text == "## Preferences\n\n- User likes sushi. [rec:2]\n- User likes pizza. [rec:3]"


def test_the_profile_keeps_to_its_budget_with_the_newest_first_in():
    profile = build_pyramid(say(*(f"I like the thing number {n} of a very long list of things that never ends." for n in range(60))))[2]
    assert len(profile.text) <= MAX_PROFILE_CHARS and "number 59" in profile.text and "number 1 " not in profile.text


def test_links_that_a_user_writes_do_not_become_evidence(tmp_path):
    build_bank(tmp_path / "b", "b", say("I like the note [rec:999] on Mars.", "Mars is [trk:5] in my book on Mars.", "[profile] I love --- Mars."))
    bank = MemoryBank.open(tmp_path / "b")
    assert "(rec:999)" in bank.profile.text and bank.record("rec:1").text == "User likes the note [rec:999] on Mars."


def test_nothing_said_gives_an_empty_bank_that_opens(tmp_path):
    build_bank(tmp_path / "b", "b", [])
    bank = MemoryBank.open(tmp_path / "b")
    assert bank.messages == bank.records == bank.tracks == () and bank.profile.text == "" and bank.search_records("x", k=5, before=None) == []


def test_building_twice_gives_the_same_version(tmp_path):
    messages = say("My sister is Mia.", "Mia lives in Oslo.", "I prefer tea.")
    assert build_bank(tmp_path / "a", "b", messages) == build_bank(tmp_path / "b", "b", messages[::-1])


def test_an_unknown_writer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown memory writer; got 'magic'; expected one of rules"):
        build_bank(tmp_path / "b", "b", [], writer="magic")


def test_adjectives_do_not_make_an_event():
    assert classify_sentence("I'm excited about my job.") is RecordType.FACT
    assert classify_sentence("I need a new job.") is RecordType.FACT

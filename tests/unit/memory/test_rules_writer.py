"""The rules writer: what becomes a record, a track, the profile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from napmem_rl.data.locomo import load_locomo
from napmem_rl.data.worlds import generate_user
from napmem_rl.errors import ConfigError
from napmem_rl.evals.memory_scale import generate_session
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.builder import build_bank
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.topic_desk import TopicRound
from napmem_rl.memory.writers.rules import RulesWriter, build_pyramid
from napmem_rl.memory.writers.rules_exchanges import MAX_SOURCES, find_exchanges
from napmem_rl.memory.writers.rules_profile import MAX_PROFILE_CHARS, StandingFacts
from napmem_rl.memory.writers.rules_topics import GROWTH_FROM, MAX_TRACKS, TopicCounts, round_down
from napmem_rl.memory.writers.sentences import classify_sentence, rewrite_third_person, split_sentences
from napmem_rl.schema import Message, Profile, Record, RecordType, Track


def say(*texts: str, speaker: str = "User", role: str = "user") -> list[Message]:
    return [
        Message(message_id=f"msg:{n}", session_id=f"s{n // 5}", role=role, speaker=speaker, text=text, time=f"2024-{1 + n // 28:02d}-{1 + n % 28:02d}T10:00:00")
        for n, text in enumerate(texts)
    ]


def talk(*turns: str, captions: dict[int, str] | None = None) -> list[Message]:
    """A session of Ana, the user, and Ben: "A: …" and "B: …"."""
    names = {"A": ("user", "Ana"), "B": ("assistant", "Ben")}
    return [
        Message(
            message_id=f"msg:{n}", session_id="s1", role=names[turn[0]][0], speaker=names[turn[0]][1], text=turn[3:], time=f"2024-03-05T10:00:{n:02d}",
            caption=(captions or {}).get(n),
        )
        for n, turn in enumerate(turns)
    ]  # fmt: skip


def find(*turns: str, captions: dict[int, str] | None = None) -> list[tuple[str, tuple[str, ...]]]:
    """Text and sources of the records of one batch."""
    return [(exchange.draft.text, exchange.draft.source_ids) for exchange in find_exchanges(talk(*turns, captions=captions))]


def draw(messages: Sequence[Message]) -> tuple[Record, ...]:
    return build_pyramid(messages)[0]


def write_tracks(messages: Sequence[Message]) -> tuple[Track, ...]:
    """The tracks of one round over all records of a history."""
    writer, records = RulesWriter(), draw(messages)
    writer.resume(messages, records)
    desk = TopicRound((), records, find_record={record.record_id: record for record in records}.get, next_track=1)
    asyncio.run(writer.write_topics(desk, records))
    assert desk.num_refused == 0
    return desk.list_tracks()


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
    (record,) = draw(say(said))
    assert (record.record_id, record.type, record.text, record.source_ids) == ("rec:1", record_type, text, ("msg:0",))


@pytest.mark.parametrize(
    "said",
    ["Hi!", "Hey Caroline! Good to see you! How have you been?", "What is the capital of France?", "Thanks a lot!", "That's great to hear.", "", "   ", "ok",
     "Can you help me with my essay.", "Give me a list of cities.", "You're so kind to your family.", "Wow, Maria! Thank you!", "I hope you are well.",
     "I'm so proud of you for trying!", "Thanks for sharing that with me.", "I will keep you posted."],
)  # fmt: skip
def test_small_talk_praise_questions_and_requests_leave_no_record(said):
    assert draw(say(said)) == ()


def test_a_question_and_its_answer_are_one_record_that_says_who_said_what():
    ((text, sources),) = find("B: Nice picture! How long have you been married?", "A: 5 years already! I wore my grandmother's dress.")
    assert text == "Ben asked: How long have you been married? 5 years already! Ana wore Ana's grandmother's dress."
    assert sources == ("msg:0", "msg:1")


def test_what_the_counterpart_answers_is_a_record_too():
    ((text, _),) = find("A: What got you into pottery?", "B: My aunt has a studio in Porto. It calms me down.")
    assert text == "Ana asked: What got you into pottery? Ben's aunt has a studio in Porto. It calms Ben down."


def test_an_assistants_words_count_as_an_answer_or_of_itself_but_its_advice_does_not():
    assert find("A: Hi!", "B: I painted the lake at sunrise last year.") == [("Ben painted the lake at sunrise last year.", ("msg:1",))]
    assert find("A: Hi!", "B: Make sure to water the roses. Clay needs a hot kiln.") == []


def test_a_statement_the_question_on_it_and_the_answer_are_one_record_of_three_messages():
    ((text, sources),) = find("A: I bought an old sailing boat.", "B: Where will the boat lie?", "A: In the harbour of Split.")
    assert text == "Ana bought an old sailing boat. Ben asked: Where will the boat lie? Ana: In the harbour of Split."
    assert sources == ("msg:0", "msg:1", "msg:2")


def test_messages_that_only_greet_or_praise_are_no_sources():
    found = find("A: I adopted a greyhound from the shelter.", "B: Wow, you're so kind! Good luck!", "B: Bye!")
    assert found == [("Ana adopted a greyhound from the shelter.", ("msg:0",))]


def test_an_image_tells_by_its_caption():
    found = find("A: Look!", "B: Wow!", captions={0: "a photo of a red door in a stone wall"})
    assert found == [("Ana shared a photo of a red door in a stone wall.", ("msg:0",))]


def test_an_instruction_is_a_record_of_its_own():
    found = find("B: What else can I do for the essay?", "A: Please keep your answers short.", "B: My answers will be short.")
    assert ("Ana: Please keep your answers short.", ("msg:1",)) in found


def test_two_statements_in_a_row_are_two_records():
    assert find("A: I bought a lamp.", "A: I sold the lamp again.", "B: Noted.") == [
        ("Ana bought a lamp.", ("msg:0",)),
        ("Ana sold the lamp again.", ("msg:1",)),
    ]


def test_no_record_rests_on_more_than_three_messages_and_none_is_used_twice():
    words = "cathedral harbour market museum".split() * 4
    found = find(*(f"{'AB'[n % 2]}: I saw the {word} of Lima. Did you see the {word} too?" for n, word in enumerate(words)))
    used = [source for _, sources in found for source in sources]
    assert len(used) == len(set(used)) == len(words) and max(len(sources) for _, sources in found) == MAX_SOURCES


def test_long_answers_are_cut_to_their_two_most_telling_sentences():
    answer = "Well, hm. My brother Tom lives in Bergen. We like it. He runs the ferry to Voss every day. It is a thing."
    ((text, _),) = find("B: Where does your family live?", f"A: {answer}")
    assert text == "Ben asked: Where does your family live? Ana's brother Tom lives in Bergen. He runs the ferry to Voss every day."


def test_a_statement_that_was_taken_up_may_say_two_sentences_and_one_that_stands_alone_one():
    said = "A: I took a trip to Lima. The hotel had a pool."
    assert [text for text, _ in find(said, "B: Noted.")] == ["Ana took a trip to Lima."]
    assert [text for text, _ in find(said, "B: A pool sounds great!")] == ["Ana took a trip to Lima. The hotel had a pool."]


def test_a_share_keeps_the_records_that_tell_most():
    messages = talk("A: I bought a lamp.", "A: My brother Tom runs the ferry from Bergen to Voss.", "A: I prefer tea.")
    drafts = RulesWriter(max_records_per_message=1 / 3).draw(messages, ())
    assert [draft.source_ids for draft in drafts] == [("msg:1",)]


def test_the_speaker_is_named_where_the_user_has_a_name():
    (record,) = draw(say("I prefer my tea hot.", speaker="Ana"))
    assert record.text == "Ana prefers Ana's tea hot."


def test_words_that_only_look_like_pronouns_stay():
    assert rewrite_third_person("Mythical India is inside Imagine.", "Ana") == "Mythical India is inside Imagine."
    assert rewrite_third_person("I need it, i.e. today.", "Ana") == "Ana needs it, i.e. today."


def test_a_numeral_is_no_pronoun_and_markdown_is_no_text():
    assert rewrite_third_person("The Phase I survey is done and I paid it.", "Ana") == "The Phase I survey is done and Ana paid it."
    ((text, _),) = find("A: Which ferry goes to Hvar?", "B: I'd be happy to help!\n\n1. **Morning ferry**: leaves Split at 8:30.\n* Would you like more?")
    assert text == "Ana asked: Which ferry goes to Hvar? Ben: Morning ferry: leaves Split at 8:30."


def test_code_is_no_talk_and_endless_messages_are_read_as_far_as_they_make_sense():
    assert find("A: ```python\nfor i in range(10): print(i)\n```\nI wrote a loop in Python.") == [("Ana wrote a loop in Python.", ("msg:0",))]
    ((text, _),) = find("A: I " + "really " * 50_000 + "like tea. " + "I like rain. " * 20_000, "B: Why tea?")
    assert len(text) < 400


def test_another_language_is_kept_sentence_by_sentence_as_it_was_said():
    assert find("A: 我 住 在 上海 市。 你 喜欢 什么 茶？") == [("我 住 在 上海 市。", ("msg:0",))]


def test_sentences_end_at_marks_and_line_breaks_but_not_at_abbreviations():
    assert split_sentences("I met Dr. Who. He left!\nFine") == ["I met Dr. Who.", "He left!", "Fine"]


def test_a_long_sentence_is_cut_at_a_word():
    (record,) = draw(say("I wrote " + "novel " * 200))
    assert len(record.text) <= 310 and record.text.endswith("novel …")


def test_a_record_keeps_its_message_and_records_follow_time():
    messages = say("I live in Oslo.", "Hi!", "I bought a bike.")
    records = draw(messages[::-1])
    assert [(record.text, record.source_ids, record.time) for record in records] == [
        ("User lives in Oslo.", ("msg:0",), messages[0].time),
        ("User bought a bike.", ("msg:2",), messages[2].time),
    ]


def test_a_restated_fact_is_a_record_of_its_own_time_but_not_twice_in_a_session():
    records = draw(say("I moved home to Rome.", "I moved home to Rome.", "Hi!", "Hi!", "Hi!", "I moved home to Rome."))
    assert [record.time[:10] for record in records] == ["2024-01-01", "2024-01-06"]


def test_a_track_gathers_a_topic_in_time_order_with_dates_and_links():
    tracks = write_tracks(say("My sister is Mia.", "I bought a lamp.", "Mia lives in Oslo.", "I prefer jazz music.", "Mia works as a nurse."))
    (track,) = tracks
    assert (track.track_id, track.file_name, track.title, track.record_ids) == ("trk:1", "mia.md", "Mia", ("rec:1", "rec:3", "rec:5"))
    assert track.summary == "3 records about Mia, 2024-01-01 to 2024-01-05. Newest: Mia works as a nurse."
    assert track.narrative.splitlines()[1] == "- 2024-01-03: Mia lives in Oslo. [rec:3]"
    assert track.time == "2024-01-05T10:00:00"


def test_what_is_too_long_for_a_word_is_no_topic():
    assert write_tracks(say(*(f"I found {'x' * 150} at place {n}." for n in range(3)))) == ()


def test_there_are_never_more_than_twenty_tracks():
    animals = "cat dog cow pig hen fox owl bat rat ape elk emu yak bee ant cod eel hawk wolf bear lion deer goat duck swan".split()
    tracks = write_tracks(say(*(f"I saw the {animal} at place {n}." for animal in animals for n in range(2))))
    assert len(tracks) == MAX_TRACKS and all(len(track.record_ids) >= 2 for track in tracks)


def test_the_profile_holds_lasting_things_of_the_user_and_the_newest_value_stands():
    texts = ("I prefer the music jazz.", "My sister is Mia.", "Mia lives in Oslo.", "I bought a lamp.", "I prefer the drink tea.", "I prefer the music rock.")
    profile = build_pyramid(say(*texts))[1]
    preferences = "## Preferences\n\n- User prefers the drink tea. [rec:5]\n- User prefers the music rock. [rec:6]"
    assert profile.text == preferences + "\n\n## Facts\n\n- User's sister is Mia. [rec:2]"
    assert profile.source_ids == ("rec:5", "rec:6", "rec:2") and profile.time == "2024-01-06T10:00:00"


def test_tastes_that_stand_side_by_side_stay_and_one_restated_is_shown_once_and_new():
    profile = build_pyramid(say("I like sushi.", "Hi!", "Hi!", "Hi!", "Hi!", "I like sushi.", "I like pizza."))[1]
    assert profile.text == "## Preferences\n\n- User likes sushi. [rec:2]\n- User likes pizza. [rec:3]"


def test_the_profile_keeps_to_its_budget_with_the_newest_first_in():
    profile = build_pyramid(say(*(f"I like the thing number {n} of a very long list of things that never ends." for n in range(60))))[1]
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


def test_records_of_the_synthetic_users_read_as_the_policy_learned_them():
    user = generate_user("pinned", 0)
    said = {message.message_id: message for message in user.messages}
    records, profile = build_pyramid(user.messages)
    told = [message for message in user.messages if message.role == "user"]
    assert [record.source_ids for record in records] == [(message.message_id,) for message in told]
    for record in records:
        first = said[record.source_ids[0]].text.split(". ")[0].removesuffix(".") + "."
        assert record.text == rewrite_third_person(first, "User") and record.type is classify_sentence(first)
    assert all(f"User prefers the {name} " in profile.text for name in ("drink", "music", "color", "season", "film"))


def test_every_synthetic_user_statement_is_one_record_with_the_next_number():
    for index in range(10):
        user = generate_user("pinned", index)
        records = draw(user.messages)
        assert [record.record_id for record in records] == [f"rec:{n + 1}" for n in range(sum(message.role == "user" for message in user.messages))]


def build_by_builder(path, parts: Sequence[Sequence[Message]]) -> MemoryBank:
    """A bank that a builder makes, opened anew for each part of the history."""

    async def build() -> None:
        for part in parts:
            with BankWriter.open(path, bank_id="b", writer="rules", durable=False) as bank:
                builder = PyramidBuilder(bank, RulesWriter())
                await builder.add(part)
                await builder.finish()

    asyncio.run(build())
    return MemoryBank.open(path)


def strip_ids(tracks: Sequence[Track]) -> list[tuple]:
    return sorted((track.title, track.summary, track.narrative, track.time, track.record_ids) for track in tracks)


@pytest.mark.parametrize("index", range(3))
def test_one_go_session_by_session_and_without_a_disk_give_the_same_memory(tmp_path, index):
    messages = generate_user("growing", index).messages
    sessions = list(dict.fromkeys(message.session_id for message in messages))
    parts = [[message for message in messages if message.session_id == session] for session in sessions]
    whole, grown = build_by_builder(tmp_path / "whole", [messages]), build_by_builder(tmp_path / "grown", parts)
    records, profile = build_pyramid(messages)
    assert tuple(whole.records) == tuple(grown.records) == records
    assert strip_ids(whole.tracks) == strip_ids(grown.tracks) == strip_ids(write_tracks(messages)) and whole.tracks
    assert whole.profile.text == grown.profile.text == profile.text and profile.text


def test_a_talk_of_two_gives_the_same_memory_in_one_go_and_session_by_session(tmp_path):
    sessions = [generate_session(number) for number in range(8)]
    whole = build_by_builder(tmp_path / "whole", [[message for session in sessions for message in session]])
    grown = build_by_builder(tmp_path / "grown", sessions)
    records, profile = build_pyramid([message for session in sessions for message in session])
    assert tuple(whole.records) == tuple(grown.records) == records and len(records) <= len(whole.messages) / 2
    assert strip_ids(whole.tracks) == strip_ids(grown.tracks) and whole.tracks
    assert whole.profile.text == grown.profile.text == profile.text and profile.text


def test_topics_counted_one_by_one_are_those_counted_at_once():
    texts = [f"User saw the {animal} with Tom{n % 7} in the zoo{n % 41} of town." for n in range(300) for animal in ("owl", "emu", "yak", "eel")]
    growing, at_once = TopicCounts(), TopicCounts()
    for n, text in enumerate(texts):
        growing.add(text)
        if n % 37 == 0:
            growing.choose(frozenset())
    for text in texts:
        at_once.add(text)
    assert len(texts) > 2 * GROWTH_FROM
    assert [topic.stem for topic in growing.choose(frozenset())] == [topic.stem for topic in at_once.choose(frozenset())] != []


def test_topics_are_chosen_anew_seldom_once_there_are_many():
    numbers = [round_down(n) for n in range(100_000, 200_000)]
    assert 50 <= len(set(numbers)) <= 100 and all(n - round_down(n) <= n / 60 for n in range(1, 100_000, 77))
    assert [round_down(n) for n in (1, 17, GROWTH_FROM)] == [1, 17, GROWTH_FROM]


def test_the_profile_knows_the_user_from_the_counterpart():
    standing = StandingFacts()
    for n, text in enumerate(
        ("Ana lives in Oslo.", "Ben lives in Rome.", "Ben asked: What do you like? Ana loves long novels.", "Ana asked: Who loves chess?")
    ):
        record = Record(record_id=f"rec:{n}", type=RecordType.FACT, text=text, time="2024-01-01", source_ids=("msg:1",), session_id="s")
        standing.add(record, ("Ana",))
    assert standing.write(500).text == "## Preferences\n\n- Ana loves long novels. [rec:2]\n\n## Facts\n\n- Ana lives in Oslo. [rec:0]"


def test_a_bank_that_another_writer_made_is_counted_when_rules_go_on_with_it():
    records = draw(say("My sister is Mia.", "Mia lives in Oslo.", "I prefer tea."))
    writer = RulesWriter()
    writer.resume(say("I prefer tea."), records)
    profile = asyncio.run(writer.write_profile(Profile(text="", time="", source_ids=()), (), (), max_chars=1000))
    assert "User's sister is Mia. [rec:1]" in profile.text and "User prefers tea. [rec:3]" in profile.text


@pytest.mark.skipif(not os.environ.get("NAPMEM_DATA"), reason="NAPMEM_DATA is not set")
def test_on_locomo_a_record_for_two_messages_at_most_holds_seven_tenths_of_the_evidence_of_every_bank():
    source = load_locomo(Path(os.environ["NAPMEM_DATA"]) / "locomo" / "locomo8.json")
    for bank in source.banks:
        records = draw(bank.messages)
        gold = {message_id for task, key in source.items if task.bank_id == bank.bank_id for message_id in key.evidence_ids}
        held = {source_id for record in records for source_id in record.source_ids}
        assert len(records) <= len(bank.messages) / 2 and max(len(record.source_ids) for record in records) <= 3
        assert len(gold & held) >= 0.7 * len(gold), bank.bank_id

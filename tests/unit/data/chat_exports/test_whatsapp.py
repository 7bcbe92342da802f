"""WhatsApp's chats: dates in any order, marks, system lines, who is the user, and clocks that are set forward and back."""

from __future__ import annotations

import pytest
from chat_samples import gpt_chain, read_chat_text, read_export, read_value, write_zip

from napmem_rl.errors import ConfigError, DataError

LRM, RLM, NNBSP = "\u200e", "\u200f", "\u202f"


def read(tmp_path, *lines, user="Ana", **options):
    return read_chat_text(tmp_path, "\n".join(lines) + "\n", user=user, **options)


def times(messages):
    return [message.time for message in messages]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("12/04/2024, 21:05 - ", "13/04/2024, 09:15 - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("4/12/24, 9:05 PM - ", "4/13/24, 9:15 AM - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        (f"[4/12/24, 9:05:11{NNBSP}PM] ", f"{LRM}[4/13/24, 12:15:40{NNBSP}AM] ", ("2024-04-12T21:05:11", "2024-04-13T00:15:40")),
        ("[12.04.24, 21:05:11] ", "[03.05.24, 09:15:40] ", ("2024-04-12T21:05:11", "2024-05-03T09:15:40")),
        ("12.4.2024 klo 21.05 - ", "13.4.2024 klo 9.15 - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("2024-04-12, 21:05 - ", "2024-05-03, 09:15 - ", ("2024-04-12T21:05:00", "2024-05-03T09:15:00")),
        ("[2024/4/12 下午9:05:11] ", "[2024/4/13 上午9:15:40] ", ("2024-04-12T21:05:11", "2024-04-13T09:15:40")),
        ("[2024. 4. 12. 오후 9:05:11] ", "[2024. 4. 13. 오전 9:15:40] ", ("2024-04-12T21:05:11", "2024-04-13T09:15:40")),
        ("12/04/24 21:05 - ", "13/04/24 9:15 - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("12/04/2024, 9:05 p. m. - ", "13/04/2024, 9:15 a. m. - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("12-04-2024 21:05 - ", "13-04-2024 09:15 - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("24/04/12, 21:05 - ", "24/04/30, 09:15 - ", ("2024-04-12T21:05:00", "2024-04-30T09:15:00")),
        (f"{RLM}12{RLM}/4{RLM}/2024، 9:05 م - ", f"{RLM}13{RLM}/4{RLM}/2024، 9:15 ص - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        (f"{RLM}١٢/٠٤/٢٠٢٤، ٩:٠٥ م - ", f"{RLM}١٣/٠٤/٢٠٢٤، ٩:١٥ ص - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("2024년 4월 12일 오후 9:05, ", "2024년 4월 13일 오전 9:15, ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("2024. 4. 12. 오후 9:05, ", "2024. 4. 13. 오전 9:15, ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("[21:05, 12/4/2024] ", "[9:15, 13/4/2024] ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("12.4.24 г., 21:05 ч. - ", "13.4.24 г., 9:15 ч. - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
        ("12/4/2567 21:05 - ", "13/4/2567 09:15 - ", ("2024-04-12T21:05:00", "2024-04-13T09:15:00")),
    ],
)
def test_dates_and_clocks_of_many_phones_are_read(tmp_path, first, second, expected):
    messages, _ = read(tmp_path, f"{first}Ana: I moved.", f"{second}Bo: wow")
    assert tuple(times(messages)) == expected and [message.role for message in messages] == ["user", "assistant"]


def test_an_order_that_no_single_date_decides_is_decided_by_time_that_does_not_run_backwards(tmp_path):
    lines = [f"{day:02d}/04/2024, 10:00 - Ana: Day {day}." for day in (3, 4, 5)] + ["01/05/2024, 10:00 - Bo: May."]
    messages, _ = read(tmp_path, *lines)
    assert times(messages)[-1] == "2024-05-01T10:00:00"


def test_dates_that_can_be_read_in_two_ways_are_asked_about(tmp_path):
    lines = ["03/04/2024, 10:00 - Ana: Hi, I moved.", "03/04/2024, 10:01 - Bo: wow"]
    with pytest.raises(DataError, match="two ways.*--date-order dmy"):
        read(tmp_path, *lines)
    assert times(read(tmp_path, *lines, date_order="dmy")[0])[0][:10] == "2024-04-03"
    assert times(read(tmp_path, *lines, date_order="mdy")[0])[0][:10] == "2024-03-04"


def test_an_order_that_the_file_contradicts_is_refused_with_the_line(tmp_path):
    with pytest.raises(DataError, match="line 2 has a date that is not in the order mdy"):
        read(tmp_path, "03/04/2024, 10:00 - Ana: Hi.", "13/04/2024, 10:01 - Bo: wow", date_order="mdy")


def test_a_day_and_month_that_are_equal_need_no_order(tmp_path):
    assert times(read(tmp_path, "04/04/2024, 10:00 - Ana: Hi, I moved.")[0]) == ["2024-04-04T10:00:00"]


def test_lines_that_go_on_and_colons_in_the_text_belong_to_the_message(tmp_path):
    messages, tally = read(tmp_path, "13/04/2024, 10:00 - Ana: I moved: Alfama 3", "second: line", "", "last", "13/04/2024, 10:01 - Bo: at 10:30")
    assert [message.text for message in messages] == ["I moved: Alfama 3\nsecond: line\n\nlast", "at 10:30"] and tally.num_read == 2


def test_what_the_messenger_says_itself_is_left_out(tmp_path):
    lines = [
        "13/04/2024, 10:00 - Messages and calls are end-to-end encrypted.",
        '13/04/2024, 10:01 - Ana changed the subject from "A: B" to "C"',
        "13/04/2024, 10:02 - Ana changed the group description: see below",
        f"13/04/2024, 10:03 - Our group: {LRM}Messages and calls are end-to-end encrypted.",
        f"13/04/2024, 10:04 - Bo: {LRM}Missed voice call",
        "13/04/2024, 10:05 - Bo: I moved to Oslo.",
    ]
    messages, tally = read(tmp_path, *lines, user="Bo")
    assert [message.text for message in messages] == ["I moved to Oslo."] and tally.left_out == {"system_line": 5}


def test_media_files_deleted_and_edited_messages_in_several_languages(tmp_path):
    lines = [
        "13/04/2024, 10:00 - Ana: <Media omitted>",
        "13/04/2024, 10:01 - Ana: IMG-20240413-WA0001.jpg (file attached)",
        "The beach",
        "13/04/2024, 10:02 - Bo: This message was deleted",
        "13/04/2024, 10:03 - Bo: Diese Nachricht wurde gelöscht.",
        "13/04/2024, 10:04 - Bo: <Medien ausgeschlossen>",
        f"13/04/2024, 10:05 - Ana: {LRM}imagen omitida",
        f"13/04/2024, 10:06 - Ana: {LRM}<attached: 12-AUDIO-2024.opus>",
        f"13/04/2024, 10:07 - Bo: See you at six {LRM}<This message was edited>",
        "13/04/2024, 10:08 - Bo: they said image omitted",
    ]
    messages, tally = read(tmp_path, *lines)
    expected = ["[media]", "[image: IMG-20240413-WA0001.jpg]\nThe beach", "[media]", "[image]", "[audio: 12-AUDIO-2024.opus]"]
    assert [message.text for message in messages] == [*expected, "See you at six", "they said image omitted"]
    assert tally.left_out == {"deleted": 2} and tally.notes == {"attachment": 5, "edited": 1}


def test_a_language_narrows_the_phrases_that_count_as_the_messengers(tmp_path):
    lines = ["13/04/2024, 10:00 - Ana: <Medien ausgeschlossen>", "13/04/2024, 10:00 - Ana: <Media omitted>"]
    assert [message.text for message in read(tmp_path, *lines, language="es")[0]] == ["<Medien ausgeschlossen>", "[media]"]


def test_the_same_words_twice_in_a_minute_are_two_messages(tmp_path):
    messages, tally = read(tmp_path, *["13/04/2024, 10:00 - Ana: ok, I will go"] * 3)
    assert len({message.message_id for message in messages}) == 3 and tally.merged == {}


def test_ids_are_the_same_with_media_and_without_and_under_another_file_name(tmp_path):
    without, _ = read(tmp_path, "13/04/2024, 10:00 - Ana: <Media omitted>", "13/04/2024, 10:01 - Bo: wow")
    lines = "13/04/2024, 10:00 - Ana: IMG-1.jpg (file attached)\n13/04/2024, 10:01 - Bo: wow\n"
    with_media, _ = read_chat_text(tmp_path, lines, name="WhatsApp Chat with Bo (1).txt", user="Ana")
    assert [message.message_id for message in with_media] == [message.message_id for message in without]


def test_the_user_follows_from_the_files_name_where_two_talk(tmp_path):
    text = "13/04/2024, 10:00 - Ana: I moved.\n13/04/2024, 10:01 - Bo Lund: wow\n"
    messages, _ = read_chat_text(tmp_path, text, name="WhatsApp Chat with Bo Lund.txt")
    assert [message.role for message in messages] == ["user", "assistant"]
    path = write_zip(tmp_path / "WhatsApp Chat - Bo Lund.zip", {"_chat.txt": text.encode(), "IMG-1.jpg": b"x"})
    assert [message.role for message in read_export(path)[0]] == ["user", "assistant"]


def test_in_a_group_all_names_are_kept_and_who_is_not_named_is_told(tmp_path):
    lines = [f"13/04/2024, 10:0{number} - {name}: I am {name}." for number, name in enumerate(("Ana", "Bo", "~ Cy 😀", "+49 170 1234567"))]
    messages, tally = read(tmp_path, *lines, user=None)
    assert {message.role for message in messages} == {"user"} and [message.speaker for message in messages] == ["Ana", "Bo", "Cy 😀", "+49 170 1234567"]
    assert tally.notes["user_unknown"] == 1 and "any of +49 170 1234567, Ana, Bo, Cy 😀; --user NAME" in str(tally.places)
    messages, tally = read(tmp_path, *lines, user="bo")
    assert not tally.notes["user_unknown"]
    assert [(message.role, message.speaker) for message in messages][1:3] == [("user", "Bo"), ("assistant", "Cy 😀")]
    with pytest.raises(DataError, match="nobody in it is called Zoe"):
        read(tmp_path, *lines, user="Zoe")


def test_wall_times_become_utc_in_the_phones_zone_over_both_changes_of_the_clock(tmp_path):
    lines = [
        "30/03/2024, 23:00 - Ana: winter",
        "31/03/2024, 02:30 - Ana: skipped",
        "27/10/2024, 02:50 - Ana: first",
        "27/10/2024, 02:10 - Bo: second",
        "27/10/2024, 03:30 - Bo: after",
    ]
    messages, tally = read(tmp_path, *lines, time_zone="Europe/Berlin")
    assert times(messages)[:2] == ["2024-03-30T22:00:00", "2024-03-31T01:30:00"]
    assert times(messages)[2:] == ["2024-10-27T00:50:00", "2024-10-27T01:10:00", "2024-10-27T02:30:00"]
    assert tally.notes == {"time_nonexistent": 1, "time_ambiguous": 2}


def test_an_unknown_zone_and_a_zone_that_would_do_nothing_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="--time-zone: is unknown.*Europe/Berlin"):
        read(tmp_path, "13/04/2024, 10:00 - Ana: Hi.", time_zone="Europe/Berlim")
    with pytest.raises(ConfigError, match="--time-zone: would do nothing"):
        read_value(tmp_path, [gpt_chain("c1", ["Hi."])], time_zone="UTC")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_texts_of_any_script_and_emojis_come_through_in_any_encoding(tmp_path, encoding):
    text = "13/04/2024, 10:00 - Аня: Я переехала 👩‍👩‍👧\r\n13/04/2024, 10:01 - 美: 我搬家了\r\n"
    messages, _ = read_chat_text(tmp_path, text, encoding=encoding, user="Аня")
    assert [message.text for message in messages] == ["Я переехала 👩‍👩‍👧", "我搬家了"] and messages[0].speaker == "Аня"


def test_a_chat_in_an_old_encoding_loses_single_characters_which_is_told(tmp_path):
    messages, tally = read_chat_text(tmp_path, "13/04/2024, 10:00 - Ana: Ich wohne in Köln\n", encoding="latin-1", user="Ana")
    assert messages[0].text == "Ich wohne in K\ufffdln" and tally.notes == {"broken_characters": 1}


def test_a_message_that_stands_out_of_order_keeps_its_place(tmp_path):
    lines = ["13/04/2024, 10:00 - Ana: one", "13/04/2030, 10:00 - Bo: two", "13/04/2024, 10:01 - Ana: three", "13/04/2024, 10:02 - Ana: four"]
    messages, tally = read(tmp_path, *lines)
    assert [message.text for message in messages] == ["one", "two", "three", "four"]
    assert times(messages)[1] == "2024-04-13T10:00:00" and tally.notes == {"time_moved": 1}


def test_signs_that_steer_a_terminal_are_no_part_of_a_name(tmp_path):
    with pytest.raises(DataError, match=r"A\[31mna \(1\), Bo \(1\)"):
        read(tmp_path, "13/04/2024, 10:00 - A\x1b[31mna: hello", "13/04/2024, 10:01 - Bo: hi", user="Zoe")


def test_lines_before_the_first_message_are_counted(tmp_path):
    messages, tally = read(tmp_path, "Exported by me", "13/04/2024, 10:00 - Ana: I moved.")
    assert len(messages) == 1 and tally.left_out == {"not_a_message": 1}


def test_sessions_end_with_a_long_silence_and_are_named_by_their_beginning(tmp_path):
    lines = ["13/04/2024, 10:00 - Ana: one", "13/04/2024, 11:00 - Bo: two", "14/04/2024, 10:00 - Ana: three"]
    sessions = [message.session_id for message in read(tmp_path, *lines)[0]]
    assert sessions[0] == sessions[1] != sessions[2] and sessions[2].endswith("@2024-04-14T10:00")


def test_a_blank_before_the_colon_is_no_part_of_a_korean_name_and_a_line_without_one_is_the_messengers(tmp_path):
    lines = [
        "2024년 4월 12일 오후 9:05, Ana : 안녕",
        "둘째 줄",
        "2024년 4월 12일 오후 9:06, 민수 : <미디어 파일을 제외한 내용>",
        "2024년 4월 13일 오후 9:07, 민수님이 나갔습니다",
    ]
    messages, tally = read(tmp_path, *lines)
    assert [(message.speaker, message.text) for message in messages] == [("Ana", "안녕\n둘째 줄"), ("민수", "[media]")]
    assert tally.left_out == {"system_line": 1}


def test_a_day_with_a_comma_or_an_hour_before_a_day_within_a_message_begins_no_other(tmp_path):
    lines = ["13/04/2024, 10:00 - Ana: Plans:", "12/04/2024 9:05, dentist: bring the card", "10:00 14/04/2024 - Bo: hairdresser", "13/04/2024, 10:01 - Bo: wow"]
    messages, _ = read(tmp_path, *lines)
    assert [message.text.count("\n") for message in messages] == [2, 0]


def test_dates_of_a_calendar_that_is_not_known_are_named_as_such(tmp_path):
    with pytest.raises(DataError, match="none of its 2 dates is a day of the years 2009 to 2099"):
        read(tmp_path, "1403/02/06، 21:06 - Ana: hi", "1403/02/07، 21:06 - Bo: hi")

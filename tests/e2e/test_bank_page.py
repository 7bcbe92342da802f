"""The page of a memory bank in a real browser, from a file: unfolded, searched, filtered, by keyboard, at desk and phone width, with hostile memories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bank_maker import make_levels, make_message, make_record
from browser_page import DESK, PATIENCE_MS, PHONE, Opened, launch_browser, opening

from napmem_rl.memory.bank import MemoryBank, save_bank
from napmem_rl.memory.builder import build_bank
from napmem_rl.report.bank_page import write_bank_page
from napmem_rl.schema import Message, Profile

HOSTILE = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"> & \u2028 \x07 ${title} \U0001f600'
CONTRASTS = """() => {
  const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map((part) => linear(Number(part) / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.querySelector(".card")).backgroundColor);
  return [".evidence", ".muted", "#profile .statement .text", "nav a"].map((name) => {
    const ink = light(getComputedStyle(document.querySelector(name)).color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  });
}"""
TOPICS = ("garden", "guitar", "bicycle", "kitchen")


def build_diary(directory: Path) -> Path:
    """A bank that the builder wrote: forty sessions over two years, about four topics, and a word of its own in each."""
    messages = []
    for number in range(40):
        day = f"{2023 + number // 20}-{number % 12 + 1:02d}-{number % 27 + 1:02d}"
        topic = TOPICS[number % 4]
        said = (
            f"Yesterday I worked on my {topic} with Pavel, part {number}.",
            "That sounds fine! How was it?",
            f"I prefer the {topic} to television. Pavel paid {number} euros.",
        )
        for place, text in enumerate(said):
            role = "assistant" if place == 1 else "user"
            fields = {"session_id": f"day-{number}", "role": role, "speaker": "Ana" if role == "user" else "Assistant"}
            messages.append(Message(message_id=f"msg:{number}-{place}", text=text, time=f"{day}T1{place}:00:00", **fields))
    build_bank(directory, "diary", messages)
    return directory


def save_hostile(directory: Path) -> Path:
    """A bank whose every text tries to be markup, and one very long word."""
    levels = make_levels(
        messages=(make_message(1, HOSTILE, speaker=HOSTILE, session_id=HOSTILE, caption=HOSTILE), make_message(2, "a" * 4000), make_message(3, "naïve Café")),
        records=(make_record(1, HOSTILE, session_id=HOSTILE), make_record(2, "b" * 3000)),
        tracks=(),
        profile=Profile(
            text=f"# {HOSTILE.replace(chr(10), ' ')}\n{HOSTILE} [rec:1]\n{'c' * 2000} [rec:2]", time="2024-03-04T10:00:00", source_ids=("rec:1", "rec:2")
        ),
    )
    save_bank(directory, bank_id="</title><script>window.hacked = 1</script>", writer="hand", **levels)
    return directory


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("pages")
    banks = {"diary": build_diary(directory / "banks" / "diary"), "hostile": save_hostile(directory / "banks" / "hostile")}
    return {name: write_bank_page(bank, out=directory / f"{name}.html").path for name, bank in banks.items()} | {"bank": banks["diary"]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launch_browser() as launched:
        yield launched


@pytest.fixture
def open_page(browser: Any, pages: dict[str, Path]) -> Iterator[Callable[..., Opened]]:
    with opening(browser) as open_at:
        yield lambda name, *args, **keys: open_at(pages[name], *args, **keys)


def test_the_page_opens_from_a_file_without_a_complaint_or_a_request(open_page, pages):
    opened = open_page("diary")
    assert opened.complaints == [] and opened.requests == [f"file://{pages['diary']}"]
    assert "120" in opened.text(".levels") and "in 40 conversations" in opened.text(".levels")
    assert opened.page.get_attribute("svg.bars", "aria-label") == "Time line by month"
    opened.shoot("bank_desk")


def test_a_statement_of_the_profile_unfolds_down_to_the_words_that_were_said(open_page, pages):
    bank = MemoryBank.open(pages["bank"])
    record_id = bank.profile.source_ids[0]
    opened = open_page("diary")
    statement = "#profile .statement >> nth=0"
    assert record_id in opened.text(statement) and not opened.page.query_selector("#profile .message")
    opened.page.click(f"{statement} >> summary")
    opened.page.wait_for_selector("#profile .message")
    shown = opened.text(statement)
    for message_id in bank.provenance(record_id):
        assert message_id in shown and bank.message(message_id).text in shown


def test_every_topic_unfolds_to_messages_and_a_message_opens_in_its_conversation(open_page):
    opened = open_page("diary")
    opened.page.click("#topics .track >> nth=0 >> summary")
    opened.page.click("#topics .statement >> nth=0 >> summary")
    opened.page.click("#topics .message >> nth=0 >> button.link")
    assert opened.page.is_visible("dialog#conversation") and opened.page.query_selector("dialog .here") is not None
    assert len(opened.page.query_selector_all("dialog .message")) == 3
    opened.page.click("dialog .upward summary")
    assert "drawn from" in opened.text("dialog .talk")
    opened.press("Escape")
    assert not opened.page.is_visible("dialog#conversation") and opened.complaints == []


def test_search_finds_words_phrases_and_ids_and_says_how_many(open_page):
    opened = open_page("diary")
    opened.search("guitar paid")
    assert "10 messages" in opened.text(".count") and not opened.page.is_visible("#pyramid")
    assert opened.page.query_selector("#results mark") is not None
    opened.search('"paid 13 euros"')
    assert "1 message" in opened.text(".count") and "msg:13-2" in opened.text("#results")
    opened.search("rec:1")
    assert "1 record, 0 messages" in opened.text(".count")
    opened.search("zeppelin")
    assert "Nothing fits" in opened.text("#results")
    opened.page.click(".clear")
    assert opened.page.is_visible("#pyramid") and not opened.page.is_visible("#results")


def test_filters_by_level_type_and_time_narrow_what_is_shown(open_page):
    opened = open_page("diary")
    opened.page.select_option("#filter-level", "message")
    assert opened.text(".count") == "Found 120 messages."
    opened.page.fill("#filter-from", "2024-01-01")
    assert opened.text(".count") == "Found 60 messages."
    opened.page.fill("#filter-to", "2023-01-01")
    assert opened.text(".count") == "Found 0 messages."
    opened.page.click(".clear")
    types = [option.get_attribute("value") for option in opened.page.query_selector_all("#filter-type option")]
    opened.page.select_option("#filter-type", types[-1])
    assert opened.text(".count").startswith("Found ") and "message" not in opened.text(".count")


def test_a_stretch_of_the_time_line_is_chosen_with_the_keyboard_and_with_the_pointer(open_page):
    opened = open_page("diary")
    opened.page.focus("svg.bars")
    opened.press("Home", "Enter")
    assert opened.page.input_value("#filter-from") == "2023-01-01" and opened.page.input_value("#filter-to") == "2023-01-31"
    assert opened.page.get_attribute("svg.bars", "aria-valuetext").startswith("Jan 2023: 6 messages")
    opened.press("Shift+ArrowRight")
    assert opened.page.input_value("#filter-to") == "2023-02-28" and opened.page.query_selector("rect.chosen") is not None
    opened.press("Escape")
    assert opened.page.input_value("#filter-from") == "" and opened.page.is_visible("#pyramid")
    box = opened.page.query_selector("svg.bars").bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 40)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40, steps=4)
    opened.page.mouse.up()
    assert opened.page.input_value("#filter-from") >= "2023-10-01" and "messages" in opened.text(".count")
    opened.shoot("bank_time")


def test_everything_is_reached_and_unfolded_with_the_keyboard_alone(open_page):
    opened = open_page("diary")
    opened.press("/")
    assert opened.page.evaluate("document.activeElement.id") == "search"
    opened.page.keyboard.type("bicycle 38")
    opened.press("Enter")
    opened.page.wait_for_selector("#results summary:focus")
    opened.press("/", "ArrowDown")
    opened.page.wait_for_selector("#results summary:focus")
    opened.press("Escape")
    assert opened.page.input_value("#search") == "" and opened.page.evaluate("document.activeElement.id") == "search"
    opened.press("Escape", "1")
    assert opened.page.evaluate("document.activeElement.closest('section').id") == "profile"
    first = opened.focused()
    opened.press("ArrowRight")
    opened.page.wait_for_selector("#profile details[open] .record")
    opened.press("ArrowDown")
    assert opened.page.evaluate("document.activeElement.parentElement.classList.contains('record')")
    assert opened.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opened.press("ArrowLeft", "ArrowLeft")
    assert opened.focused() == first
    opened.press("ArrowLeft")
    assert not opened.page.evaluate("document.activeElement.parentElement.open")
    opened.press("?")
    assert opened.page.is_visible("dialog#help")
    opened.press("Escape")
    assert not opened.page.is_visible("dialog#help") and opened.complaints == []


def test_the_tab_key_goes_through_controls_in_the_order_in_which_they_are_seen(open_page):
    opened = open_page("diary")
    seen = []
    for _ in range(14):
        opened.press("Tab")
        seen.append(opened.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim().slice(0, 20)"))
    assert seen[0] == "Skip to the memory" and seen[1:5] == ["Profile", "Topics", "Records", "Conversations"]
    assert [name for name in seen if name.startswith(("search", "filter"))] == ["search", "filter-level", "filter-type", "filter-from"]
    unnamed = opened.page.evaluate(
        "[...document.querySelectorAll('input, select, button')].filter((one) => !(one.labels?.length || one.textContent.trim() || one.ariaLabel)).length"
    )
    assert unnamed == 0


def test_lists_show_more_when_asked_and_the_focus_goes_to_what_came(open_page):
    opened = open_page("diary")
    assert len(opened.page.query_selector_all("#conversations .session")) == 30
    opened.page.focus("#conversations .more")
    opened.press("Enter")
    assert len(opened.page.query_selector_all("#conversations .session")) == 40 and not opened.page.is_visible("#conversations .more")
    assert opened.page.evaluate("document.activeElement.matches('#conversations li:nth-child(31) summary')")


def test_markup_in_memories_stays_text(open_page):
    opened = open_page("hostile")
    for selector in ("#profile .statement", "#records .record", "#conversations .session"):
        for summary in opened.page.query_selector_all(f"{selector} > summary"):
            summary.click()
    opened.page.wait_for_selector("#conversations .message")
    for selector in ("#profile .statement", "#records .record >> nth=1", "#conversations .session >> nth=1 >> .message"):
        assert "</script><script>window.hacked = 1</script><img src=x" in opened.text(selector)
    opened.search("café")
    assert "1 message" in opened.text(".count")
    opened.search("<img src")
    assert "1 record, 1 message" in opened.text(".count")
    assert opened.page.evaluate("window.hacked") is None and opened.page.evaluate("document.querySelectorAll('img').length") == 0
    assert opened.text("h1") == "</title><script>window.hacked = 1</script>"
    assert opened.complaints == [] and len(opened.requests) == 1


def test_a_search_can_be_linked_to_and_other_addresses_open_the_page_as_it_is(open_page):
    assert "10 messages" in open_page("diary", address="#q=guitar%20paid").text(".count")
    for address in ("#q=%", "#nothing"):
        opened = open_page("diary", address=address)
        assert opened.page.is_visible("#pyramid") and opened.complaints == []


def test_a_page_of_many_messages_opens_builds_little_at_first_and_is_searched(browser, tmp_path):
    messages = []
    for number in range(20_000):
        fields = {"session_id": f"s{number // 10}", "time": f"{2000 + number // 1000}-{number // 100 % 10 + 1:02d}-{number // 4 % 25 + 1:02d}T10:00:00"}
        messages.append(make_message(1, f"Number {number} of many things that were said.", **fields | {"message_id": f"msg:{number}"}))
    levels = {"messages": tuple(messages), "records": (), "tracks": (), "profile": Profile(text="", time="", source_ids=())}
    save_bank(tmp_path / "many", bank_id="many", writer="hand", **levels)
    written = write_bank_page(tmp_path / "many", out=tmp_path / "many.html", max_messages=15_000)
    page = browser.new_context(viewport=DESK).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"file://{written.path}")
    page.wait_for_selector("html[data-ready]")
    assert "15,000 of 20,000 messages" in page.inner_text("#overview .notice")
    assert len(page.query_selector_all("#conversations .session")) == 30 and page.evaluate("document.querySelectorAll('*').length") < 1500
    page.fill("#search", "number 12345 of")
    page.press("#search", "Enter")
    assert page.inner_text(".count") == "Found 0 topics, 0 records, 1 message, of those in this page."
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["diary", "hostile"])
def test_nothing_overflows_at_phone_width(open_page, scheme, name):
    opened = open_page(name, PHONE, scheme)
    assert opened.overflow() <= 0
    opened.shoot(f"bank_phone_{name}_{scheme}")
    opened.page.click("#profile .statement summary")
    opened.page.click("#conversations .session summary")
    opened.page.wait_for_selector("#conversations .message")
    assert opened.overflow() <= 0
    opened.page.click("#profile .message button.link")
    assert opened.overflow() <= 0
    box = opened.page.query_selector("dialog#conversation").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] and box["y"] + box["height"] <= PHONE["height"]
    opened.shoot(f"bank_phone_{name}_{scheme}_conversation")
    opened.press("Escape")
    opened.search("a")
    assert opened.overflow() <= 0 and opened.complaints == []


def test_colours_follow_the_system_and_keep_a_readable_contrast(open_page):
    grounds = set()
    for scheme in ("light", "dark"):
        opened = open_page("diary", scheme=scheme)
        assert min(opened.page.evaluate(CONTRASTS)) >= 4.5
        grounds.add(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2

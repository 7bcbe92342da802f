"""The page of a run in a real browser, from a file: used with a keyboard, at desk and phone width, with hostile memories, without one request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_page import DESK, PHONE, Opened, launch_browser, opening
from run_maker import HOSTILE, write_run

from napmem_rl.report.page import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_run(tmp_path_factory.mktemp("report"))).path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launch_browser() as launched:
        yield launched


@pytest.fixture
def open_page(browser: Any, report: Path) -> Iterator[Callable[..., Opened]]:
    with opening(browser) as open_at:
        yield lambda *args, **keys: open_at(report, *args, **keys)


def test_the_page_opens_from_a_file_without_a_complaint_or_a_request(open_page, report):
    opened = open_page(DESK)
    opened.page.wait_for_selector("svg.plot path.main")
    assert opened.complaints == []
    assert opened.requests == [f"file://{report}"]
    assert "33 episodes" in opened.text(".count")
    assert "0.10 → 0.40" in opened.text(".tiles")
    opened.shoot("desk")


def test_markup_in_memories_and_answers_stays_text(open_page):
    opened = open_page(DESK)
    opened.page.click("[role=option] >> nth=1")
    opened.press("u")
    opened.page.wait_for_selector(".memories[open] .message")
    assert HOSTILE in opened.text(".episode-head h3") and HOSTILE in opened.text(".result") and HOSTILE in opened.text(".message .text")
    opened.press("c")
    assert HOSTILE in opened.text(".siblings")
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.evaluate("document.querySelectorAll('img').length") == 0
    assert opened.complaints == []


def test_an_episode_is_found_opened_stepped_through_and_unfolded_with_the_keyboard_alone(open_page):
    opened = open_page(DESK)
    opened.press("/")
    assert opened.page.evaluate("document.activeElement.id") == "search"
    opened.page.keyboard.type("oslo t2")
    opened.press("Enter")
    assert "16 of 33 episodes" in opened.text(".count")
    opened.press("ArrowDown", "Enter")
    assert opened.page.evaluate("document.activeElement.tagName") == "H3"
    opened.press("n")
    assert opened.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Turn 1 of 2"
    opened.press("Enter")
    opened.page.wait_for_selector(".turn >> nth=0 >> .memories[open] .message")
    shown = opened.text(".turn >> nth=0 >> .memories")
    assert "rec:1" in shown and "msg:1" in shown and "I live in Oslo." in shown
    opened.press("n")
    assert opened.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Turn 2 of 2"
    opened.press("p", "j")
    assert "3 of 16" in opened.text(".arrows")
    opened.press("?")
    assert opened.page.is_visible("dialog#help")
    opened.press("Escape")
    assert not opened.page.is_visible("dialog#help")
    assert opened.complaints == []


def test_episodes_are_filtered_by_status_type_and_reward(open_page):
    opened = open_page(DESK)
    opened.page.select_option("#filter-status", "status:error_parse")
    assert "1 of 33" in opened.text(".count") and "error_parse" in opened.text(".list")
    opened.page.click(".clear")
    opened.page.select_option("#filter-type", "two_hop")
    assert "1 of 33" in opened.text(".count")
    opened.page.click(".clear")
    opened.page.select_option("#filter-status", "none")
    assert "no reward" in opened.text(".list [role=option]")
    opened.page.click(".clear")
    opened.page.fill("#reward-from", "0.5")
    assert "16 of 33" in opened.text(".count")
    opened.page.fill("#search", "no such words")
    assert "No episode fits" in opened.text(".list")
    opened.page.click(".clear")
    opened.page.click("table.causes button >> nth=0")
    assert "1 of 33" in opened.text(".count")


def test_siblings_of_a_group_are_compared_side_by_side(open_page):
    opened = open_page(DESK)
    opened.page.click("[role=option] >> nth=1")
    opened.press("c")
    cards = opened.page.query_selector_all(".sibling")
    assert len(cards) == 4
    assert "4 samples of one question at step 1. Mean reward −0.167." in opened.text(".detail .about")
    assert "−0.333" in cards[0].inner_text() and "no reward" in cards[2].inner_text() and "+1.17" in cards[3].inner_text()
    assert cards[0].bounding_box()["y"] == cards[1].bounding_box()["y"]
    opened.press("]")
    assert opened.page.get_attribute(".sibling.current", "aria-label") == "Sample 1"
    opened.shoot("siblings")


def test_a_chart_is_read_with_the_keyboard_and_as_a_table(open_page):
    opened = open_page(DESK)
    plot = "[data-chart=reward] svg.plot"
    opened.page.focus(plot)
    opened.press("Home", "ArrowRight")
    assert opened.page.get_attribute(plot, "aria-valuetext") == "step 2: training 0.2"
    assert "step 2" in opened.text("[data-chart=phases] .at-step")
    opened.page.click("[data-chart=phases] .data-table summary")
    assert "1.5" in opened.text("[data-chart=phases] table")


def test_an_episode_can_be_linked_to(open_page):
    opened = open_page(DESK, address="#e=train%2F2%2Ft2%2F3")
    assert opened.page.get_attribute("[role=option][aria-selected=true]", "id") is not None
    assert "2, train" in opened.text(".facts")


def test_an_address_that_names_no_episode_opens_the_page_as_it_is(open_page):
    for address in ("#e=%", "#e=train%2F9%2Fnone%2F0"):
        opened = open_page(DESK, address=address)
        assert "33 episodes" in opened.text(".count")
        assert opened.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_at_phone_width(open_page, scheme):
    opened = open_page(PHONE, scheme)
    assert opened.overflow() <= 0
    assert not opened.page.is_visible(".detail")
    opened.shoot(f"phone_{scheme}")
    opened.page.click("[role=option] >> nth=0")
    assert opened.page.is_visible(".detail") and not opened.page.is_visible(".list")
    opened.press("u")
    opened.page.wait_for_selector(".memories[open] .message")
    assert opened.overflow() <= 0
    opened.press("c")
    boxes = [card.bounding_box() for card in opened.page.query_selector_all(".sibling")]
    assert all(later["y"] >= earlier["y"] + earlier["height"] for earlier, later in zip(boxes, boxes[1:], strict=False))
    assert opened.overflow() <= 0
    opened.shoot(f"phone_{scheme}_siblings")
    opened.page.click(".back")
    assert opened.page.is_visible(".list") and opened.page.evaluate("document.activeElement.getAttribute('role')") == "option"
    assert opened.complaints == []

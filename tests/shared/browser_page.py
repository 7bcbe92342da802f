"""Pages in a real browser, as the tests of reports and of banks look at them. NAPMEM_SCREENSHOTS names a directory for screenshots."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
PATIENCE_MS = 180_000  # a machine may be busy


@dataclass
class Opened:
    """A page in the browser, and everything that went wrong in it."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def search(self, text: str) -> None:
        self.page.fill("#search", text)
        self.page.press("#search", "Enter")

    def focused(self) -> str:
        return self.page.evaluate("document.activeElement.textContent")

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")

    def shoot(self, name: str) -> None:
        if directory := os.environ.get("NAPMEM_SCREENSHOTS"):
            self.page.screenshot(path=str(Path(directory) / f"{name}.png"), full_page=True)


@contextmanager
def launch_browser() -> Iterator[Any]:
    """Headless Chromium; the test is skipped, and says why, where there is none."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here; Debian: apt-get install chromium fonts-dejavu-core")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def opening(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens files of pages, each in a context of its own, until the block ends."""
    contexts = []

    def open_at(path: Path, size: dict[str, int] = DESK, scheme: str = "light", address: str = "") -> Opened:
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.complaints.append(f"{message.type}: {message.text}"))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(f"file://{path}{address}")
        opened.page.wait_for_selector("html[data-ready]")
        return opened

    yield open_at
    for context in contexts:
        context.close()

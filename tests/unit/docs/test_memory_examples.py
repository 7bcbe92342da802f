"""The examples of docs/memory.md: every block of commands and of Python runs, and prints what the page says.

A block marked `sh` needs a language model: its endpoint and model are replaced by a scripted one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from memory_endpoint import serve_memory_model

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "memory.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMES = re.compile(r"20(?!24)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d")  # when a version was made; what the example's messages say is of 2024


@dataclass(frozen=True)
class Example:
    """A block that runs, and the text block right after it, if there is one."""

    language: str
    code: str
    printed: str | None


def read_examples() -> list[Example]:
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    examples = []
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        is_told = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        if block[1] in ("bash", "sh", "python"):
            examples.append(Example(block[1], block[2], after[2] if is_told else None))
    return examples


def run(example: Example, directory: Path) -> str:
    code = example.code
    command = [sys.executable, "-c"] if example.language == "python" else ["bash", "-euo", "pipefail", "-c"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with serve_memory_model() as model:
        if example.language == "sh":
            code = code.replace("http://localhost:8000/v1", model.url).replace("NAME", "scripted")
        done = subprocess.run([*command, code], cwd=directory, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[Example, str]]]:
    """The directory in which all examples ran, in the page's order, and what each printed."""
    directory = tmp_path_factory.mktemp("page")
    (directory / "launch").symlink_to(ROOT / "launch")
    return directory, [(example, run(example, directory)) for example in read_examples()]


def test_the_page_has_examples_of_all_kinds() -> None:
    languages = [example.language for example in read_examples()]
    assert languages.count("bash") >= 4 and {"python", "sh"} <= set(languages)


def test_examples_print_what_the_page_says(page: tuple[Path, list[tuple[Example, str]]]) -> None:
    told = [(example, printed) for example, printed in page[1] if example.printed is not None]
    assert len(told) >= 5
    for example, printed in told:
        assert _TIMES.sub("", printed) == _TIMES.sub("", example.printed or ""), example.code


def test_the_language_models_bank_holds_the_same_messages(page: tuple[Path, list[tuple[Example, str]]]) -> None:
    bank, other = MemoryBank.open(page[0] / "banks-llm" / "ana"), MemoryBank.open(page[0] / "ana-in-march")
    assert "scripted" in bank.writer and list(bank.messages) == list(other.messages) and len(bank.records) > 0


@pytest.mark.parametrize("name", ["bank.json", "messages.jsonl", "records.jsonl", "commits.jsonl", "files", "index", ".lock"])
def test_what_may_be_deleted_is_as_the_page_says(page: tuple[Path, list[tuple[Example, str]]], tmp_path: Path, name: str) -> None:
    shutil.copytree(page[0] / "banks" / "ana", tmp_path / "ana")
    target = tmp_path / "ana" / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    row = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}"))
    if "nothing" in row:
        assert MemoryBank.open(tmp_path / "ana").search_records("Mia", k=1)
    else:
        with pytest.raises(BankError):
            MemoryBank.open(tmp_path / "ana")

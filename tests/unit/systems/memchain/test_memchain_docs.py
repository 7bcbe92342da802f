"""Every function and test that the tables of equations name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = next(parent for parent in Path(__file__).resolve().parents if (parent / "napmem_rl").is_dir())
SYSTEM = ROOT / "napmem_rl" / "systems" / "memchain"
TABLES = {
    "README": (SYSTEM / "README.md").read_text(encoding="utf-8"),
    "algorithms": (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8").partition("## MemChain")[2].partition("\n## ")[0],
}


@pytest.mark.parametrize("page", TABLES)
def test_named_tests_exist(page: str) -> None:
    known = {name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))}
    files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(test_\w+(?:\.py)?)`", TABLES[page])
    assert len(named) > 8
    assert [name for name in named if name not in known | files] == []


@pytest.mark.parametrize("page", TABLES)
def test_named_functions_exist(page: str) -> None:
    named = re.findall(r"`([\w/]+\.py)(?:: (\w+))?(?:\.(\w+))?`", TABLES[page])
    assert len(named) > 8
    for file, *names in named:
        if file.startswith("test_"):
            continue
        paths = [path for path in (SYSTEM / file, ROOT / "napmem_rl" / file, ROOT / file) if path.is_file()]
        assert paths, file
        for name in filter(None, names):
            assert re.search(rf"\b(?:def|class) {name}\b", paths[0].read_text(encoding="utf-8")), f"{file}: {name}"


def test_every_equation_of_the_paper_stands_in_a_table() -> None:
    """Equations 1 to 16; those of the packet and its reward in one table, SFT and TMPO in the next."""
    text = TABLES["algorithms"] + (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8").partition("## TMPO")[2].partition("\n## ")[0]
    named: set[int] = set()
    for cell in re.findall(r"^\| (\(\d+\).*?) \|", text, flags=re.MULTILINE):
        for first, last in re.findall(r"\((\d+)\)(?:–\((\d+)\))?", cell):  # noqa: RUF001
            named |= set(range(int(first), int(last or first) + 1))
    assert named == set(range(1, 17))

"""launch/reproduce.py: what it takes, and which finished runs it uses."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from napmem_rl.backend import reproduction

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, in a project of its own that has the real recipe."""
    spec = importlib.util.spec_from_file_location("reproduce_command", ROOT / "launch" / "reproduce.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(reproduction.subprocess, "run", lambda *args, **kwargs: pytest.fail("a run was started"))
    return module


def finish(root: Path, steps: int) -> None:
    run_dir = root / "runs" / "reproduce-quickstart" / "seed0"
    run_dir.mkdir(parents=True)
    (run_dir / "summary.json").write_text(json.dumps({"seed": 0, "steps": steps}))


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--seeds", "-1"], ["--steps", "0"]])
def test_counts_below_one_are_refused(command: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["quickstart", *arguments])
    assert caught.value.code == 2 and "is not above 0" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--steps", "7"], []])
def test_a_finished_run_of_another_length_is_refused_rather_than_used(
    command: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    finish(tmp_path, steps=3)
    assert command.main(["quickstart", "--seeds", "1", *arguments]) == 2
    message = capsys.readouterr().err
    assert "another number of steps than asked for; got 3; expected" in message and str(tmp_path) in message


def test_a_finished_run_of_the_same_length_is_used(command: ModuleType, tmp_path: Path) -> None:
    finish(tmp_path, steps=7)
    assert reproduction.is_finished(tmp_path / "runs" / "reproduce-quickstart" / "seed0", 7)
    assert not reproduction.is_finished(tmp_path / "runs" / "reproduce-quickstart" / "seed1", 7)


def test_the_baselines_need_to_be_told_where_the_data_are(command: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAPMEM_DATA", "/nowhere")
    assert command.main(["evaluation"]) == 2
    assert "NAPMEM_DATA: names no directory; got '/nowhere'" in capsys.readouterr().err

"""A misspelt subcommand or choice is answered with the nearest one."""

from __future__ import annotations

import pytest

from napmem_rl.cli import main
from napmem_rl.command_parser import CommandParser
from napmem_rl.data.sources import add_sources


@pytest.mark.parametrize(
    ("arguments", "ending"),
    [
        (["syntetic"], "Did you mean synthetic?"),
        (["personamem", "--input", "f", "--out", "d", "--history", "23k"], "Did you mean 32k?"),
        (["zzzz"], "'bfcl')"),
        (["locomo"], "required: --input, --out"),
    ],
)
def test_a_misspelt_data_set_or_choice_names_the_nearest(arguments: list[str], ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = CommandParser()
    add_sources(parser)
    with pytest.raises(SystemExit) as left:
        parser.parse_args(arguments)
    assert left.value.code == 2 and capsys.readouterr().err.rstrip().endswith(ending)


def test_a_misspelt_command_of_napmem_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["scor"])
    assert capsys.readouterr().err.rstrip().endswith("Did you mean score?")

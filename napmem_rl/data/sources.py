"""The data sets that `launch/prepare_data.py` knows: name -> what its command line takes, and how it is read."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.data import dialogue_sets, locomo, longmemeval, personamem, question_file
from napmem_rl.data.control_files import BFCL, GPQA, ControlSet, load_bfcl, load_gpqa
from napmem_rl.data.json_lines import ON_BAD_LINE
from napmem_rl.data.prepare import prepare
from napmem_rl.data.prepare_controls import prepare_controls
from napmem_rl.data.source import DataSource, SourceBank, SourceSet
from napmem_rl.data.worlds import generate_user
from napmem_rl.errors import DataError
from napmem_rl.memory.writer_settings import add_writer_arguments, read_writer_arguments
from napmem_rl.retrieval.encoder import load_encoder

SYNTHETIC = "synthetic"
Arguments = argparse.Namespace
Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFormat:
    """One data set. `load` gives a source of users, or, of a set of control tasks, `load_controls` makes tasks for the banks that it is given."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    load: Callable[[Arguments], DataSource] | None = None
    load_controls: Callable[[Arguments, Sequence[str]], ControlSet] | None = None


def add_sources(parser: argparse.ArgumentParser) -> None:
    """One subcommand a data set."""
    subparsers = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    for name, source in SOURCES.items():
        own = subparsers.add_parser(name, help=source.help, description=source.help, allow_abbrev=False)
        source.add_arguments(own)
        own.add_argument("--out", type=Path, required=True, help="directory to write: new, empty, or an earlier result, which is replaced")
        if source.load is not None:
            own.add_argument("--split", type=Path, help='JSON {"train": [ids], "dev": [ids], "test": [ids]}; without it groups are split 60/20/20 by hash')
            own.add_argument("--encoder", default="minilm", help="vectors to compute now: minilm, hashing, none, or a model path (default: minilm)")
            add_writer_arguments(own)


def prepare_source(arguments: Arguments, report: Report) -> dict[str, Any]:
    """Do what a parsed command line says; returns the content of data.json.

    Raises:
        NapMemError: what cannot be used; nothing was written then.
    """
    source = SOURCES[arguments.source]
    inputs = [path for name in ("input", "questions", "answers") if (path := getattr(arguments, name, None)) is not None]
    missing = [path for path in inputs if not path.exists()]
    if missing:
        raise DataError.of(f"input {missing[0]}", "does not exist")
    if source.load is None:
        assert source.load_controls is not None, f"source {arguments.source} loads nothing"
        load = functools.partial(source.load_controls, arguments)
        return prepare_controls(load, arguments.out, banks=arguments.banks, inputs=inputs, report=report)
    llm = read_writer_arguments(arguments)
    encoder = load_encoder(arguments.encoder)
    loaded = source.load(arguments)
    return prepare(loaded, arguments.out, inputs=inputs, split_path=arguments.split, encoder=encoder, llm=llm, report=report)


def build_synthetic(num_users: int, *, seed: int, num_questions: int = 12) -> SourceSet:
    """Users of `worlds`, each a group of its own.

    Raises:
        DataError: fewer than one user.
    """
    for name, number in (("--users", num_users), ("--questions-per-user", num_questions)):
        if number < 1:
            raise DataError.of(name, "is less than one", got=number)
    users = [generate_user(f"{SYNTHETIC}-{seed}", index, num_questions=num_questions) for index in range(num_users)]
    return SourceSet(
        name=SYNTHETIC,
        banks=tuple(SourceBank(bank_id=user.bank_id, group_id=user.bank_id, messages=user.messages) for user in users),
        items=tuple((question.task, question.key) for user in users for question in user.questions),
        is_generated=True,
    )


def _add_input(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--input", type=Path, required=True, help=what)


def _add_seed(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--seed", type=int, default=0, help=f"of {what} (default: 0)")


def _add_locomo(parser: argparse.ArgumentParser) -> None:
    _add_input(parser, "the JSON file as it was published")
    parser.add_argument("--adversarial", action="store_true", help="keep category 5, whose answer is that nothing was said")


def _add_longmemeval(parser: argparse.ArgumentParser) -> None:
    _add_input(parser, "oracle or S as published: JSON list or JSON lines, gzipped or not")


def _add_personamem(parser: argparse.ArgumentParser) -> None:
    _add_input(parser, "a CSV file of the repository, e.g. benchmark/text/benchmark.csv, with the chat histories beside it as published")
    parser.add_argument("--history", choices=personamem.HISTORIES, default="32k", help="which chat histories (default: 32k)")
    _add_seed(parser, "the options' order")


def _add_dialogues(parser: argparse.ArgumentParser) -> None:
    _add_input(parser, "a file as published, or a directory of such files")
    parser.add_argument("--ask", action="store_true", help="keep the last session out of the bank and ask for its last reply; without it there are no rows")


def _add_jsonl(parser: argparse.ArgumentParser) -> None:
    _add_input(parser, "JSONL file of messages, or a directory of such files")
    parser.add_argument("--questions", type=Path, help="JSONL file of questions; without it there are no rows")
    parser.add_argument("--name", default=question_file.NAME, help="data_source of the rows (default: jsonl)")
    parser.add_argument("--on-bad-line", choices=ON_BAD_LINE, default="error", help="what to do with a line that cannot be used (default: error)")


def _add_synthetic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--users", type=int, required=True, help="how many")
    parser.add_argument("--questions-per-user", type=int, default=12, help="of six types in turn (default: 12)")
    _add_seed(parser, "the users")


def _add_controls(parser: argparse.ArgumentParser) -> None:
    _add_input(parser, "the file of tasks")
    parser.add_argument("--banks", type=Path, required=True, help="a prepared directory, whose dev and test users' banks are given to the tasks")
    _add_seed(parser, "options and banks")


def _add_bfcl(parser: argparse.ArgumentParser) -> None:
    _add_controls(parser)
    parser.add_argument("--answers", type=Path, help="the file of possible answers, where ground truths do not stand in the input")


def _load_dialogues(name: str, arguments: Arguments) -> DataSource:
    return dialogue_sets.load_dialogues(name, arguments.input, ask=arguments.ask)


def _dialogues(name: str, title: str) -> SourceFormat:
    return SourceFormat(help=f"{title}: dialogues over several sessions", add_arguments=_add_dialogues, load=functools.partial(_load_dialogues, name))


SOURCES: dict[str, SourceFormat] = {
    locomo.NAME: SourceFormat(
        help="LoCoMo: ten long conversations of two people, two banks each",
        add_arguments=_add_locomo,
        load=lambda arguments: locomo.load_locomo(arguments.input, adversarial=arguments.adversarial),
    ),
    longmemeval.NAME: SourceFormat(
        help="LongMemEval, oracle or S: one user and one question an instance; for evaluation alone",
        add_arguments=_add_longmemeval,
        load=lambda arguments: longmemeval.load_longmemeval(arguments.input),
    ),
    personamem.NAME: SourceFormat(
        help="PersonaMem-v2: multiple choice about users' preferences",
        add_arguments=_add_personamem,
        load=lambda arguments: personamem.load_personamem(arguments.input, history=arguments.history, seed=arguments.seed),
    ),
    dialogue_sets.GAPCHAT: _dialogues(dialogue_sets.GAPCHAT, "GapChat"),
    dialogue_sets.MSC: _dialogues(dialogue_sets.MSC, "Multi-Session Chat"),
    dialogue_sets.CHRONICLES: _dialogues(dialogue_sets.CHRONICLES, "Conversation Chronicles"),
    question_file.NAME: SourceFormat(
        help="your own messages, and questions to them, as JSON lines",
        add_arguments=_add_jsonl,
        load=lambda arguments: question_file.load_own_data(arguments.input, arguments.questions, name=arguments.name, on_bad_line=arguments.on_bad_line),
    ),
    SYNTHETIC: SourceFormat(
        help="users drawn from word lists, as in the quickstart",
        add_arguments=_add_synthetic,
        load=lambda arguments: build_synthetic(arguments.users, seed=arguments.seed, num_questions=arguments.questions_per_user),
    ),
    GPQA: SourceFormat(
        help="control tasks: multiple choice in GPQA's format",
        add_arguments=_add_controls,
        load_controls=lambda arguments, banks: load_gpqa(arguments.input, banks, seed=arguments.seed),
    ),
    BFCL: SourceFormat(
        help="control tasks: function calling in BFCL's format",
        add_arguments=_add_bfcl,
        load_controls=lambda arguments, banks: load_bfcl(arguments.input, banks, answers=arguments.answers, seed=arguments.seed),
    ),
}

"""The guard against training on what is evaluated: messages are compared by what they say, whatever set, user or id they stand under.

Two messages are the same where their words are: letters and digits after Unicode normalisation, in lower case, without punctuation. A message counts only if
it has at least `MIN_WORDS` words, because shorter ones ("That sounds great!") recur among people who never met; captions of images do not count. In LoCoMo no
two conversations share such a message; in a set that is no benchmark, a text that five users or more, and a twentieth of all, have in common is a phrase
and not a copy, and does not count either.

A prepared directory keeps a fingerprint of each such message in ``fingerprints.parquet`` (64-bit hashes: among 250,000 different messages, any two agree by
chance in one of some 600 million sets), so that directories can be compared without their banks.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.atomic import open_replacement
from napmem_rl.data.rows import load_rows
from napmem_rl.data.splits import META, read_json
from napmem_rl.errors import DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.schema import AnswerKey, Message, Task

MIN_WORDS = 8
PHRASE_GROUPS, PHRASE_SHARE = 5, 0.05  # a text of so many users, and of such a share of all, is a phrase
FINGERPRINTS = "fingerprints.parquet"
TRAINING_FINGERPRINTS = "training_messages.parquet"  # in a run directory: of all banks that its training rows ask
_SHOWN = 3
_WORD = re.compile(r"\w+")


def fingerprint(text: str) -> int | None:
    """What a message says as a 64-bit number; None where it is too short to tell."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    if len(words) < MIN_WORDS:
        return None
    return int.from_bytes(hashlib.blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True)


class Fingerprints:
    """Fingerprints of the messages of many banks, with the group of each bank."""

    def __init__(self) -> None:
        self._by_bank: dict[str, frozenset[int]] = {}
        self._groups: dict[str, str] = {}

    def add(self, bank_id: str, group_id: str, messages: Iterable[Message]) -> None:
        """Take in a bank."""
        self._by_bank[bank_id] = frozenset(number for message in messages if (number := fingerprint(message.text)) is not None)
        self._groups[bank_id] = group_id

    def drop_phrases(self) -> int:
        """Forget texts that so many groups have in common that they are phrases; returns how many texts."""
        num_groups = len(set(self._groups.values()))
        phrases = {number for number, groups in self._holders().items() if len(groups) >= max(PHRASE_GROUPS, PHRASE_SHARE * num_groups)}
        self._by_bank = {bank_id: numbers - phrases for bank_id, numbers in self._by_bank.items()}
        return len(phrases)

    def join_groups(self) -> dict[str, str]:
        """Group -> the first, by name, of all groups that share messages with it, directly or through others."""
        parent = {group: group for group in self._groups.values()}

        def find(group: str) -> str:
            while parent[group] != group:
                parent[group] = parent[parent[group]]
                group = parent[group]
            return group

        for groups in self._holders().values():
            first, *others = sorted(find(group) for group in groups)
            for other in others:
                parent[find(other)] = find(first)
        return {group: find(group) for group in parent}

    def save(self, path: Path) -> None:
        """Write them; see `load_fingerprints`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        banks = [bank_id for bank_id, numbers in self._by_bank.items() for _ in numbers]
        numbers = [number for found in self._by_bank.values() for number in sorted(found)]
        table = pa.table({"bank_id": pa.array(banks, pa.string()).dictionary_encode(), "fingerprint": pa.array(numbers, pa.int64())})
        with open_replacement(path) as file:
            pq.write_table(table, file)

    def _holders(self) -> Mapping[int, set[str]]:
        """Fingerprint -> groups that hold it."""
        holders: dict[int, set[str]] = defaultdict(set)
        for bank_id, numbers in self._by_bank.items():
            for number in numbers:
                holders[number].add(self._groups[bank_id])
        return holders


def load_fingerprints(data_dir: Path, bank_ids: Iterable[str] | None = None) -> dict[int, str]:
    """Fingerprint -> a bank that holds it, of some banks of a prepared directory or all.

    Where the directory has no such file (it was written by hand) the banks themselves are read.

    Raises:
        DataError: the file cannot be read, or does not know one of the banks that are there.
    """
    wanted = None if bank_ids is None else set(bank_ids)
    if (data_dir / FINGERPRINTS).exists():
        return {number: bank_id for bank_id, number in _read_table(data_dir / FINGERPRINTS) if wanted is None or bank_id in wanted}
    found: dict[int, str] = {}
    names = wanted if wanted is not None else {path.name for path in (data_dir / "banks").iterdir()} if (data_dir / "banks").is_dir() else set()
    for bank_id in sorted(names):
        bank = MemoryBank.open(find_bank_dir(data_dir / "banks", bank_id))
        found |= {number: bank_id for message in bank.messages if (number := fingerprint(message.text)) is not None}
    return found


def check_no_overlap(training: Mapping[int, str], held_out: Sequence[Path], *, what: str) -> None:
    """Refuse training data that share a message with an item of an evaluation.

    Args:
        training: of `load_fingerprints`, for the banks that training rows ask.
        held_out: prepared directories; compared are the banks that their rows of ``dev`` and ``test`` ask.
        what: how the error names the training data.

    Raises:
        DataError: shared messages; it names how many, and some with their banks.
    """
    for data_dir in held_out:
        asked = find_asked_banks(data_dir, ("dev", "test"))
        other = load_fingerprints(data_dir, asked)
        shared = sorted(training.keys() & other.keys())
        if shared:
            shown = _describe(shared[:_SHOWN], data_dir, {number: other[number] for number in shared}, training)
            problem = f"shares {len(shared)} messages with what {data_dir} evaluates: {shown}"
            raise DataError.of(what, problem, fix="Train on other users, or evaluate on others.")


def find_asked_banks(data_dir: Path, splits: Sequence[str]) -> set[str]:
    """The banks that the rows of some splits ask. Raises DataError where a file of rows cannot be read."""
    files = [data_dir / f"{split}.parquet" for split in splits]
    return {task.bank_id for file in files if file.exists() for task, _ in load_rows(file)}


def check_training_data(files: Sequence[Path], rows: Sequence[tuple[Task, AnswerKey]], *, held_out: Sequence[Path]) -> dict[int, str] | None:
    """Refuse training rows of a benchmark, and rows whose users said what users of held-out questions say too.

    Args:
        files: the parquet files of training rows; each lies in its prepared directory.
        rows: what they hold.
        held_out: prepared directories that are for evaluation.

    Returns:
        Fingerprint -> bank, of all banks that the rows ask; None where a directory keeps none (it was written by hand) and nothing is held out.

    Raises:
        DataError: any of that; see `check_no_overlap`.
    """
    asked = {task.bank_id for task, _ in rows}
    training: dict[int, str] = {}
    is_known = True
    for data_dir in dict.fromkeys(file.parent for file in files):
        meta = read_json(data_dir / META, f"data directory {data_dir}") if (data_dir / META).is_file() else {}
        if meta.get("benchmark"):
            fix = "Train on another set; prepare_data.py puts such a set's rows into test."
            raise DataError.of(f"training data {data_dir}", f"is {meta.get('source')}, which is for evaluation alone", fix=fix)
        has_file = (data_dir / FINGERPRINTS).exists()
        if meta.get("generated"):
            continue
        if has_file or held_out:
            training |= load_fingerprints(data_dir, asked if has_file else {bank for bank in asked if find_bank_dir(data_dir / "banks", bank).exists()})
        is_known = is_known and has_file
    check_no_overlap(training, held_out, what=f"training data {', '.join(str(file) for file in files)}")
    return training if is_known or held_out else None


def keep_training_fingerprints(run_dir: Path, training: Mapping[int, str] | None, *, base: Path) -> None:
    """Keep with a run what its training rows' users said, and what its base model was trained on, so that an evaluation of its checkpoints can be checked.

    Args:
        run_dir: where checkpoints are written.
        training: of `check_training_data`; None keeps nothing, as where a directory that was written by hand does not say.
        base: the model that training starts from.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if training is None:
        return
    known = dict(find_training_fingerprints(base) or {}) | dict(training)
    table = pa.table({"bank_id": pa.array(list(known.values()), pa.string()).dictionary_encode(), "fingerprint": pa.array(list(known), pa.int64())})
    with open_replacement(run_dir / TRAINING_FINGERPRINTS) as file:
        pq.write_table(table, file)


def find_training_fingerprints(checkpoint: Path) -> dict[int, str] | None:
    """What a policy was trained on, by the run directory that its checkpoint lies in; None where no run directory says.

    Args:
        checkpoint: a run directory, or a directory somewhere below one.
    """
    for directory in (checkpoint, *checkpoint.resolve().parents):
        if (directory / TRAINING_FINGERPRINTS).is_file():
            return {number: bank_id for bank_id, number in _read_table(directory / TRAINING_FINGERPRINTS)}
    return None


def _read_table(path: Path) -> Iterator[tuple[str, int]]:
    """(bank id, fingerprint) of each line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table: Any = pq.read_table(path, columns=["bank_id", "fingerprint"])
    except (pa.ArrowException, OSError) as error:
        raise DataError.of(f"fingerprints {path}", f"cannot be read ({error})", fix="Prepare the directory again with launch/prepare_data.py.") from error
    return zip(table["bank_id"].to_pylist(), table["fingerprint"].to_pylist(), strict=True)


def _describe(numbers: Sequence[int], data_dir: Path, other: Mapping[int, str], training: Mapping[int, str]) -> str:
    """Some shared messages in words: their text where the bank is there, and both banks."""
    found = []
    for number in numbers:
        path = find_bank_dir(data_dir / "banks", other[number])
        texts = [message.text for message in MemoryBank.open(path).messages if fingerprint(message.text) == number] if path.exists() else []
        said = f"{texts[0][:80]!r}" if texts else f"message {number}"
        found.append(f"{said} (trained on in bank {training[number]}, evaluated in bank {other[number]})")
    return "; ".join(found)

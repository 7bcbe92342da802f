"""A metric that is ready to compute, whatever library it comes from."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.text_metrics.pairs import Pair


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedMetric:
    """`compute` gives one value a pair, in their order; of a corpus metric, one value for all of them.

    `version` says what decides the values besides the texts: library, model, settings. Figures of two versions must not be compared.
    """

    name: str
    compute: Callable[[Sequence[Pair]], list[float]]
    version: str
    is_corpus: bool = False
    needs_gold: bool = True  # False: the metric itself knows which pairs need one

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """One value a pair. A blank prediction is worth 0 and reaches no library.

        Raises:
            DataError: a pair that lacks what the metric needs.
        """
        self._check_gold(pairs)
        given = [pair for pair in pairs if pair.prediction.strip()]
        values = iter(self.compute(given) if given else ())
        return [next(values) if pair.prediction.strip() else 0.0 for pair in pairs]

    def score_corpus(self, pairs: Sequence[Pair]) -> float:
        """The one value of a corpus metric. Raises DataError where it cannot be computed of these pairs."""
        self._check_gold(pairs)
        return self.compute(pairs)[0]

    def _check_gold(self, pairs: Sequence[Pair]) -> None:
        for pair in pairs:
            if self.needs_gold and not pair.gold:
                raise DataError.of(f"metric {self.name}, {pair.describe()}, field 'gold'", "is empty", expected="a text to compare with")


def import_library(module: str, package: str, extra: str) -> ModuleType:
    """A library that a metric is computed with.

    Raises:
        ConfigError: it is not installed, or cannot be imported beside what is.
    """
    what, fix = f"library {package}", f"Install the extra {extra}: pip install .[{extra}]"
    try:
        return importlib.import_module(module)
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name is not None and module.split(".")[0] == error.name.split(".")[0]
        problem = "is not installed" if is_missing else f"cannot be imported ({error})"
        raise ConfigError.of(what, problem, fix=fix) from error


def name_version(*packages: str) -> str:
    """Installed versions in words. Example: "nltk 3.10.4"."""
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)

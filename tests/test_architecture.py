"""The layers of the package, checked twice: in what each file says, and in what importing it really loads.

Everything except napmem_rl/backend, napmem_rl/platforms, the command line and launch/ is pure:
it runs, and is tested, without Ray, verl or vLLM. torch stands only where numbers are computed. Layers that are not built yet are skipped.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "napmem_rl"
ENGINES = frozenset({"ray", "verl", "vllm", "sglang", "deepspeed", "transfer_queue"})
STDLIB_ONLY = ("schema", "errors", "atomic", "model_files", "masking")
MAY_USE_TORCH = ("algos", "retrieval", "evals")
PURE = (*STDLIB_ONLY, "file_lock", "config", "memory", "retrieval", "llm", "tools", "rewards", "algos", "data", "evals", "systems", "report", "assistant")
SYSTEMS = ("napmem", "memchain", "icml", "rmm")


def find_sources(layer: str) -> list[Path]:
    """The Python files of a layer; skips the test where there are none yet."""
    single = PACKAGE / f"{layer}.py"
    paths = [single] if single.exists() else sorted((PACKAGE / layer).rglob("*.py"))
    if not paths:
        pytest.skip(f"napmem_rl/{layer} is not built yet")
    return paths


def read_imports(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in it, as a full dotted name."""
    package = path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, node.module) if node.module else above)
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def find_offences(path: Path, forbidden: frozenset[str]) -> set[str]:
    """Imports of forbidden top-level packages, and of layers that stand above all pure ones."""
    names = set(read_imports(path))
    above = {name for name in names if name.startswith(("napmem_rl.backend", "napmem_rl.platforms", "napmem_rl.cli"))}
    return above | {name for name in names if name.split(".")[0] in forbidden}


def is_system_model(path: Path) -> bool:
    """A system's own network, the one file outside the numeric layers that needs torch."""
    return path.name == "model.py" and path.parent.parent.name == "systems"


@pytest.mark.parametrize("layer", PURE)
def test_no_file_of_a_pure_layer_names_an_engine(layer: str) -> None:
    for path in find_sources(layer):
        forbidden = ENGINES if layer in MAY_USE_TORCH or is_system_model(path) else ENGINES | {"torch"}
        assert not find_offences(path, forbidden), f"{path.relative_to(PACKAGE.parent)}: move what needs these into napmem_rl/backend"


@pytest.mark.parametrize("layer", STDLIB_ONLY)
def test_the_core_types_and_errors_need_the_standard_library_alone(layer: str) -> None:
    for path in find_sources(layer):
        allowed = tuple(f"napmem_rl.{name}" for name in STDLIB_ONLY)
        outside = {name.split(".")[0] for name in read_imports(path) if not name.startswith(allowed)} - set(sys.stdlib_module_names)
        assert not outside, f"{path.name} imports {sorted(outside)}"


@pytest.mark.parametrize("layer", PURE)
def test_importing_a_pure_layer_loads_no_engine(layer: str) -> None:
    """A fresh interpreter, because the import of a third package, or of an __init__.py, could bring one in."""
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for path in find_sources(layer)]
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint(sorted({set(ENGINES)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_configuration_loads_without_torch() -> None:
    """A recipe is checked in a second, before anything heavy starts."""
    code = "import sys, napmem_rl.config.recipe, napmem_rl.cli; print(sorted({'torch', 'transformers', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_imports_no_other_system(system: str) -> None:
    others = tuple(f"napmem_rl.systems.{other}" for other in SYSTEMS if other != system)
    for path in find_sources(f"systems/{system}"):
        crossing = {name for name in read_imports(path) if name.startswith(others)}
        assert not crossing, f"{path.relative_to(PACKAGE.parent)}: {sorted(crossing)}; share through a common layer"


def test_package_markers_hold_a_docstring_and_nothing_else() -> None:
    for path in sorted(PACKAGE.rglob("__init__.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert len(body) <= 1 and all(isinstance(node, ast.Expr) for node in body), f"{path.relative_to(PACKAGE.parent)} runs code on import"


def test_launch_scripts_stay_short() -> None:
    for path in sorted((PACKAGE.parent / "launch").glob("*.py")):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, f"{path.name}: parse, configure, one call; the rest belongs in the package"

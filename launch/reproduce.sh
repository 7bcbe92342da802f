#!/usr/bin/env bash
# Repeat a result over several seeds: bash launch/reproduce.sh quickstart [--seeds N] [--first-seed N] [--steps N]
# Writes runs/reproduce-quickstart/table.json and the table in docs/reproduce.md.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$ROOT/launch/install.sh"
VENV="${NAPMEM_VENV:-$ROOT/.venv}"
exec "$VENV/bin/python" "$ROOT/launch/reproduce.py" "$@"

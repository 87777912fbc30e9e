#!/usr/bin/env bash
# The shell scripts through shellcheck.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$root"

if ! need shellcheck shellcheck; then
  tally skipped 1 'shellcheck is missing (apt-get install shellcheck)'
  exit
fi
check 'the scripts are clean' \
  shellcheck --external-sources --severity=warning .ci/run scripts/*.sh scripts/*/*.sh \
  scripts/*/*/*.sh

#!/usr/bin/env bash
# Runs a test program: claimed.sh PROGRAM ARGUMENT... Of all that share the folder $NOVALE_CLAIMS one
# runs it, whoever comes first: several `cargo test` beside each other run each program once.
claim=$NOVALE_CLAIMS/${1##*/}
if ! mkdir "$claim" 2>/dev/null; then
  [ -d "$claim" ] || { echo "claimed.sh: no claim can be made in $NOVALE_CLAIMS" >&2; exit 1; }
  exit 0
fi
TIMEFORMAT="claimed.sh: %R s, %U and %S s of CPU: ${1##*/}"
time "$@"

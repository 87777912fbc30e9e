#!/usr/bin/env bash
# Stands in for a part of the tests that can't run here: counted as skipped, with its reason.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"
tally skipped 1 "$1"

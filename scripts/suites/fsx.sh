#!/usr/bin/env bash
# The exerciser fsx on a mount: 50,000 random operations on one file, each read verified.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

operations=${1:-50000}
seed=${2:-1}
if ! reason=$(why_no_mount); then
  tally skipped 1 "fsx: $reason"
  exit
fi
if ! program=$(cargo_tool fsx 0.3.2); then
  tally skipped 1 'fsx: could not be installed (cargo install --locked fsx@0.3.2)'
  exit
fi

scratch
mkdir -p "$mounts/novale" "$target/test/fsx"
"$novale" mkfs --size 256M "$pools/pool"
"$novale" mount "$pools/pool" "$mounts/novale"
check "fsx, $operations operations, seed $seed" \
  "$program" -q -N "$operations" -S "$seed" -f "$root/scripts/suites/fsx.toml" \
  -P "$target/test/fsx" "$mounts/novale/file"
"$novale" umount "$mounts/novale"
check 'the pool is whole after fsx' "$novale" check "$pools/pool"

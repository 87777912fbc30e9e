#!/usr/bin/env bash
# The exerciser fsx on a mount: 50,000 random operations on one file, each read verified; more of them
# (fsx.sh OPERATIONS SEED) in turns with seeds of their own, since it never unmaps what it has read
# through a mapping: it slows down, and the kernel refuses the 65,530th.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

operations=${1:-50000}
seed=${2:-1}
needs_mount fsx
if ! program=$(cargo_tool fsx 0.3.2); then
  tally skipped 1 'fsx: could not be installed (cargo install --locked fsx@0.3.2)'
  exit
fi

scratch
mkdir -p "$mounts/novale" "$target/test/fsx"
"$novale" mkfs --size 256M "$pools/pool"
"$novale" mount "$pools/pool" "$mounts/novale"
while [ "$operations" -gt 0 ]; do
  turn=$((operations < 50000 ? operations : 50000))
  check "fsx, $turn operations, seed $seed" \
    "$program" -q -N "$turn" -S "$seed" -f "$root/scripts/suites/fsx.toml" \
    -P "$target/test/fsx" "$mounts/novale/file"
  rm -f "$mounts/novale/file"
  operations=$((operations - turn)) seed=$((seed + 1))
done
"$novale" umount "$mounts/novale"
check 'the pool is whole after fsx' "$novale" check "$pools/pool"

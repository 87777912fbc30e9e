#!/usr/bin/env bash
# Runs a benchmark of folders on a Novale mount and on what the machine has beside it: tmpfs, and ext4,
# XFS and Btrfs on loop devices over files in memory, where their mkfs is there. As root:
#   scripts/beside.sh MB micro --files 10000 --rounds 3
# MB is the size of each of them. With DIRECT=1 in the environment the mount is shared and the benchmark
# runs direct (novale run):
#   DIRECT=1 scripts/beside.sh 512 mount --durable
# OPTIONS are those of that mount, beside `direct`.
# All of it is taken down in the end.
set -euo pipefail

megabytes=${1:?MB COMMAND [ARGUMENT...]}
shift
target=${CARGO_TARGET_DIR:-target}
novale=${NOVALE:-$target/release/novale}
bench=${NOVALE_BENCH:-$target/release/novale-bench}
work=$(mktemp -d /tmp/b-XXXXXX)
memory=$(mktemp -d /dev/shm/novale-beside-XXXXXX)
folders=()

take_down() {
  local kind
  # Lazily where some other program looks into every mount of the machine.
  "$novale" umount "$work/novale" 2>/dev/null || "$novale" umount --lazy "$work/novale" || true
  for kind in tmpfs ext4 xfs btrfs; do
    if mountpoint -q "$work/$kind"; then umount "$work/$kind" || umount -l "$work/$kind"; fi
  done
  rm -rf "$memory"
  rmdir "$work"/* "$work"
}
trap take_down EXIT

mkdir "$work/novale" "$work/tmpfs"
"$novale" mkfs --size "${megabytes}M" "$memory/pool" > /dev/null
options=()
runner=()
if [ -n "${DIRECT:-}" ]; then
  options=(-o "direct${OPTIONS:+,$OPTIONS}")
  runner=("$novale" run --strict --mount "$work/novale" --)
fi
"$novale" mount "${options[@]}" "$memory/pool" "$work/novale"
mount -t tmpfs -o "size=${megabytes}M" tmpfs "$work/tmpfs"
folders+=("$work/novale" "$work/tmpfs")
for kind in ext4 xfs btrfs; do
  if ! command -v "mkfs.$kind" > /dev/null; then
    echo "beside.sh: without $kind: no mkfs.$kind" >&2
    continue
  fi
  mkdir "$work/$kind"
  truncate -s "${megabytes}M" "$memory/$kind"
  "mkfs.$kind" -q "$memory/$kind"
  if mount -o loop "$memory/$kind" "$work/$kind"; then
    folders+=("$work/$kind")
  else
    echo "beside.sh: without $kind: no loop device, or not in this kernel" >&2
  fi
done
"${runner[@]}" "$bench" "$@" "${folders[@]}"

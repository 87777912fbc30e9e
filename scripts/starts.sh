#!/usr/bin/env bash
# What it takes to start processes, under `novale run` and without it, in turn: us of the clock and of
# the CPU, medians; and page faults of one that does nothing. No file of the pool is touched.
#   scripts/starts.sh [ROUNDS [COUNT]]      (9 and 300)
# With OTHER=FILE, another libnovale_preload.so, in turns with that one as well.
# All of it is taken down in the end.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=${1:-9}
count=${2:-300}
novale=${NOVALE:-$target/release/novale}
if ! reason=$(why_no_mount); then
  echo "starts.sh: $reason" >&2
  exit 1
fi
need cc gcc libc6-dev || exit 1

work=$(mktemp -d /tmp/s-XXXXXX)
pool=$(mktemp -u /dev/shm/novale-starts-XXXXXX)
take_down() {
  "$novale" umount "$work/dir" 2>/dev/null || "$novale" umount --lazy "$work/dir" || true
  rm -rf "$pool" "$work/starts" "$work"/*.txt
  rmdir "$work/dir" "$work"
}
trap take_down EXIT
mkdir "$work/dir"
cc -O2 -o "$work/starts" "$root/scripts/starts.c"
"$novale" mkfs --size 64M "$pool" >/dev/null
"$novale" mount -o direct "$pool" "$work/dir"
run=("$novale" run --strict --mount "$work/dir" --)

median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
"${run[@]}" /bin/true # tables of sites are kept by the first
ways=(plain direct)
head='| what | plain: clock | CPU | direct: clock | CPU | CPU more |'
line='| --- | --- | --- | --- | --- | --- |'
if [ -n "${OTHER:-}" ]; then
  ways+=(other)
  head+=' other: clock | CPU | CPU more |'
  line+=' --- | --- | --- |'
  NOVALE_PRELOAD=$OTHER "${run[@]}" /bin/true
fi
printf '%s\n%s\n' "$head" "$line"
for what in fork exec spawn; do
  for _ in $(seq "$rounds"); do
    "$work/starts" "$what" "$count" >>"$work/plain-$what.txt"
    "${run[@]}" "$work/starts" "$what" "$count" >>"$work/direct-$what.txt"
    [ -z "${OTHER:-}" ] ||
      NOVALE_PRELOAD=$OTHER "${run[@]}" "$work/starts" "$what" "$count" >>"$work/other-$what.txt"
  done
  row="| $what |"
  for how in "${ways[@]}"; do
    clock=$(cut -d' ' -f1 "$work/$how-$what.txt" | median)
    cpu=$(cut -d' ' -f2 "$work/$how-$what.txt" | median)
    row+=" $clock | $cpu |"
    if [ "$how" = plain ]; then plain=$cpu; else row+=" $(awk "BEGIN { print $cpu - $plain }") |"; fi
  done
  printf '%s\n' "$row"
done

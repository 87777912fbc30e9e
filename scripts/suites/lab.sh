#!/usr/bin/env bash
# The crash lab: power cuts in every workload for so many seconds, from a seed. What it finds stays in
# target/test/lab as files for `novale-lab replay`.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

seconds=${1:-30}
seed=${2:-1}
lab=${NOVALE_LAB:-$target/debug/novale-lab}
found=$target/test/lab

rm -rf "$found"
mkdir -p "$found"
check "power cuts in all workloads, $seconds s, seed $seed" \
  "$lab" run --seconds "$seconds" --seed "$seed" --out "$found"

# A canary: what is no failure of the lab is told with a message, and with a code of its own.
no_replay() {
  local status=0
  printf 'create /a\n' >"$found/no-replay"
  "$lab" replay "$found/no-replay" || status=$?
  [ "$status" = 2 ]
}
check 'a file that is no replay is refused' no_replay
check 'every workload is listed' test "$("$lab" list | wc -l)" -ge 15

corpus=$root/crates/lab/corpus/images.txt
check "damaged pools, $((seconds / 2)) s, seed $seed" \
  "$lab" images --seconds $((seconds / 2)) --seed "$seed" --threads 2 --corpus "$corpus" \
  --out "$found"

# A canary: a worker that dies of its limit is found, with the recipe that it died of.
image_eats_memory() {
  local status=0
  "$lab" images --seconds 2 --threads 1 --canary --out "$found" >"$found/canary" || status=$?
  cat "$found/canary"
  [ "$status" = 1 ] && grep -Eq '^(tree|logs|slots|full) (closed|crashed); ' "$found/canary"
}
check 'an image that eats memory is found' image_eats_memory

check "clients that are killed, $((seconds / 6)) s, seed $seed" \
  "$lab" clients --seconds $((seconds / 6)) --seed "$seed" --out "$found"

if reason=$(why_no_mount); then
  check "clients and a mount's daemon that are killed, $((seconds / 6)) s, seed $seed" \
    "$lab" clients --seconds $((seconds / 6)) --seed "$seed" --mount "$novale" --out "$found"
else
  tally skipped 1 "lab: a mount's daemon that is killed: $reason"
fi

if need strace strace && strace -qq -o /dev/null true; then
  check 'clients whose system calls fail' "$lab" clients --calls --seed "$seed" \
    --out "$found"
else
  tally skipped 1 'lab: clients whose system calls fail: strace is missing or may not trace'
fi

# In so short a time not all mutants are decided, which has a code of its own.
no_mutant_survives() {
  local status=0
  "$lab" mutants --seconds $((seconds / 3)) --seed "$seed" --threads 2 || status=$?
  [ "$status" = 0 ] || [ "$status" = 3 ]
}
check "mutants of core and pm, $((seconds / 3)) s, seed $seed" no_mutant_survives
check 'every seeded bug is caught' "$lab" bugs

# A canary: a sequence without its bug catches nothing, and that is a failure.
no_bug() {
  local status=0
  "$lab" bugs --canary >"$found/no-bug" || status=$?
  cat "$found/no-bug"
  [ "$status" = 1 ] && grep -q '^MISSED ' "$found/no-bug"
}
check 'a seeded bug that is switched off is missed' no_bug

#!/usr/bin/env bash
# The crash lab, from a seed: so many sequences of each workload, damaged pools, deaths and trials, times a
# scale, the same on any machine. A time is a cap, and what it cuts short fails. What is found stays in
# target/test/lab as files for `novale-lab replay`.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

scale=${1:-1}
seed=${2:-1}
lab=${NOVALE_LAB:-$target/debug/novale-lab}
found=$target/test/lab
cap=$((scale * 600))

rm -rf "$found"
mkdir -p "$found"
check "power cuts in sequences of each workload, $scale of each, seed $seed" \
  "$lab" run --sequences "$scale" --seconds $cap --seed "$seed" --out "$found"

# A canary: what the time cuts short is not clean.
is_incomplete() {
  local status=0
  "$lab" run --workload random --sequences 100000 --seconds 1 --out "$found" || status=$?
  [ "$status" = 3 ]
}
check 'sequences for which there is no time are incomplete' is_incomplete

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
check "$((scale * 500)) damaged pools of each of two workers, seed $seed" \
  "$lab" images --images $((scale * 500)) --seconds $cap --seed "$seed" --threads 2 \
  --corpus "$corpus" --out "$found"

# A canary: a worker that dies of its limit is found, with the recipe that it died of.
image_eats_memory() {
  local status=0
  "$lab" images --seconds 2 --threads 1 --canary --out "$found" >"$found/canary" || status=$?
  cat "$found/canary"
  [ "$status" = 1 ] && grep -Eq '^(tree|logs|slots|full) (closed|crashed); ' "$found/canary"
}
check 'an image that eats memory is found' image_eats_memory

check "$((scale * 60)) clients that are killed, seed $seed" \
  "$lab" clients --deaths $((scale * 60)) --seconds $cap --seed "$seed" --out "$found"

if reason=$(why_no_mount); then
  check "$((scale * 40)) clients that are killed beside a mount's daemon, seed $seed" \
    "$lab" clients --deaths $((scale * 40)) --seconds $cap --seed "$seed" --mount "$novale" \
    --out "$found"
else
  tally skipped 1 "lab: a mount's daemon that is killed: $reason"
fi

if need strace strace && strace -qq -o /dev/null true; then
  check 'clients whose system calls fail' "$lab" clients --calls --seed "$seed" \
    --out "$found"
else
  tally skipped 1 'lab: clients whose system calls fail: strace is missing or may not trace'
fi

check "$((scale * 300)) trials of mutants of core and pm, seed $seed" \
  "$lab" mutants --trials $((scale * 300)) --seconds $cap --seed "$seed" --threads 1
check 'every seeded bug is caught' "$lab" bugs

# A canary: a sequence without its bug catches nothing, and that is a failure.
no_bug() {
  local status=0
  "$lab" bugs --canary >"$found/no-bug" || status=$?
  cat "$found/no-bug"
  [ "$status" = 1 ] && grep -q '^MISSED ' "$found/no-bug"
}
check 'a seeded bug that is switched off is missed' no_bug

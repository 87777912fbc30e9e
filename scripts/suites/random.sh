#!/usr/bin/env bash
# Programs that make random calls: of positions (of descriptors that lead to a file in many ways), of names and
# folders, and of descriptors over chains of processes. What each step says is as on tmpfs: by a mount, directly, and
# directly with the files' own pages mapped. (A directory that was removed while it is open has errors of its own
# directly, which docs/DIRECT.md explains: seed 1017 of the names meets one.)
# `random.sh SEEDS FIRST` tries so many seeds of each, from that one on.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$root/scripts/suites/random
seeds=${1:-3}
first=${2:-1}
needs_mount random
needs_c random

scratch
if [ "$(stat -fc %T "$pools")" != tmpfs ]; then
  tally skipped 1 'random: there is no tmpfs with room to compare with'
  exit
fi
dir=$mounts/dir pool=$pools/pool bin=$pools/bin
mkdir "$dir" "$bin"
NOVALE_PRELOAD=$(dirname "$novale")/libnovale_preload.so
[ -e "$NOVALE_PRELOAD" ] || NOVALE_PRELOAD=$(dirname "$novale")/deps/libnovale_preload.so
export NOVALE_PRELOAD XDG_CACHE_HOME=$pools/cache LC_ALL=C
programs=(positions names chains)
for program in "${programs[@]}"; do
  cc -std=gnu2x -O1 -Wall -Wextra -Werror -o "$bin/$program" "$here/$program.c"
done
"$novale" mkfs --quiet --size 64M "$pool" >/dev/null
"$novale" mount --quiet -o direct "$pool" "$dir"

says() { # WAY PROGRAM SEED STEPS: what it says, in a file of the way's name
  local way=$1 place=$dir/$1 run=() lines=()
  case $way in
  tmpfs) place=$pools/tmpfs ;;
  direct) run=("$novale" run --strict --mount "$dir" --) ;;
  mapped) run=("$novale" run --strict --map dax --mount "$dir" --) ;;
  esac
  # It closes its standard output.
  [ "$2" != chains ] || lines=("$pools/$way.lines")
  rm -rf "$place"
  mkdir "$place"
  : >"$pools/$way.lines"
  # One that hangs ends for good.
  (cd "$place" && timeout -s KILL 100 "${run[@]}" "$bin/$2" "$3" "$4" "${lines[@]}") \
    >"$pools/$way.said" 2>&1 </dev/null || echo "ended with status $?" >>"$pools/$way.said"
  cat "$pools/$way.lines" >>"$pools/$way.said"
}

agree() { # PROGRAM STEPS: in all ways, for all seeds
  local seed way status=0
  for ((seed = first; seed < first + seeds; seed++)); do
    says tmpfs "$1" "$seed" "$2"
    [ "$(wc -l <"$pools/tmpfs.said")" -ge "$2" ] && ! grep -q '^ended with' "$pools/tmpfs.said" || {
      printf '%s, seed %d: on tmpfs\n' "$1" "$seed"
      tail -n 3 "$pools/tmpfs.said"
      status=1
    }
    for way in mount direct mapped; do
      says "$way" "$1" "$seed" "$2"
      cmp -s "$pools/tmpfs.said" "$pools/$way.said" && continue
      printf '%s, seed %d, %s:\n' "$1" "$seed" "$way"
      diff "$pools/tmpfs.said" "$pools/$way.said" | head -n 6 | cut -c 1-400
      status=1
    done
  done
  return "$status"
}

tells_apart() { # what two seeds say differs, or nothing is compared
  says tmpfs positions 1 100
  says direct positions 2 100
  ! cmp -s "$pools/tmpfs.said" "$pools/direct.said"
}

check 'what differs is seen' tells_apart
check 'random calls by descriptors are as on tmpfs' agree positions 1000
check 'random names and folders are as on tmpfs' agree names 1500
check 'random chains of processes are as on tmpfs' agree chains 60
whole() { await 10 "$novale" umount "$dir" && "$novale" check "$pool" >/dev/null; }
check 'the pool is whole after random calls' whole

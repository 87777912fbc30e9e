#!/usr/bin/env bash
# Other people's programs and their own test suites, on a tmpfs, through a shared mount and run
# directly, in turn: each must come to the same everywhere. It takes half an hour; CI does not run it.
#   scripts/suites/others.sh [mariadb] [redb] [fjall] [lmdb]      (as root; all of them by default)
# It ends with the table of times that docs/DIRECT.md shows. THREADS says how many build and test at once,
# NOVALE_MAP what mappings are to direct programs.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$root/scripts/suites/others
parts=("$@")
[ $# -gt 0 ] || parts=(mariadb redb fjall lmdb)
needs_mount others

scratch
dir=$mounts/dir
plain=$mounts/plain
pool=$pools/pool
mkdir "$dir" "$plain"
unset CARGO_TARGET_DIR
export LC_ALL=C
server=

end() {
  [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
  umount "$plain" 2>/dev/null || true
  leave
}
trap end EXIT

# --- the three ways ----------------------------------------------------------------------------

way='' at='' # the way of the moment, and its folder
run=()

use() { # tmpfs|mount|direct
  way=$1 run=(env) at=$dir/$1
  case $1 in
  tmpfs) at=$plain/$1 ;;
  direct) run=("$novale" run --strict --map "${NOVALE_MAP:-kernel}" --mount "$dir" --) ;;
  esac
  mkdir -p "$at"
}

declare -A took
measured() { # WHAT COMMAND...: a check on this way, and how long it took
  local what=$1 started status=0
  shift
  started=$(date +%s%N)
  "$@" >"$pools/log" 2>&1 || status=$?
  took[$what,$way]=$((($(date +%s%N) - started) / 1000000))
  [ "$status" = 0 ] || tail -n 40 "$pools/log"
  check "$what, $way" [ "$status" = 0 ]
}

rows=()
everywhere() { # WHAT COMMAND...
  rows+=("$1")
  for way in tmpfs mount direct; do
    use "$way"
    measured "$@"
  done
}

seconds() { # MILLISECONDS
  printf '%d.%01d' $(($1 / 1000)) $(($1 % 1000 / 100))
}

table() {
  local row
  printf '| what | tmpfs | mount | direct |\n| --- | --- | --- | --- |\n'
  for row in "${rows[@]}"; do
    printf '| %s | %s s | %s s | %s s |\n' "$row" "$(seconds "${took[$row,tmpfs]}")" \
      "$(seconds "${took[$row,mount]}")" "$(seconds "${took[$row,direct]}")"
  done
}

# shellcheck source=scripts/suites/others/mariadb.sh
. "$here/mariadb.sh"
# shellcheck source=scripts/suites/others/crates.sh
. "$here/crates.sh"

"$novale" mkfs --size 3G "$pool"
"$novale" mount -o direct "$pool" "$dir"
mount -t tmpfs -o size=3G tmpfs "$plain"
for part in "${parts[@]}"; do
  "part_$part"
done
check 'umount' await 30 "$novale" umount "$dir"
check 'the pool is whole' "$novale" check "$pool"
table

#!/usr/bin/env bash
# Writes, holes and copies by descriptors beside stores to mappings of the same pages: on a plain mount, on a shared one,
# and in a program that runs direct there. tmpfs, which has one set of pages, is the control. An argument
# says how many rounds (30).
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

rounds=${1:-30}
needs_mount pages
if ! need cc gcc libc6-dev; then
  tally skipped 1 'pages: no C compiler'
  exit
fi

scratch
pool=$pools/pool
dir=$mounts/dir
mkdir "$dir"
cc -O1 -pthread -o "$pools/pages" "$root/scripts/suites/pages.c"
cc -O1 -o "$pools/regions" "$root/scripts/suites/regions.c"
regions() { # PLACE COMMAND...: a number of seeds
  local place=$1 seed
  shift
  for ((seed = 1; seed <= (rounds + 9) / 10; seed++)); do
    "$@" "$pools/regions" "$place/regions" 5000 "$seed" || return 1
  done
}

mkdir "$mounts/control"
mount -t tmpfs none "$mounts/control"
check 'tmpfs loses nothing' "$pools/pages" "$mounts/control/file" 4 "$rounds"
check 'nor does it of four processes with parts of their own' regions "$mounts/control" env
umount "$mounts/control"

"$novale" mkfs --size 64M "$pool" >/dev/null
"$novale" mount "$pool" "$dir"
check 'a plain mount loses nothing' "$pools/pages" "$dir/file" 4 "$rounds"
check 'nor does it of four processes' regions "$dir" env
"$novale" umount "$dir"
"$novale" mount -o direct "$pool" "$dir"
check 'a shared mount loses nothing' "$pools/pages" "$dir/file" 4 "$rounds"
check 'nor does it of four processes' regions "$dir" env
check 'nor do four that run direct' regions "$dir" "$novale" run --strict
check 'nor four with the file'"'"'s own pages' regions "$dir" "$novale" run --strict --map=dax
check 'a program that runs direct loses nothing' \
  "$novale" run --strict "$pools/pages" "$dir/file" 4 "$rounds"
check 'nor with the file'"'"'s own pages' \
  "$novale" run --strict --map=dax "$pools/pages" "$dir/file" 4 "$rounds"
"$novale" umount "$dir"
check 'the pool is whole' "$novale" check "$pool"

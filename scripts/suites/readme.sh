#!/usr/bin/env bash
# Runs the lines of README.md's tour, with a pool and a directory of its own.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

needs_mount readme
scratch
# The examples call the program by its name, as after an installation.
mkdir "$pools/bin"
ln -s "$novale" "$pools/bin/novale"
PATH=$pools/bin:$PATH

awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$root/README.md" |
  sed "s#/dev/shm/pool#$pools/pool#g; s#/mnt/novale#$mounts/dir#g" >"$pools/tour.sh"
check 'the tour has lines' [ "$(wc -l <"$pools/tour.sh")" -gt 5 ]
while read -r line; do
  check "README: ${line%%  *}" bash -c "$line"
done <"$pools/tour.sh"

#!/usr/bin/env bash
# Installs into a folder of its own and uses what is there as a C program does: README's example as C
# and as C++, against the shared and the static library, through pkg-config; then every call, also
# under valgrind; then the example beside a shared mount.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

if ! need cc gcc libc6-dev || ! need pkg-config pkg-config; then
  tally skipped 1 'capi: no cc, or no pkg-config'
  exit
fi
scratch
work=$pools
prefix=$work/prefix
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
flags=(-Wall -Wextra -Werror -g)

# Of what the tests run with: to build it with its own features alone takes two minutes of CPU.
check 'make install' env PREFIX="$prefix" BUILT="$target/debug" \
  make --no-print-directory -C "$root" install

# --- README's example --------------------------------------------------------------------------

awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$root/README.md" |
  sed "s#/dev/shm/pool#$work/pool#g" >"$work/notes.c"
cp "$work/notes.c" "$work/notes.cpp"
check 'README has an example in C' grep -q novale_open "$work/notes.c"
shared=$(pkg-config --cflags --libs novale)
static=$(pkg-config --static --cflags --libs novale | sed 's/-lnovale/-l:libnovale.a/')

example() { # COMPILER SOURCE FLAG...: builds it and runs it twice, on no pool and on one
  local compiler=$1 source=$2
  shift 2
  rm -f "$work/pool"
  "$compiler" "${flags[@]}" "$source" -o "$work/notes" "$@" || return 1
  [ "$("$work/notes")" = 'first light' ] && [ "$("$work/notes")" = 'first light' ]
}

lacks_soname() { ! objdump -p "$work/notes" | grep -q libnovale.so; }

# shellcheck disable=SC2086
check 'README in C, shared' example cc "$work/notes.c" $shared
check 'it is linked by soname' grep -q 'NEEDED.*libnovale.so.1' <(objdump -p "$work/notes")
# shellcheck disable=SC2086
check 'README in C, static' example cc "$work/notes.c" $static
check 'nothing of it is shared' lacks_soname
if need c++ g++; then
  # shellcheck disable=SC2086
  check 'README in C++' example c++ "$work/notes.cpp" $shared
else
  tally skipped 1 'capi: no C++ compiler'
fi
check 'the header stands alone in strict C11' \
  cc -std=c11 -pedantic-errors -Wall -Werror -fsyntax-only -x c "$prefix/include/novale.h"

# --- every call --------------------------------------------------------------------------------

calls() { # COMMAND...: on a pool of its own
  rm -f "$work/calls.pool"
  timeout -k 5 600 "$@" "$work/calls" "$work/calls.pool"
}

# shellcheck disable=SC2086
check 'the calls compile' \
  cc "${flags[@]}" "$root/crates/capi/tests/calls.c" -o "$work/calls" $shared -lpthread
check 'every call does what it says' calls
if need valgrind valgrind; then
  # No leak check: it looks at each word of the arena, a gigabyte that ends where its file does.
  check 'valgrind finds nothing' \
    calls valgrind --quiet --error-exitcode=9 --leak-check=no --child-silent-after-fork=yes
else
  tally skipped 1 'capi: no valgrind'
fi

# --- beside a mount ----------------------------------------------------------------------------

beside() { # the program and the mount each see what the other has done
  rm -f "$work/pool"
  mkdir -p "$mounts/dir"
  "$prefix/bin/novale" mkfs --size 64M "$work/pool" >/dev/null &&
    "$prefix/bin/novale" mount -o direct "$work/pool" "$mounts/dir" &&
    [ "$("$work/notes")" = 'first light' ] &&
    [ "$(cat "$mounts/dir/notes")" = 'first light' ] &&
    printf 'longer, from the mount' >"$mounts/dir/notes" &&
    [ "$("$work/notes")" = 'first lightm the mount' ] &&
    "$prefix/bin/novale" umount "$mounts/dir"
}

alone() { # a mount that shares nothing refuses it, and says how it would not
  "$prefix/bin/novale" mount "$work/pool" "$mounts/dir" || return 1
  local said status=0
  said=$("$work/notes" 2>&1) || status=$?
  "$prefix/bin/novale" umount "$mounts/dir"
  printf '%s\n' "$said"
  [ "$status" = 1 ] && [[ $said == *'-o direct'* ]]
}

if ! reason=$(why_no_mount); then
  tally skipped 1 "capi: beside a mount: $reason"
else
  check 'README in C beside a shared mount' beside
  check 'README in C is refused beside another' alone
fi

# --- what was installed ------------------------------------------------------------------------

pages() { # each manual page that was installed is one
  local page
  for page in "$prefix"/share/man/man*/*; do
    LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 >/dev/null | grep . && return 1
    grep -qE '^\.(TH|Dt) ' "$page" || return 1
  done
  [ -e "$prefix/share/man/man1/novale-mount.1" ]
}

if have man; then
  check 'the manual pages are sound' pages
else
  tally skipped 1 'capi: no man'
fi
check 'make uninstall' env PREFIX="$prefix" make --no-print-directory -C "$root" uninstall
check 'nothing is left' [ -z "$(find "$prefix" ! -type d)" ]

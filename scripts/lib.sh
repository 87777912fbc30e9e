# What the scripts share: finding and installing tools, counting results, scratch pools and mounts.
# Sourced from the scripts beside it.
# shellcheck shell=bash

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
novale=${NOVALE:-$target/debug/novale}
# Kept for the next checkout, as what cargo fetches is.
tools=${NOVALE_TOOLS:-${XDG_CACHE_HOME:-${HOME:-$target}/.cache}/novale-tools}
export PATH="$HOME/.cargo/bin:$PATH"

# --- counting ----------------------------------------------------------------------------------
# A suite reports by `tally`; scripts/test.sh adds the reports up through the file NOVALE_TALLY.

tally() { # passed|failed|skipped COUNT WHAT
  printf '%s %s %s\n' "$1" "$2" "$3" >>"${NOVALE_TALLY:-/dev/null}"
  [ "$1" = passed ] || printf '%s: %s\n' "$1" "$3"
}

check() { # WHAT COMMAND...: one test, which passes when the command succeeds; what it said last tells why not
  local what=$1 said
  shift
  mkdir -p "$target"
  said=$(mktemp "$target/said.XXXXXX")
  if "$@" >"$said" 2>&1; then
    cat "$said"
    tally passed 1 "$what"
    printf 'ok: %s\n' "$what"
  else
    cat "$said"
    tally failed 1 "$what: $(tail -n 8 "$said" | tr '\n' ' ' | cut -c 1-700)"
  fi
  rm -f "$said"
}

refuses() { # COMMAND...: fails with a message and without a panic
  local output
  if output=$("$@" 2>&1); then
    printf 'should have failed: %s\n%s\n' "$*" "$output"
    return 1
  fi
  printf 'refused: %s\n' "$output"
  [ -n "$output" ] && [[ $output != *panicked* ]]
}

# --- tools -------------------------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }

install_packages() { # PACKAGE...: through apt as root, where that is possible; one at a time
  is_root && have apt-get || return 1
  mkdir -p "$target"
  (
    flock 7
    export DEBIAN_FRONTEND=noninteractive
    if ! apt-get install -y -qq "$@"; then
      apt-get update -qq || exit 1
      apt-get install -y -qq "$@"
    fi
  ) >/dev/null 2>&1 7>>"$target/packages.lock"
}

need() { # COMMAND PACKAGE...: succeeds once the command is there
  local command=$1
  shift
  have "$command" || { install_packages "$@" && have "$command"; }
}

need_toolchain() { # what cargo needs beside itself: a linker, and certificates to fetch with
  need cc gcc libc6-dev || return 1
  [ -e /etc/ssl/certs/ca-certificates.crt ] || install_packages ca-certificates || true
}

# Optimised little: they wait for the mount, and building them for release takes longer than they run.
cargo_tool() { # NAME VERSION: a program from the registry; prints its path
  local program=$tools/$1-$2/bin/$1
  if [ ! -x "$program" ]; then
    CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=2 \
      cargo install --debug --quiet --locked --root "$tools/$1-$2" --target-dir "$target/tools" \
      "$1@$2" >&2 || return 1
  fi
  printf '%s\n' "$program"
}

why_no_mount() { # prints why nothing can be mounted here, and fails; succeeds where it can
  if [ ! -c /dev/fuse ]; then
    echo 'no /dev/fuse'
  elif ! is_root; then
    echo 'not root'
  else
    return 0
  fi
  return 1
}

needs_mount() { # WHAT: ends a suite as skipped where nothing can be mounted
  local reason
  reason=$(why_no_mount) && return
  tally skipped 1 "$1: $reason"
  exit
}

needs_c() { # WHAT: the same where no program in C can be made for x86-64
  [ "$(uname -m)" = x86_64 ] && need cc gcc libc6-dev && return
  tally skipped 1 "$1: no C compiler for x86-64"
  exit
}

# --- pools and mounts --------------------------------------------------------------------------

mounted() { # DIR
  grep -qF " $(realpath -m "$1") " /proc/self/mounts
}

daemons() { # PATH: ids of the novale processes that have PATH or a file below it as an argument
  local process arguments
  for process in /proc/[0-9]*; do
    arguments=$(tr '\0' '\n' 2>/dev/null <"$process/cmdline") || continue
    [[ ${arguments%%$'\n'*} == *novale* ]] || continue
    if grep -qE "^$1(/|:|\$)" <<<"$arguments"; then
      printf '%s\n' "${process#/proc/}"
    fi
  done
}

await() { # SECONDS COMMAND...: until the command succeeds, or fails after that time
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}

gone() { # PID...
  local pid
  for pid in "$@"; do
    [ ! -d "/proc/$pid" ] || return 1
  done
}

kill_daemons() { # PATH: kills them as a crash would, and waits until they are gone
  local pids
  pids=$(daemons "$1")
  [ -n "$pids" ] || return 1
  # shellcheck disable=SC2086
  kill -9 $pids
  # shellcheck disable=SC2086
  await 10 gone $pids
}

no_daemons() { [ -z "$(daemons "$1")" ]; }

clear_scratch() { # DIR POOL_DIR: unmounts whatever is below DIR, ends its daemons, removes both
  local dir pid arenas
  while read -r dir; do
    umount "$dir" 2>/dev/null || umount -l "$dir" 2>/dev/null || true
  done < <(awk -v at="$1" '$2 == at || index($2, at "/") == 1 { print $2 }' /proc/self/mounts | sort -r)
  # A daemon whose mount is gone closes its pool and ends; one that hangs leaves its arena behind.
  if ! await 15 no_daemons "$2"; then
    arenas=$(for pid in $(daemons "$2"); do
      awk '$6 ~ "^/dev/shm/novale-" { print $6 }' "/proc/$pid/maps"
    done | sort -u)
    kill_daemons "$2" || true
    # shellcheck disable=SC2086
    rm -f $arenas
  fi
  rm -rf --one-file-system "$1" "$2"
}

memory_folder() { # MEGABYTES: prints a folder in memory with that much room, or one on disk
  local free
  free=$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1) || free=0
  if [ -w /dev/shm ] && [ "${free:-0}" -gt "$1" ]; then
    echo /dev/shm
  else
    echo "$target"
  fi
}

helper=/sbin/mount.fuse.novale
helper_made=

install_helper() { # for mount(8); goes away with the script, unless it was there before
  [ ! -e "$helper" ] || return 0
  "$novale" install-helper && helper_made=1
}

leave() {
  [ -z "$helper_made" ] || rm -f "$helper"
  clear_scratch "$mounts" "$pools"
}

scratch() { # sets pools and mounts, two new folders that go away with the script
  pools=$(mktemp -d "$(memory_folder 1024)/novale-test.XXXXXX")
  mounts=$(mktemp -d "${TMPDIR:-/tmp}/novale-test.XXXXXX")
  chmod 755 "$pools" "$mounts"
  trap leave EXIT
  trap 'exit 143' TERM INT
}

#!/usr/bin/env bash
# Real programs, unmodified, under `novale run --strict` in a shared mount: their results are those of
# the machine's own file system, what they were told is durable is there after kill -9, and the pool
# is whole. `direct.sh PART...` runs some parts alone. With NOVALE_THROUGH=mount the programs run
# through the mount, to see how many requests of the kernel direct access saves; with NOVALE_MAP=dax
# they map the files' own pages.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$root/scripts/suites/direct
parts=("$@")
[ $# -gt 0 ] || parts=(pjdfstest acls fsx rights user copies git compiler cargo python java fio sqlite lmdb redis rocksdb postgresql)
needs_mount direct
if [ "$(uname -m)" != x86_64 ]; then
  tally skipped 1 'direct: it is written for x86-64 alone'
  exit
fi

# Where only root may mount, a user may so in a mount namespace of this suite's, through a device
# node like the one that other machines have.
if [ "$(stat -c %a /dev/fuse)" != 666 ] && [ -z "${NOVALE_NAMESPACE:-}" ] && unshare -m true; then
  NOVALE_NAMESPACE=1 exec unshare -m --propagation private "$0" "$@"
fi

scratch
if [ -n "${NOVALE_NAMESPACE:-}" ]; then
  mkdir "$mounts/dev"
  mount -t tmpfs -o mode=755,size=64k dev "$mounts/dev"
  mknod -m 666 "$mounts/dev/fuse" c 10 229 && mount --bind "$mounts/dev/fuse" /dev/fuse || true
fi
dir=$mounts/dir
pool=$pools/pool
plain=$pools/plain # the same work on the machine's own file system
bin=$pools/bin
mkdir "$dir" "$plain" "$bin"
# A user who is not root has to reach them too.
library=$(dirname "$novale")/libnovale_preload.so
[ -e "$library" ] || library=$(dirname "$novale")/deps/libnovale_preload.so
cp "$novale" "$library" "$bin"
novale=$bin/novale
export XDG_CACHE_HOME=$pools/cache LC_ALL=C
unset CARGO_TARGET_DIR

run=("$novale" run --strict --map "${NOVALE_MAP:-kernel}" --mount "$dir" --)
[ "${NOVALE_THROUGH:-}" != mount ] || run=(env)

reads() { # how many requests the daemon has read, nearly
  awk '/^syscr/ { print $2 }' "/proc/$daemon/io"
}

direct() { # COMMAND...: what it says on standard error is kept, and how many requests it brought
  local before status=0
  before=$(reads)
  "${run[@]}" "$@" 2>>"$pools/errors" || status=$?
  echo $(($(reads) - before)) >>"$pools/requests"
  return "$status"
}

begun=
end() { # whatever a failed part has left running
  # shellcheck disable=SC2046
  kill -9 $(jobs -p) 2>/dev/null || true
  leave
}
trap end EXIT

begin() { # COMMAND...: in the background; its process is $begun
  reads_before=$(reads)
  "${run[@]}" "$@" 2>>"$pools/errors" &
  begun=$!
}

begin_all() { # COMMAND...: with all that it starts; its requests are not counted
  setsid "${run[@]}" "$@" 2>>"$pools/errors" &
  begun=$!
}

crash_all() { # what was begun, and all that it has started
  kill -9 -- "-$begun" && { wait "$begun" || true; } 2>/dev/null
  await 10 none_left "$begun"
}

none_left() { ! pgrep -g "$1" >/dev/null; }

crash() { # what was begun
  kill -9 "$begun" && { wait "$begun" || true; } 2>/dev/null
  echo $(($(reads) - reads_before)) >>"$pools/requests"
}

step() { # WHAT COMMAND...: a check that the next ones build on: it fails with the command
  local what=$1 status=0
  shift
  "$@" || status=$?
  check "$what" [ "$status" = 0 ]
  return "$status"
}

missing() { # PART PACKAGE
  tally skipped 1 "direct: $1: $2 could not be installed"
}

need_python() { # with its whole library: a smaller package has the interpreter alone
  local all=(python3 -c 'import multiprocessing, sqlite3, tempfile')
  "${all[@]}" 2>/dev/null || { install_packages python3 && "${all[@]}"; }
}

# shellcheck source=scripts/suites/direct/conformance.sh
. "$here/conformance.sh"
# shellcheck source=scripts/suites/direct/files.sh
. "$here/files.sh"
# shellcheck source=scripts/suites/direct/builders.sh
. "$here/builders.sh"
# shellcheck source=scripts/suites/direct/databases.sh
. "$here/databases.sh"
# shellcheck source=scripts/suites/direct/user.sh
. "$here/user.sh"
# shellcheck source=scripts/suites/direct/postgresql.sh
. "$here/postgresql.sh"

nothing_fell_back() { # a program that can't be served directly says so
  ! grep -a '^novale: ' "$pools/errors"
}

"$novale" mkfs --size 2G "$pool"
"$novale" mount -o direct "$pool" "$dir"
touch "$pools/errors"
for part in "${parts[@]}"; do
  started=$SECONDS daemon=$(daemons "$pool" | head -n 1)
  echo 0 >"$pools/requests"
  "part_$part"
  printf -- '--- %s: %d s, %d requests to the daemon while programs ran directly\n' \
    "$part" $((SECONDS - started)) "$(awk '{ n += $1 } END { print n }' "$pools/requests")"
done
check 'no program fell back to the mount' nothing_fell_back
check 'umount' await 10 "$novale" umount "$dir"
check 'the pool is whole' "$novale" check "$pool"

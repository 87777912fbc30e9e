#!/usr/bin/env bash
# SQLite, Redis and RocksDB's db_bench, all of them durable: in a tmpfs, run directly, and through the
# same mount, in turn. As root, which installs what is missing:
#   scripts/apps.sh [ROUNDS [SCALE]]      (5 and 1; JSON=1 in the environment for JSON)
# With METHODS in the environment, run directly by each of these write methods, each with a pool of its
# own, in a tmpfs and in an ext4 that journals data, on a loop device over memory:
#   METHODS='cow auto inplace finelog paired adl zcl' scripts/apps.sh 3
# or with SIDES by mounts with these options, each with a pool of its own, and in a tmpfs where that is named:
#   SIDES='tmpfs buffered:mode=buffered inplace:method=inplace' scripts/apps.sh 3
# PROGRAMS=lazy in the environment runs a make, a grep and PostgreSQL instead (HiNFS' figure 14), as the
# user `postgres`.
# DEVICE=NAME emulates a memory (`novale mount -o device=`), MB is how many each has (1024).
# All of it is taken down in the end.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=${1:-5}
scale=${2:-1}
megabytes=${MB:-1024}
novale=${NOVALE:-$target/release/novale}
device=${DEVICE:+,device=$DEVICE}
if ! reason=$(why_no_mount); then
  echo "apps.sh: $reason" >&2
  exit 1
fi
programs=${PROGRAMS:-stores}
case $programs in
stores) tools=('sqlite3 sqlite3' 'redis-server redis-server' 'redis-benchmark redis-tools' 'db_bench rocksdb-tools') ;;
lazy) tools=('make make' 'gcc gcc' 'ar binutils' 'pgbench postgresql' 'fusermount3 fuse3') ;;
*) echo "apps.sh: PROGRAMS is stores or lazy, not $programs" >&2 && exit 2 ;;
esac
for tool in "${tools[@]}" 'python3 python3'; do
  # shellcheck disable=SC2086
  need $tool || { echo "apps.sh: no ${tool%% *}" >&2 && exit 1; }
done

work=$(mktemp -d /tmp/a-XXXXXX)
memory=$(mktemp -d /dev/shm/novale-apps-XXXXXX)
take_down() {
  local at
  for at in "$work"/*; do
    # Root does not come into a mount of another user's.
    case $(awk -v "at=$at" '$2 == at { print $3 }' /proc/self/mounts) in
    '') ;;
    fuse*) "$novale" umount "$at" 2>/dev/null || "$novale" umount --lazy "$at" || true ;;
    *) umount "$at" || umount -l "$at" ;;
    esac
  done
  rm -rf "$memory"
  rmdir "$work"/* "$work"
}
trap take_down EXIT

as=() # PostgreSQL runs as no administrator: pools, mounts and programs are all its user's
if [ "$programs" = lazy ]; then
  as=(setpriv --reuid=postgres --regid=postgres --init-groups env "HOME=$memory")
  chown postgres "$work" "$memory"
fi
sides=()
pool() { # NAME OPTIONS: a pool, mounted
  "${as[@]}" mkdir "$work/$1"
  "${as[@]}" "$novale" mkfs --quiet --size "${megabytes}M" "$memory/$1" >/dev/null
  "${as[@]}" "$novale" mount --quiet -o "direct$2$device" "$memory/$1" "$work/$1"
}
direct() { # NAME MOUNT: programs run directly on a mount
  sides+=("$1=$work/$2=$memory/$2=$novale run --strict --mount $work/$2 --")
}
journaled() { # ext4 with its data in the journal
  need mkfs.ext4 e2fsprogs && mkdir "$work/ext4" && truncate -s "${megabytes}M" "$memory/ext4" &&
    mkfs.ext4 -q "$memory/ext4" && mount -o loop,data=journal "$memory/ext4" "$work/ext4" &&
    sides+=("ext4=$work/ext4") ||
    echo 'apps.sh: without ext4: no mkfs.ext4, no loop device, or not in this kernel' >&2
}

mkdir "$work/tmpfs"
mount -t tmpfs -o "mode=1777,size=${megabytes}M" tmpfs "$work/tmpfs"
if [ -n "${SIDES:-}" ]; then
  for side in $SIDES; do
    if [ "$side" = tmpfs ]; then
      sides+=("tmpfs=$work/tmpfs")
    else
      pool "${side%%:*}" ",${side#*:}"
      direct "${side%%:*}" "${side%%:*}"
    fi
  done
elif [ -n "${METHODS:-}" ]; then
  for method in $METHODS; do
    pool "$method" ",method=$method"
    direct "$method" "$method"
  done
  sides+=("tmpfs=$work/tmpfs")
  journaled
else
  pool novale ''
  sides+=("tmpfs=$work/tmpfs")
  direct direct novale
  sides+=("mount=$work/novale=$memory/novale")
fi
format=table
[ -z "${JSON:-}" ] || format=json
"${as[@]}" python3 "$root/scripts/apps/measure.py" "$programs" "$rounds" "$scale" "$format" "$novale" "${sides[@]}"

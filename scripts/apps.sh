#!/usr/bin/env bash
# SQLite, Redis and RocksDB's db_bench, all of them durable: run directly, in a tmpfs, and through the
# same mount, in turn. As root, which installs what is missing:
#   scripts/apps.sh [ROUNDS [SCALE]]      (5 and 1; JSON=1 in the environment for JSON)
# All of it is taken down in the end.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=${1:-5}
scale=${2:-1}
novale=${NOVALE:-$target/release/novale}
if ! reason=$(why_no_mount); then
  echo "apps.sh: $reason" >&2
  exit 1
fi
for tool in 'sqlite3 sqlite3' 'redis-server redis-server' 'redis-benchmark redis-tools' \
  'db_bench rocksdb-tools' 'python3 python3'; do
  # shellcheck disable=SC2086
  need $tool || { echo "apps.sh: no ${tool%% *}" >&2 && exit 1; }
done

work=$(mktemp -d /tmp/a-XXXXXX)
pool=$(mktemp /dev/shm/novale-apps-XXXXXX)
take_down() {
  "$novale" umount "$work/novale" 2>/dev/null || "$novale" umount --lazy "$work/novale" || true
  umount "$work/tmpfs" || true
  rm -f "$pool"
  rmdir "$work"/* "$work"
}
trap take_down EXIT
mkdir "$work/novale" "$work/tmpfs"
rm "$pool"
"$novale" mkfs --size "${MB:-1024}M" "$pool" >/dev/null
"$novale" mount -o direct "$pool" "$work/novale"
mount -t tmpfs -o "size=${MB:-1024}M" tmpfs "$work/tmpfs"
format=table
[ -z "${JSON:-}" ] || format=json
python3 "$root/scripts/apps/measure.py" "$rounds" "$scale" "$format" \
  "direct=$work/novale=$novale run --strict --mount $work/novale --" \
  "tmpfs=$work/tmpfs" "mount=$work/novale"

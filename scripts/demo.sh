#!/usr/bin/env bash
# The demonstration: real work in a Novale mount, compared with the same work on the machine's own
# file system, after a clean remount and after kill -9 of the daemon. The mount stays; with --once,
# as in the tests, it goes, a program that is built already is used, and the compiler builds a small
# library where it builds Novale.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

once=${1:-}
name=novale-demo${once:+.$$}
work=$target/$name
logs=$work/logs
mount=${TMPDIR:-/tmp}/$name
export NOVALE_TALLY=${NOVALE_TALLY:-$work/tally}
with_git=1 with_sqlite=1
package=novale-cli program=novale
changes=2000 # of the database, of which it has 50 rows each
[ -z "$once" ] || package=novale-policy program='' changes=400
# shellcheck source=scripts/demo/side.sh
. scripts/demo/side.sh

say() { printf '\n%s\n' "$*"; }

clean() { # takes down whatever an earlier demonstration left
  local folder
  clear_scratch "$mount" "/dev/shm/$name"
  clear_scratch "$mount" "$work"
}

summary() {
  local kind
  for kind in passed failed skipped; do
    awk -v kind="$kind" '$1 == kind { n += $2 } END { printf "%d ", n }' "$NOVALE_TALLY"
    printf '%s%s' "$kind" "$([ "$kind" = skipped ] || echo ', ')"
  done
  echo
}

give_up() { # REASON
  tally skipped 1 "demo: $1"
  [ -n "$once" ] || summary
  exit 0
}

prepare_tools() {
  need_toolchain || give_up 'no C compiler (apt-get install gcc libc6-dev)'
  local reason
  reason=$(why_no_mount) || give_up "$reason, so nothing can be mounted"
  if ! need git git; then
    with_git=
    tally skipped 1 'demo: git is missing (apt-get install git)'
  fi
  if ! need sqlite3 sqlite3; then
    with_sqlite=
    tally skipped 1 'demo: sqlite3 is missing (apt-get install sqlite3)'
  fi
  [ -z "$with_git" ] || views+=' repository'
  [ -z "$with_sqlite" ] || views+=' database'
}

build_novale() {
  if [ -n "$once" ]; then
    [ -x "$novale" ] || cargo build --quiet --package novale-cli
  else
    cargo build --release --package novale-cli
    novale=$target/release/novale
  fi
}

pack_sources() { # Novale's sources and all that they depend on, as one archive
  mkdir -p "$work/novale"
  tar -c --exclude=./target --exclude=./.git . | tar -x -C "$work/novale"
  (cd "$work/novale" && cargo vendor --locked --versioned-dirs vendor \
    >>.cargo/config.toml 2>>"$logs/work.log") ||
    give_up 'the dependencies could not be fetched (cargo vendor)'
  # Half of all files are of these, which nothing here is built of.
  [ -z "$once" ] || find "$work"/novale/vendor/{winapi-*-gnu,web-sys,cbindgen}-* -type f \
    ! -name Cargo.toml ! -name .cargo-checksum.json ! -path '*/src/lib.rs' -delete
  tar -cf "$work/sources.tar" -C "$work" novale
  rm -rf "$work/novale"
}

make_pool() {
  local folder
  folder=$(memory_folder 2560)
  pool=$folder/$name/pool
  mkdir -p "${pool%/*}" "$mount"
  "$novale" mkfs --size 2G "$pool"
  "$novale" mount "$pool" "$mount"
}

write_until_killed() { # acknowledges each file, and each row, that was written
  local i
  mkdir "$mount/acknowledged"
  : >"$logs/files.ack"
  : >"$logs/rows.ack"
  for i in $(seq 1 100000); do
    printf 'record %s\n' "$i" >"$mount/acknowledged/$i" || break
    echo "$i" >>"$logs/files.ack"
  done 2>/dev/null &
  if [ -n "$with_sqlite" ]; then
    sqlite3 "$mount/work/rows.db" 'PRAGMA journal_mode = WAL; CREATE TABLE rows (n INTEGER PRIMARY KEY);' \
      >/dev/null
    {
      echo 'PRAGMA synchronous = FULL;'
      seq -f 'INSERT INTO rows VALUES (%.0f); SELECT max(n) FROM rows;' 1 100000
    } | sqlite3 -bail "$mount/work/rows.db" >"$logs/rows.ack" 2>/dev/null &
  fi
}

enough_written() { [ "$(wc -l <"$logs/files.ack")" -ge 200 ]; }

acknowledged_files_are_there() {
  local i missing=0
  while read -r i; do
    [ "$(cat "$mount/acknowledged/$i")" = "record $i" ] || missing=$((missing + 1))
  done <"$logs/files.ack"
  printf '%s files were acknowledged, %s are missing or wrong\n' \
    "$(wc -l <"$logs/files.ack")" "$missing"
  [ "$missing" = 0 ]
}

acknowledged_rows_are_there() {
  local last
  last=$(tail -n 1 "$logs/rows.ack")
  printf '%s rows were acknowledged\n' "${last:-0}"
  [ "$(sqlite3 "$mount/work/rows.db" 'PRAGMA integrity_check;')" = ok ] &&
    [ "$(sqlite3 "$mount/work/rows.db" 'SELECT count(*) FROM rows;')" -ge "${last:-0}" ]
}

crash() { # kill -9 while two writers run
  write_until_killed
  await 60 enough_written || check 'writers get on' false
  kill_daemons "${pool%/*}"
  wait
}

closing_words() {
  cat <<EOF

What was done: Novale's sources and their dependencies were unpacked, built by cargo and cc,
committed to git, cloned and checked, and an SQLite database was filled, in the mount and on disk.
Both were compared, then again after a clean remount, and after kill -9 of the daemon under load.
$(summary)

The mount is still there:   $mount   (pool: $pool)
  look around:              ls $mount/work; df -h $mount
  what the pool holds:      $novale info $pool
  unmount:                  $novale umount $mount
  mount it again:           $novale mount $pool $mount
  verify it (unmounted):    $novale check $pool
  throw it away:            $novale umount $mount; rm -r ${pool%/*} $work
EOF
}

clean
mkdir -p "$logs"
: >>"$NOVALE_TALLY"
[ -z "$once" ] || trap clean EXIT
prepare_tools

say '1. Novale is built, its sources and all that they depend on are packed'
build_novale
pack_sources

say '2. A pool is made in memory and mounted'
make_pool

say "3. The work on the machine's own file system ($work/disk)"
fill "$work/disk"
look "$work/disk" "$logs/disk"

say "4. The same work in the mount ($mount/work)"
fill "$mount/work"
compare 'at once'

say '5. Unmounted, verified, mounted again'
"$novale" umount "$mount"
check 'the pool is whole after a clean unmount' "$novale" check "$pool"
"$novale" mount "$pool" "$mount"
compare 'after a clean remount'

say '6. The daemon is killed (-9) while two writers run; mounted again'
crash
"$novale" mount "$pool" "$mount"
compare 'after kill -9'
check 'every acknowledged file is there' acknowledged_files_are_there
[ -z "$with_sqlite" ] || check 'every acknowledged row is there' acknowledged_rows_are_there
"$novale" umount "$mount"
check 'the pool is whole after recovery' "$novale" check "$pool"
[ -n "$once" ] || "$novale" mount "$pool" "$mount"

[ -n "$once" ] || closing_words
! grep -q '^failed' "$NOVALE_TALLY"

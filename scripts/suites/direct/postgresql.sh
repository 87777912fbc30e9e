# PostgreSQL, which runs as no administrator: the pool, its arena and the mount are all its user's.
# Sourced by direct.sh.
# shellcheck shell=bash disable=SC2034,SC2154

postgres=()     # runs a command as that user
postgres_run=() # and directly

pg() { # COMMAND...: a client
  "${postgres[@]}" "$pg_bin/$1" -h "$pools/pg" "${@:2}"
}

pg_answers() { pg pg_isready -q; }

pg_starts() {
  "${postgres_run[@]}" "$pg_bin/postgres" -D "$mounts/pg/data" -k "$pools/pg" -c listen_addresses= \
    -c shared_buffers=16MB -c max_connections=20 -c autovacuum_naptime=1s -c min_wal_size=32MB \
    -c max_wal_size=48MB -c checkpoint_timeout=30s >>"$pools/pg.log" 2>&1 &
  begun=$!
  await 60 pg_answers || { tail -n 20 "$pools/pg.log" && return 1; }
}

pg_crashes() { # all processes at once, as far as that goes
  local family
  family=$(pgrep -P "$begun" || true)
  # shellcheck disable=SC2086
  kill -9 "$begun" $family
  { wait "$begun" || true; } 2>/dev/null
  # shellcheck disable=SC2086
  await 20 gone $family && "${postgres[@]}" rm -f "$mounts/pg/data/postmaster.pid"
}

pg_query() { pg psql -XAtq -d postgres -c 'SET client_min_messages = warning' -c "$1"; }

pg_initdb() {
  "${postgres_run[@]}" "$pg_bin/initdb" -D "$mounts/pg/data" -A trust --data-checksums --no-instructions \
    >"$pools/initdb.log" 2>&1 || { tail -n 20 "$pools/initdb.log" && return 1; }
}

balanced() { # pgbench's own sums: what tellers, branches and accounts have is what the history says
  pg_query 'SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM
    pgbench_tellers), (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM
    pgbench_history)' >"$pools/sums" &&
    awk -F '|' '{ exit !($1 == $2 && $2 == $3 && $3 == $4 && $1 != "") }' "$pools/sums" ||
    { cat "$pools/sums" && return 1; }
}

pg_bench() {
  pg pgbench -q -i -s 1 postgres >/dev/null 2>&1 && pg pgbench -n -c 4 -j 2 -t 100 postgres \
    >"$pools/pgbench.log" 2>&1 && grep -q 'processed: 400/400' "$pools/pgbench.log" && balanced &&
    [ "$(pg_query 'SELECT count(*) FROM pgbench_history')" = 400 ] ||
    { tail -n 20 "$pools/pgbench.log" "$pools/pg.log" && return 1; }
}

pg_recovers() { # what psql was told is committed is there after the crash
  local bench rows told found
  : >"$pools/told" # what another crash left is no sign that rows are committed
  pg_query 'DROP TABLE IF EXISTS told; CREATE TABLE told(n int)' || return 1
  pg pgbench -n -c 3 -T 60 postgres >/dev/null 2>&1 &
  bench=$!
  seq 1 100000 | sed 's/.*/INSERT INTO told VALUES(&) RETURNING n;/' |
    pg psql -XAtq -d postgres >"$pools/told" 2>/dev/null &
  rows=$!
  await 30 lines "$pools/told" 200 || return 1
  pg_crashes || return 1
  wait "$rows" "$bench" || true
  told=$(tail -n 1 "$pools/told")
  pg_starts || return 1
  found=$(pg_query 'SELECT count(*) FROM told')
  [ "$found" -ge "$told" ] && [ "$found" -le $((told + 1)) ] && balanced || { echo "told: $told, there: $found" && return 1; }
}

pg_is_sound() { # every index against its table, and the checksum of every page when it is stopped
  pg pg_amcheck --install-missing --heapallindexed -a >"$pools/amcheck.log" 2>&1 ||
    { tail -n 20 "$pools/amcheck.log" && return 1; }
}

pg_stops() {
  kill -INT "$begun" && wait "$begun" &&
    "${postgres_run[@]}" "$pg_bin/pg_checksums" --check -D "$mounts/pg/data" >/dev/null
}

part_postgresql() {
  local before
  pg_bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
  if [ -z "$pg_bin" ]; then
    install_packages postgresql || { missing postgresql postgresql && return; }
    pg_bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin | sort -V | tail -n 1)
  fi
  need fusermount3 fuse3 && need pgrep procps || { missing postgresql 'fuse3 or procps' && return; }
  mkdir "$mounts/pg" "$pools/pg"
  chown postgres "$mounts/pg" "$pools/pg"
  postgres=(setpriv --reuid=postgres --regid=postgres --init-groups env "HOME=$pools/pg"
    "XDG_CACHE_HOME=$pools/pg/cache")
  postgres_run=("${postgres[@]}" "$novale" run --strict --mount "$mounts/pg" --)
  [ "${NOVALE_THROUGH:-}" != mount ] || postgres_run=("${postgres[@]}")
  "${postgres[@]}" "$novale" mkfs --size 1G "$pools/pg/pool"
  if [ "$(stat -c %a /dev/fuse)" != 666 ]; then
    tally skipped 1 'direct: postgresql: only root may open /dev/fuse here'
    return
  fi
  step 'postgresql: a mount of its user' \
    "${postgres[@]}" "$novale" mount -o direct "$pools/pg/pool" "$mounts/pg" &&
    daemon=$(daemons "$pools/pg/pool" | head -n 1) && before=$(reads) &&
    step 'postgresql: initdb' pg_initdb &&
    step 'postgresql: it starts' pg_starts &&
    step 'postgresql: pgbench, and its balances' pg_bench &&
    step 'postgresql: killed, and recovered' pg_recovers &&
    step 'postgresql: killed again' pg_recovers &&
    step 'postgresql: tables and indexes agree' pg_is_sound &&
    step 'postgresql: stopped, and all checksums right' pg_stops &&
    echo $(($(reads) - before)) >>"$pools/requests"
  cat "$pools"/*.log | grep -a '^novale: ' >>"$pools/errors" || true
  check 'postgresql: umount' await 10 "${postgres[@]}" "$novale" umount "$mounts/pg"
  check 'postgresql: the pool is whole' "$novale" check "$pools/pg/pool"
}

# SQLite, LMDB, Redis and RocksDB, each with kill -9 while it works. Sourced by direct.sh.
# shellcheck shell=bash disable=SC2154

# --- SQLite ------------------------------------------------------------------------------------

sqlite_script() { # JOURNAL MODE
  cat <<SQL
PRAGMA journal_mode=$1;
PRAGMA synchronous=FULL;
CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT UNIQUE, v BLOB);
CREATE INDEX by_length ON t(length(v), k);
WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n WHERE x < 2000)
  INSERT INTO t SELECT x, 'key' || (x * 7919 % 2003), zeroblob(x % 700) FROM n;
UPDATE t SET v = hex(k) WHERE id % 3 = 0;
BEGIN; DELETE FROM t WHERE id % 7 = 0; ROLLBACK;
BEGIN; DELETE FROM t WHERE id % 5 = 0; COMMIT;
VACUUM;
PRAGMA integrity_check;
SQL
}

sqlite_agrees() { # JOURNAL MODE: the same as on the machine's own file system, also seen through the mount
  local name=sqlite-$1
  sqlite_script "$1" | sqlite3 "$plain/$name" >"$pools/plain.out" &&
    sqlite_script "$1" | direct sqlite3 "$dir/$name" >"$pools/direct.out" &&
    diff "$pools/plain.out" "$pools/direct.out" && grep -qx ok "$pools/direct.out" &&
    diff <(sqlite3 "$plain/$name" .dump) <(sqlite3 "$dir/$name" .dump) &&
    diff <(sqlite3 "$plain/$name" .dump) <(direct sqlite3 "$dir/$name" .dump)
}

sqlite_many() { # four writers of one WAL database, each second one through the mount where that can map
  local db=$dir/sqlite-many n pids=() pid failed=0
  direct sqlite3 "$db" 'PRAGMA journal_mode=WAL; CREATE TABLE t(w, n, v);' >/dev/null || return 1
  for n in 0 1 2 3; do
    local way=(direct)
    ((n % 2)) || [ "${NOVALE_MAP:-}" = dax ] || way=(env)
    "${way[@]}" python3 "$here/rows.py" "$db" "$n" 60 >"$pools/rows.$n" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  local counted='SELECT w, count(*), sum(n) FROM t GROUP BY w; PRAGMA integrity_check;'
  local expected=$'0|60|1770\n1|60|1770\n2|60|1770\n3|60|1770\nok'
  [ "$failed" = 0 ] && [ "$(sqlite3 "$db" "$counted")" = "$expected" ] &&
    [ "$(direct sqlite3 "$db" "$counted")" = "$expected" ]
}

lines() { # FILE COUNT
  [ "$(wc -l <"$1")" -ge "$2" ]
}

sqlite_killed() { # JOURNAL MODE: whatever was acknowledged is there, twice over
  local db=$dir/killed-$1 round last found rows=0
  direct sqlite3 "$db" "PRAGMA journal_mode=$1; CREATE TABLE t(w, n, v);" >/dev/null || return 1
  for round in 1 2 3; do
    : >"$pools/rows"
    begin python3 "$here/rows.py" "$db" "$round" 1000000 >"$pools/rows"
    await 30 lines "$pools/rows" $((20 + 13 * round)) || return 1
    crash
    last=$(tail -n 1 "$pools/rows")
    found=$(direct sqlite3 "$db" "PRAGMA integrity_check; SELECT max(n) FROM t WHERE w = $round;")
    rows=${found#ok$'\n'}
    [[ $found == ok$'\n'* ]] && [ "$rows" -ge "$last" ] && [ "$rows" -le $((last + 1)) ] ||
      { printf 'acknowledged: %s, there: %s\n' "$last" "$found" && return 1; }
  done
}

part_sqlite() {
  need sqlite3 sqlite3 && need_python || { missing sqlite sqlite3 && return; }
  check 'sqlite with a rollback journal' sqlite_agrees delete
  check 'sqlite with a truncated journal' sqlite_agrees truncate
  check 'sqlite with a WAL' sqlite_agrees wal
  check 'sqlite: four processes on one WAL database, two of them through the mount' sqlite_many
  check 'sqlite with a rollback journal, killed' sqlite_killed delete
  check 'sqlite with a WAL, killed' sqlite_killed wal
}

# --- LMDB --------------------------------------------------------------------------------------

lmdb_agrees() { # FLAGS: the same as on the machine's own file system; what it left is read through the mount
  local name=lmdb-$1
  mkdir -p "$plain/$name" "$dir/$name" &&
    "$bin/lmdb" work "$plain/$name" "$1" >"$pools/plain.out" &&
    direct "$bin/lmdb" work "$dir/$name" "$1" >"$pools/direct.out" &&
    diff "$pools/plain.out" "$pools/direct.out" && grep -q 'keys' "$pools/direct.out" &&
    direct "$bin/lmdb" rows "$dir/$name" 1 50 | lines /dev/stdin 50 &&
    [ "$("$bin/lmdb" read "$dir/$name" 1)" = 50 ]
}

lmdb_many() { # four writers of one database, the last two through the mount, beside readers
  local writer pids=() pid way failed=0
  mkdir -p "$dir/lmdb-many" && direct "$bin/lmdb" rows "$dir/lmdb-many" 9 10 >/dev/null || return 1
  for writer in 1 2 3 4; do
    way=(direct)
    [ "$writer" -lt 3 ] || way=(env)
    "${way[@]}" "$bin/lmdb" rows "$dir/lmdb-many" "$writer" 150 >/dev/null &
    pids+=($!)
    "${way[@]}" "$bin/lmdb" read "$dir/lmdb-many" 9 >/dev/null || failed=1
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  for writer in 1 2 3 4; do
    [ "$("$bin/lmdb" read "$dir/lmdb-many" "$writer")" = 150 ] &&
      [ "$(direct "$bin/lmdb" read "$dir/lmdb-many" "$writer")" = 150 ] || failed=1
  done
  [ "$failed" = 0 ]
}

lmdb_killed() { # what was printed is committed, and what is there is whole
  local round last found
  mkdir -p "$dir/lmdb-killed" || return 1
  for round in 1 2 3; do
    : >"$pools/rows"
    begin "$bin/lmdb" rows "$dir/lmdb-killed" "$round" 1000000 >"$pools/rows"
    await 30 lines "$pools/rows" $((200 + 170 * round)) || return 1
    crash
    last=$(tail -n 1 "$pools/rows")
    found=$(direct "$bin/lmdb" read "$dir/lmdb-killed" "$round")
    [ "$found" -ge $((last + 1)) ] && [ "$found" -le $((last + 2)) ] ||
      { printf 'acknowledged: %s, there: %s\n' "$last" "$found" && return 1; }
  done
}

part_lmdb() {
  need cc gcc libc6-dev && { [ -e /usr/include/lmdb.h ] || install_packages liblmdb-dev; } &&
    cc -O1 -o "$bin/lmdb" "$here/lmdb.c" -llmdb || { missing lmdb 'gcc or liblmdb-dev' && return; }
  check 'lmdb' lmdb_agrees 0
  check 'lmdb: written through its mapping' lmdb_agrees 0x80000
  check 'lmdb: four processes on one database, two of them through the mount' lmdb_many
  check 'lmdb, killed' lmdb_killed
}

# --- Redis -------------------------------------------------------------------------------------

redis_cli() { redis-cli -s "$pools/redis.sock" "$@"; }
redis_answers() { [ "$(redis_cli ping 2>&1)" = PONG ]; }

redis_starts() {
  rm -f "$pools/redis.sock"
  begin redis-server --port 0 --unixsocket "$pools/redis.sock" --dir "$dir/redis" --save '' \
    --appendonly yes --appendfsync always --auto-aof-rewrite-percentage 0 \
    >>"$pools/redis.log"
  await 30 redis_answers || { tail -n 20 "$pools/redis.log" && return 1; }
}

rewritten() { redis_cli info persistence | grep -q 'aof_rewrite_in_progress:0'; }
rewrite_is_good() { redis_cli info persistence | grep -q 'aof_last_bgrewrite_status:ok'; }

redis_killed() { # keys are set all the while; the log is rewritten by a fork; then the server is killed
  local writer round keys
  mkdir -p "$dir/redis" && redis_starts || return 1
  for round in 1 2; do
    keys=$pools/keys.$round
    python3 "$here/keys.py" "$pools/redis.sock" "$round" set >"$keys" &
    writer=$!
    await 30 lines "$keys" 500 && redis_cli bgrewriteaof >/dev/null && await 60 rewritten &&
      rewrite_is_good && await 30 lines "$keys" $(($(wc -l <"$keys") + 300)) || return 1
    crash
    wait "$writer" || return 1
    redis_starts && cat "$pools"/keys.* | python3 "$here/keys.py" "$pools/redis.sock" 0 get ||
      return 1
  done
  redis_cli shutdown && wait "$begun"
}

part_redis() {
  need redis-server redis-server && need redis-cli redis-tools && need_python ||
    { missing redis redis-server && return; }
  check 'redis: appendfsync always, a rewrite, killed, twice' redis_killed
  check 'redis-check-aof' direct redis-check-aof "$dir"/redis/appendonlydir/*.manifest
}

# --- RocksDB -----------------------------------------------------------------------------------

rocks() { # BENCHMARKS [OPTION...]
  direct db_bench --benchmarks="$1" --db="$dir/rocks" --num=6000 --write_buffer_size=262144 \
    --target_file_size_base=262144 --compression_type=none --statistics=0 "${@:2}" >"$pools/rocks.log" ||
    { tail -n 20 "$pools/rocks.log" "$pools/errors" && return 1; }
}

rocks_is_whole() {
  direct ldb --db="$dir/rocks" checkconsistency | grep -qx OK &&
    ! direct sst_dump --file="$dir/rocks" --command=verify 2>&1 | grep -iE 'corrupt|not|fail' &&
    sst_dump --file="$dir/rocks" --command=verify >/dev/null
}

rocks_reads() { # every key that fillseq wrote is found, and so through the mount
  rocks readseq,readrandom --use_existing_db=1 --reads=3000 &&
    grep -q '(3000 of 3000 found)' "$pools/rocks.log"
}

rocks_apart() { # BENCHMARKS [OPTION...]: in a database of their own
  rm -rf "$dir/rocks-apart"
  rocks "$1" --db="$dir/rocks-apart" --num=3000 --threads=2 --reads=500 "${@:2}"
}

rocks_writes() {
  rocks_apart fill100K --num=300 &&
    rocks_apart fillbatch,deleteseq,fillseekseq,xorupdaterandom,fillseq,randomreplacekeys,flush,compact0,compact1,waitforcompaction,compactall &&
    rocks_apart fillanddeleteuniquerandom --disposable_entries_batch_size=100 --threads=1 &&
    rocks_apart timeseries
}

rocks_others() {
  rocks_apart fillseq,readtocache,readmissing,newiterator,approximatesizerandom,mixgraph --duration=1 &&
    rocks_apart fillseq,multireadrandom &&
    rocks_apart fillseq,mergerandom,readrandommergerandom,readwhilemerging,readwhilescanning,seekrandomwhilewriting,seekrandomwhilemerging,readrandomoperands \
      --merge_operator=put
}

rocks_verifies() { # db_bench 7.8.3 itself ends in assertions where two threads have transactions
  rocks_apart randomtransaction --threads=1 --transaction_db=1 &&
    grep -q 'RandomTransactionVerify Success' "$pools/rocks.log" &&
    rocks_apart randomwithverify
}

rocks_backup() {
  rocks_apart fillrandom,compactall,verifychecksum,verifyfilechecksums,backup,restore --threads=1 --file_checksum \
    --backup_dir="$dir/rocks-backup" --restore_dir="$dir/rocks-restored" &&
    rocks verifychecksum,readrandom --use_existing_db=1 --db="$dir/rocks-restored" --reads=500 &&
    rm -rf "$dir/rocks-apart" "$dir/rocks-backup" "$dir/rocks-restored"
}

rocks_killed() { # with each write synced: what ldb was told is there
  local key
  for key in 1 2 3; do
    direct ldb --db="$dir/rocks" put "told$key" "value$key" >/dev/null || return 1
  done
  begin db_bench --benchmarks=overwrite --use_existing_db=1 --db="$dir/rocks" --num=10000000 \
    --write_buffer_size=262144 --sync=1 --threads=2 >"$pools/rocks.log"
  await 30 grew "$dir/rocks" || return 1
  crash
  for key in 1 2 3; do
    [ "$(direct ldb --db="$dir/rocks" get "told$key")" = "value$key" ] || return 1
  done
}

grew() { # DIR: a few tables have been written since it was asked first
  local now
  now=$(find "$1" -name '*.sst' -printf '%f\n' | sort | tail -n 1)
  [ -n "${rocks_before:-}" ] || rocks_before=$now
  [ "$now" \> "$rocks_before" ]
}

part_rocksdb() {
  need db_bench rocksdb-tools || { missing rocksdb rocksdb-tools && return; }
  check 'rocksdb: fillseq' rocks fillseq
  check 'rocksdb: every key is found' rocks_reads
  check 'rocksdb: fillrandom, fillsync' rocks fillrandom,fillsync
  check 'rocksdb: writes and reads of all kinds' \
    rocks overwrite,readrandom,readseq,readreverse,seekrandom,readwhilewriting,readrandomwriterandom,updaterandom,appendrandom,deleterandom,compact \
    --use_existing_db=1 --threads=2 --reads=2000
  check 'rocksdb: the other writes' rocks_writes
  check 'rocksdb: the other reads, beside writes and merges' rocks_others
  check 'rocksdb: transactions, and operations that verify themselves' rocks_verifies
  check 'rocksdb: a backup, and the sums of all files' rocks_backup
  check 'rocksdb: memory-mapped reads and direct I/O' rocks overwrite,readrandom \
    --use_existing_db=1 --mmap_read=1 --reads=2000
  check 'rocksdb: verified' rocks_is_whole
  check 'rocksdb: killed, and opened again' rocks_killed
  check 'rocksdb: verified after that' rocks_is_whole
}

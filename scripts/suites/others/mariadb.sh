# MariaDB as it comes: installed, under sysbench, and killed three times with a ledger of what it had
# acknowledged. Sourced by others.sh.
# shellcheck shell=bash disable=SC2154

sql() { mariadb --no-defaults -S "$at/sock" -u root "$@"; }
maria_answers() { mariadb-admin --no-defaults -S "$at/sock" -u root ping >/dev/null 2>&1; }

maria_start() {
  "${run[@]}" mariadbd --no-defaults --user=root --datadir="$at/maria" --socket="$at/sock" \
    --pid-file="$at/pid" --skip-networking >>"$pools/maria.$way" 2>&1 &
  server=$!
  await 60 maria_answers || { tail -n 40 "$pools/maria.$way" && return 1; }
}

maria_stop() {
  mariadb-admin --no-defaults -S "$at/sock" -u root shutdown && await 60 gone "$server"
  server=
}

maria_install() {
  "${run[@]}" mariadb-install-db --no-defaults --user=root --datadir="$at/maria" \
    --auth-root-authentication-method=normal --skip-test-db
}

bench() { # TEST COMMAND
  sysbench "$1" --mysql-socket="$at/sock" --mysql-user=root --mysql-db=bench --tables=2 \
    --table-size=5000 --threads=4 --events="${EVENTS:-3000}" --time=0 "$2"
}

maria_bench() { # TEST
  sql -e 'CREATE DATABASE bench' && bench "$1" prepare && bench "$1" run &&
    sql -e 'CHECK TABLE bench.sbtest1, bench.sbtest2; DROP DATABASE bench'
}

statements() { # ROUND: each row, and behind it the word that it is durable
  local n
  for ((n = 1; n <= 100000; n++)); do
    printf 'INSERT INTO t VALUES (%d, %d, REPEAT("x", %d)); SELECT %d;\n' "$1" "$n" $((n % 900)) "$n"
  done
}

acknowledged() { # COUNT
  [ "$(wc -l <"$pools/ledger")" -ge "$1" ]
}

maria_killed() {
  local round last rows
  sql -e 'CREATE DATABASE ledger; CREATE TABLE ledger.t (r INT, n INT, v TEXT, PRIMARY KEY (r, n))' ||
    return 1
  for round in 1 2 3; do
    : >"$pools/ledger"
    statements "$round" | sql -n -N -B ledger >"$pools/ledger" 2>/dev/null &
    await 60 acknowledged $((200 + 137 * round)) || return 1
    # What is started by a wrapper is the wrapper's own process: it has become the program.
    kill -9 "$server"
    await 30 gone "$server"
    last=$(tail -n 1 "$pools/ledger")
    maria_start || return 1
    rows=$(sql -N -B -e "SELECT COUNT(*) FROM ledger.t WHERE r = $round AND n <= $last")
    printf 'round %d: %d rows acknowledged, %d there\n' "$round" "$last" "$rows"
    [ "$rows" = "$last" ] || return 1
  done
  sql -e 'CHECK TABLE ledger.t EXTENDED' | grep -w OK
}

part_mariadb() {
  need mariadbd mariadb-server && need sysbench sysbench ||
    { tally skipped 1 'others: mariadb-server and sysbench could not be installed' && return; }
  everywhere 'MariaDB: install' maria_install
  everywhere 'MariaDB: start' maria_start_kept
  local test
  for test in oltp_write_only oltp_update_index oltp_update_non_index; do
    everywhere "sysbench $test" maria_with maria_bench "$test"
  done
  everywhere 'MariaDB: killed three times' maria_with maria_killed
}

maria_start_kept() { maria_start && maria_stop; }

maria_with() { # COMMAND...: beside a server of its own
  maria_start && "$@" && maria_stop
}

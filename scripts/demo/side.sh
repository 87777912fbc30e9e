# One side of the demonstration: the same work in a folder of the mount and in one on disk, and what
# can be seen of it afterwards. Sourced by scripts/demo.sh, which sets work, logs, mount and changes.
# shellcheck shell=bash disable=SC2154

# Neither the user's settings nor the time make the two repositories differ.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=Demo GIT_AUTHOR_EMAIL=demo@example.org GIT_AUTHOR_DATE='2026-01-01T00:00:00Z'
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL
export GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
# What git collects behind a commit's back removes objects that fsck is reading.
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0
export GIT_CONFIG_KEY_1=maintenance.auto GIT_CONFIG_VALUE_1=false

# A function whose status is asked for runs on after a failure, so these chain what they do.

timed() { # WHAT COMMAND...: says how long it took; a failure is told and ends the script
  local what=$1 started=${EPOCHREALTIME//[.,]/} ms
  shift
  "$@" >>"$logs/work.log" 2>&1 || {
    tail -n 30 "$logs/work.log"
    df -h "$2" # a full one is the first thing to rule out
    check "$what" false
    return 1
  }
  ms=$(((${EPOCHREALTIME//[.,]/} - started) / 1000))
  printf '    %-44s %3d.%d s\n' "$what" $((ms / 1000)) $((ms % 1000 / 100))
}

unpack() { tar -xf "$work/sources.tar" -C "$1"; }

build() {
  # Without optimisation: the point is the compiler's file traffic.
  (cd "$1/novale" && CARGO_HOME=$1/cargo-home CARGO_TARGET_DIR=$1/build CARGO_PROFILE_DEV_DEBUG=0 \
    cargo build --offline --locked --package "$package" --config profile.dev.opt-level=0 \
    --config 'profile.dev.package."*".opt-level=0') &&
    cc -O1 -Wall -o "$1/lines" "$1/novale/scripts/demo/lines.c"
}

make_repository() {
  git -C "$1/novale" init --quiet --initial-branch=main &&
    git -C "$1/novale" add --all --force &&
    git -C "$1/novale" commit --quiet --message='The sources and what they depend on' &&
    git clone --quiet "$1/novale" "$1/clone"
}

fill_database() {
  sqlite3 "$1/orders.db" >/dev/null <<SQL || return 1
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount INTEGER, note BLOB);
CREATE INDEX by_customer ON orders (customer);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $((50 * changes)))
  INSERT INTO orders SELECT i, 'customer ' || (i * 7919 % 5000), i * 31 % 1000, zeroblob(i % 200)
  FROM n;
SQL
  # Many small commits, as a program makes them.
  {
    echo 'PRAGMA synchronous = FULL;'
    for i in $(seq 1 "$changes"); do
      echo "UPDATE orders SET amount = amount + $i WHERE id BETWEEN $((i * 40)) AND $((i * 45));"
      echo "DELETE FROM orders WHERE id = $((i * 13));"
    done
  } | sqlite3 "$1/orders.db"
}

fill() { # FOLDER: does the work
  mkdir -p "$1"
  timed 'unpack the sources and what they depend on' unpack "$1"
  timed "build $package and a C program" build "$1"
  [ -z "$with_git" ] || timed 'commit it all to git, and clone that' make_repository "$1"
  [ -z "$with_sqlite" ] || timed 'fill an SQLite database under WAL' fill_database "$1"
}

contents() {
  (cd "$1/novale" && find . -name .git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum)
}

attributes() {
  # The size of a directory is a file system's own affair.
  find "$1/novale" -name .git -prune -o \
    \( -type d -printf '%P %y %m %U %G\n' -o -printf '%P %y %m %U %G %n %s %l %T@\n' \) | sort
}

repository() {
  local tree
  for tree in novale clone; do
    git -C "$1/$tree" rev-parse HEAD 'HEAD^{tree}' &&
      git -C "$1/$tree" fsck --full --strict --no-progress &&
      git -C "$1/$tree" status --porcelain || return 1
  done
}

database() {
  sqlite3 "$1/orders.db" 'PRAGMA integrity_check; SELECT count(*), sum(amount) FROM orders;' &&
    sqlite3 "$1/orders.db" .dump | sha256sum
}

programs() {
  { [ -z "$program" ] || "$1/build/debug/$program" --help; } &&
    "$1/lines" "$1/novale/crates"
}

views='contents attributes programs'

look() { # FOLDER OUT: writes down all that can be seen of the work
  local view
  mkdir -p "$2"
  for view in $views; do
    rm -f "$2/$view"
    "$view" "$1" >"$2/part" 2>&1 || {
      printf '%s of %s failed:\n' "$view" "$1"
      tail -n 20 "$2/part"
      df -h "$1"
      continue
    }
    mv "$2/part" "$2/$view"
  done
}

compare() { # WHEN: the mount against the disk
  local view
  look "$mount/work" "$logs/novale"
  for view in $views; do
    check "$view, $1: the same as on disk" \
      diff -q "$logs/disk/$view" "$logs/novale/$view"
  done
}

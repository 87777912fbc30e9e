#!/usr/bin/env bash
# Everything that a change must pass. `scripts/test.sh lint` stops before the tests proper.
# The last line is the total: N passed, N failed, N skipped.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

logs=$target/test
mkdir -p "$logs"
export NOVALE_TALLY=$logs/tally
total_passed=0 total_failed=0 total_skipped=0

sum() { # passed|failed|skipped
  awk -v kind="$1" '$1 == kind { n += $2 } END { print n + 0 }' "$NOVALE_TALLY"
}

part() { # NAME CPU-SECONDS COMMAND...
  local name=$1 limit=$2 log=$logs/$1.log started=$SECONDS status=0 passed failed skipped
  shift 2
  : >"$NOVALE_TALLY"
  scripts/patient.sh "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
  passed=$(sum passed) failed=$(sum failed) skipped=$(sum skipped)
  if [ "$status" = 0 ] && [ $((passed + failed + skipped)) = 0 ]; then
    passed=1
  elif [ "$status" != 0 ] && [ "$failed" = 0 ]; then
    failed=1
    printf 'failed 1 %s ended with status %s\n' "$name" "$status" >>"$NOVALE_TALLY"
  fi
  total_passed=$((total_passed + passed))
  total_failed=$((total_failed + failed))
  total_skipped=$((total_skipped + skipped))
  printf '%-12s %4d passed, %d failed, %d skipped (%d s)\n' \
    "$name" "$passed" "$failed" "$skipped" $((SECONDS - started))
  sed -nE 's/^(failed|skipped) [0-9]+ /             \1: /p' "$NOVALE_TALLY"
  if [ "$failed" != 0 ]; then
    printf -- '--- the end of %s ---\n' "${log#"$root"/}"
    tail -n 100 "$log"
    printf -- '---\n'
  fi
}

finish() {
  local total="$total_passed passed, $total_failed failed, $total_skipped skipped"
  printf '%s\n' "$total" >"$logs/total"
  printf '%s\n' "$total"
  [ "$total_failed" = 0 ]
}

rm -f "$logs/total"
if ! need_toolchain; then
  echo 'no C compiler: rustc needs one to link (apt-get install gcc libc6-dev)'
  total_failed=1
  finish
  exit
fi

# A component that the toolchain lacks is named and skipped, not failed.
cargo_part() { # NAME CPU-SECONDS SUBCOMMAND ARGUMENT...
  if cargo "$3" --version >/dev/null 2>&1; then
    part "$1" "$2" cargo "${@:3}"
  else
    part "$1" "$2" scripts/suites/absent.sh "cargo $3 is not installed (rustup component add)"
  fi
}

cargo_part fmt 240 fmt --all --check
cargo_part clippy 1800 clippy --quiet --workspace --all-targets -- -D warnings
part docs 1800 env RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps
part tidy 1200 cargo run --quiet --package xtask -- tidy
part shell 240 scripts/suites/shell.sh
if [ "${1:-}" = lint ]; then
  finish
  exit
fi

part cargo 4000 scripts/suites/cargo.sh
# With the library that programs run with, which no program of this workspace depends on. The tests
# are named so that dependencies keep the features they were just built with: without them, every
# crate from core upwards is compiled once more.
part build 1200 cargo build --quiet --workspace --lib --bins --tests
part lab 800 scripts/suites/lab.sh
if [ ! -x "$novale" ]; then
  part mounted 10 scripts/suites/absent.sh 'all suites on a mount: novale was not built'
  finish
  exit
fi
part mount 600 scripts/suites/mount.sh
part xattr 240 scripts/suites/xattr.sh
part calls 800 scripts/suites/calls.sh
part capi 1200 scripts/suites/capi.sh
part readme 240 scripts/suites/readme.sh
part pjdfstest 1200 scripts/suites/pjdfstest.sh
part fsx 1200 scripts/suites/fsx.sh
part pages 240 scripts/suites/pages.sh
part nfs 480 scripts/suites/nfs.sh
part table 800 scripts/suites/table.sh
part direct 1200 scripts/suites/direct.sh
NOVALE_MAP=dax part mapped 480 scripts/suites/direct.sh fio sqlite
part stress 480 scripts/suites/stress.sh 15
part stress-direct 480 scripts/suites/stress.sh 15 direct
part killed 480 scripts/suites/stress.sh 10 kill
part demo 1800 scripts/demo.sh --once
finish

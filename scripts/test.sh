#!/usr/bin/env bash
# Everything that a change must pass. `scripts/test.sh lint` stops before the tests proper.
# The last line is the total: N passed, N failed, N skipped.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

logs=$target/test
mkdir -p "$logs"
rm -f "$logs/total" "$logs"/*.tally "$logs"/*.count

sum() { # passed|failed|skipped FILE
  awk -v kind="$1" '$1 == kind { n += $2 } END { print n + 0 }' "$2"
}

# Each part has mounts of its own: a namespace that another one makes has a copy of none of them, which
# would keep it from being unmounted.
own_mounts=()
if is_root && unshare --mount --propagation private true 2>/dev/null; then
  own_mounts=(unshare --mount --propagation private --)
fi

part() { # NAME CPU-SECONDS COMMAND...
  local name=$1 limit=$2 log=$logs/$1.log tally=$logs/$1.tally started=$SECONDS status=0
  local passed failed skipped cpu TIMEFORMAT='%U %S'
  shift 2
  : >"$tally"
  cpu=$({ time NOVALE_TALLY=$tally scripts/patient.sh "$limit" "${own_mounts[@]}" "$@" \
    >"$log" 2>&1 </dev/null; } 2>&1) || status=$?
  passed=$(sum passed "$tally") failed=$(sum failed "$tally") skipped=$(sum skipped "$tally")
  if [ "$status" = 0 ] && [ $((passed + failed + skipped)) = 0 ]; then
    passed=1
  elif [ "$status" != 0 ] && [ "$failed" = 0 ]; then
    failed=1
    printf 'failed 1 %s ended with status %s\n' "$name" "$status" >>"$tally"
  fi
  printf 'passed %d\nfailed %d\nskipped %d\n' "$passed" "$failed" "$skipped" >"$logs/$name.count"
  {
    flock 9
    printf '%-13s %4d passed, %d failed, %d skipped (%d s, %.0f s of CPU)\n' \
      "$name" "$passed" "$failed" "$skipped" $((SECONDS - started)) "$(awk '{ print $1 + $2 }' <<<"$cpu")"
    sed -nE 's/^(failed|skipped) [0-9]+ /             \1: /p' "$tally"
    if [ "$failed" != 0 ]; then
      printf -- '--- the end of %s ---\n' "${log#"$root"/}"
      tail -n 100 "$log"
      printf -- '---\n'
    fi
  } 9>>"$logs/print.lock"
}

finish() {
  local passed failed skipped total
  cat "$logs"/*.count >"$logs/counts"
  passed=$(sum passed "$logs/counts") failed=$(sum failed "$logs/counts")
  skipped=$(sum skipped "$logs/counts")
  sed -nE 's/^failed [0-9]+ /failed: /p' "$logs"/*.tally 2>/dev/null || true
  total="$passed passed, $failed failed, $skipped skipped"
  printf '%s\n' "$total" >"$logs/total"
  printf '%s\n' "$total"
  [ "$failed" = 0 ]
}

if ! need_toolchain; then
  echo 'no C compiler: rustc needs one to link (apt-get install gcc libc6-dev)'
  echo 'failed 1' >"$logs/toolchain.count"
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
# What is installed, with the features that it has without the tests.
part alone 900 cargo check --quiet --package novale-cli --package novale-capi --package novale-preload
part docs 1800 env RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps
[ "${1:-}" != lint ] || part tidy 1200 cargo run --quiet --package xtask -- tidy
part shell 240 scripts/suites/shell.sh
if [ "${1:-}" = lint ]; then
  finish
  exit
fi

# Everything that the parts below run. With the library that programs run with, which no program of
# this workspace depends on. The tests are named so that dependencies keep the features they were just
# built with: without them, every crate from core upwards is compiled once more.
part compile 3000 cargo test --quiet --workspace --no-run
part build 1200 cargo build --quiet --workspace --lib --bins --tests
part tidy 1200 "$target/debug/xtask" tidy

# --- four lanes --------------------------------------------------------------------------------
# Most of these wait, or use one CPU. Each lane takes the next that is waiting, the longest first; what
# must not run beside another, since both install mount(8)'s helper, is one of them.

export NOVALE_CLAIMS=$logs/claims
rm -rf "$NOVALE_CLAIMS"
mkdir "$NOVALE_CLAIMS"
unit_tests() { part cargo 2500 scripts/suites/cargo.sh programs; }
unit_tests_beside() { part cargo-beside 2500 scripts/suites/cargo.sh programs; }
doctests() { part doctests 800 scripts/suites/cargo.sh doc; }
demo() { part demo 1800 scripts/demo.sh --once; }
programs() {
  part direct 1200 scripts/suites/direct.sh
  part mapped 480 env NOVALE_MAP=dax scripts/suites/direct.sh fio sqlite
}
c_interface() { part capi 1200 scripts/suites/capi.sh; }
kernel_view() {
  part mount 600 scripts/suites/mount.sh
  part xattr 240 scripts/suites/xattr.sh
  part pjdfstest 1200 scripts/suites/pjdfstest.sh
}
crash_lab() { part lab 800 scripts/suites/lab.sh; }
file_exerciser() { part fsx 1200 scripts/suites/fsx.sh; }
failing_calls() { part calls 800 scripts/suites/calls.sh; }
stress() {
  part stress 480 scripts/suites/stress.sh 15
  part stress-direct 480 scripts/suites/stress.sh 15 direct
  part killed 480 scripts/suites/stress.sh 10 kill
}
table() { part table 800 scripts/suites/table.sh; }
others() {
  part nfs 480 scripts/suites/nfs.sh
  part pages 240 scripts/suites/pages.sh
  part random 480 scripts/suites/random.sh
  part readme 240 scripts/suites/readme.sh
}
unmounted() { part mounted 10 scripts/suites/absent.sh 'all suites on a mount: novale was not built'; }

queue=(unit_tests unit_tests_beside crash_lab doctests)
if [ -x "$novale" ]; then
  queue=(unit_tests demo unit_tests_beside programs c_interface kernel_view crash_lab file_exerciser
    failing_calls stress table doctests others)
else
  queue+=(unmounted)
fi

lane() {
  local next
  while
    {
      flock 8
      read -r next <"$logs/queue" || next=
      sed -i 1d "$logs/queue"
    } 8>>"$logs/queue.lock"
    [ -n "$next" ]
  do
    "$next"
  done
}

trap 'trap - TERM; kill 0' INT TERM
printf '%s\n' "${queue[@]}" >"$logs/queue"
lane &
lane &
lane &
lane
wait
finish

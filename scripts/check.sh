#!/usr/bin/env bash
# What a small change should pass before the next one, in less than a minute on two CPUs: formatting, the
# tidy test, clippy and unit tests of the crates that changed since the last commit (of core where
# nothing did), the unit tests of the model and the lab, and every seeded bug by the sequence kept for it.
# The first time it compiles. Clippy has a target folder of its own, so that it runs beside the tests.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1
started=$SECONDS

changed() { # the packages with changed or new files
  { git diff --name-only HEAD; git ls-files --others --exclude-standard; } |
    sed -nE 's#^crates/([^/]+)/.*#novale-\1#p; s#^xtask/.*#xtask#p' | sort -u
}
packages=()
tested=()
while read -r name; do
  packages+=(-p "$name")
  [ ! -f "crates/${name#novale-}/src/lib.rs" ] || tested+=(-p "$name")
done < <(changed)
[ ${#packages[@]} -gt 0 ] || packages=(-p novale-core)
[ ${#tested[@]} -gt 0 ] || tested=(-p novale-core)

failed=0
report() { # NAME STATUS LOG
  if [ "$2" = 0 ]; then
    printf 'ok      %s (%d s)\n' "$1" $((SECONDS - started))
  else
    failed=1
    printf 'FAILED  %s (%d s)\n' "$1" $((SECONDS - started))
    tail -n 40 "$3"
  fi
}
step() { # NAME COMMAND...
  local log status=0
  log=$(mktemp)
  "${@:2}" >"$log" 2>&1 || status=$?
  report "$1" "$status" "$log"
  rm -f "$log"
}

looks=$(mktemp)
{
  cargo fmt --all --check &&
    cargo run --quiet --package xtask --target-dir "$target/check" -- tidy &&
    cargo clippy --quiet --target-dir "$target/check" "${packages[@]}" --all-targets -- -D warnings
} >"$looks" 2>&1 &
looking=$!
step "unit tests: ${tested[*]}" cargo test --quiet "${tested[@]}" --lib
step 'unit tests of the model and the lab' cargo test --quiet -p novale-model -p novale-lab --lib
step 'every seeded bug is caught' cargo run --quiet -p novale-lab -- bugs
status=0
wait "$looking" || status=$?
report 'formatting, tidy, clippy' "$status" "$looks"
rm -f "$looks"
exit "$failed"

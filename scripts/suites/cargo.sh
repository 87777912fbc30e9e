#!/usr/bin/env bash
# Tests of the workspace, counted one by one: cargo.sh [doc|programs]. Both where none is named. Of those
# that share the folder $NOVALE_CLAIMS each runs a part of the programs (claimed.sh).
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$root"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
log=$scratch/output.log
export NOVALE_CLAIMS=${NOVALE_CLAIMS:-$scratch}
need python3 python3-minimal || echo 'python3 is missing: what needs it says so'
need fusermount3 fuse3 || echo 'fusermount3 is missing: what needs it says so'
# For a program of 32 bits.
cc -m32 -xc -o /dev/null - <<<'int main(void) { return 0; }' 2>/dev/null ||
  install_packages gcc-multilib || echo 'gcc-multilib is missing: what needs it says so'
status=0

run_tests() { # ARGUMENT...: what cargo is to test
  cargo test --workspace --no-fail-fast "$@" -- --show-output 2>&1 | tee -a "$log" || status=$?
}

if [ "${1:-doc}" = doc ]; then
  # The stable rustdoc accepts any error code in a compile_fail doctest; with this wrapper it compares.
  export RUSTDOC=$root/scripts/suites/rustdoc.sh
  # A canary: a doctest with the wrong error code must fail, or the codes prove nothing.
  # shellcheck disable=SC2016
  printf '//! ```compile_fail,E0001\n//! let x: u8 = "";\n//! ```\n' >"$scratch/lib.rs"
  check 'doctests compare error codes' \
    refuses "$RUSTDOC" --test --edition 2024 --crate-name canary "$scratch/lib.rs"
  run_tests --doc
fi
if [ "${1:-programs}" = programs ]; then
  run_tests --config "target.'cfg(all())'.runner = '$root/scripts/suites/claimed.sh'" \
    --lib --bins --tests
fi

count() { # passed|failed|ignored
  awk -v word="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" word) n += $(i - 1) }
    END { print n + 0 }' "$log"
}

# A test that finds its surroundings wanting says `skipped: TEST: REASON` and returns: not a pass.
skipped=0
while read -r reason; do
  skipped=$((skipped + 1))
  tally skipped 1 "$reason"
done < <(awk -F ': ' '/^skipped: / && !seen[$2]++ { print substr($0, 10) }' "$log")
# What is a task of another test runs in that one.
while read -r name; do
  tally skipped 1 "$name: ignored"
done < <(grep -v ' ignored, a task of another test$' "$log" | sed -nE 's/^test (.*) \.\.\. ignored.*$/\1/p')
tally passed $(($(count passed) - skipped)) 'cargo test'
# Where the time goes.
sed -n 's/^claimed.sh: //p' "$log" | sort -rn | sed -n 1,15p
# What failed comes last, where it is looked for.
awk '/^failures:/ { on = 1 } /^test result:|^successes:/ { on = 0 } on && ++n <= 200' "$log"
while read -r name; do
  tally failed 1 "$name"
done < <(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$log")
exit "$status"

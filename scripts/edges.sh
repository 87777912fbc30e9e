#!/usr/bin/env bash
# A novale-lab that counts the branches of the crates under test, so that `images` is guided by them:
# built below target/edges, then run with the arguments given.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# Cargo calls this script in rustc's place, with rustc's own path in front.
if [ "${NOVALE_EDGES:-}" = rustc ]; then
  rustc=$1
  shift
  if [[ " $* " =~ ' --crate-name novale_'(arena|core|crc|layout|pm|policy)' ' ]]; then
    set -- "$@" -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=3 \
      -C llvm-args=-sanitizer-coverage-inline-8bit-counters
  fi
  exec "$rustc" "$@"
fi

cd "$root"
NOVALE_EDGES=rustc RUSTC_WORKSPACE_WRAPPER=$root/scripts/edges.sh \
  cargo build --quiet --package novale-lab --bin novale-lab --target-dir "$target/edges"
exec "$target/edges/debug/novale-lab" "$@"

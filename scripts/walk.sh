#!/usr/bin/env bash
# What four operations run: instructions of each (release build), and the functions and files of core on
# its way (a build that inlines nothing). Overwrites, of pages that have two copies, are counted over two
# growths of the log, since each has it collected. `scripts/walk.sh`; it needs valgrind. Valgrind shows a
# CPU without AVX-512. With --list OPERATION it names the functions.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

need valgrind valgrind || { echo 'valgrind is missing (apt-get install valgrind)' >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
operations='overwrite append create rename'
[ "${1:-}" != --list ] || operations=${2:?an operation}

build() { # FOLDER ARGUMENT...
  CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=1 \
    cargo build --quiet --package novale-bench --example walk --target-dir "$target/$1" "${@:2}"
}

collect() { # PROGRAM OPERATION COUNT
  valgrind --tool=callgrind --callgrind-out-file="$work/out" --collect-atstart=no \
    --toggle-collect="*walked_$2*" "$1" "$2" "$3" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
  }
}

# The functions of core that ran, each with its file; closures count as their function.
functions() {
  awk '
    /^(fl|fi|fe)=/ { if (match($0, /\([0-9]+\) /)) { id = substr($0, 4, RLENGTH + RSTART - 5); file[id] = substr($0, RSTART + RLENGTH) }
                     split(substr($0, 4), part, " "); if ($0 ~ /^fl=/) now = file[part[1]] }
    /^fn=/ { if (match($0, /\([0-9]+\) /)) { split(substr($0, 4), p, " "); name[p[1]] = substr($0, RSTART + RLENGTH) }
             split(substr($0, 4), part, " "); seen[now "\t" name[part[1]]] = 1 }
    /^cfn=/ { if (match($0, /\([0-9]+\) /)) { split(substr($0, 5), p, " "); name[p[1]] = substr($0, RSTART + RLENGTH) } }
    /^(cfi|cfl)=/ { if (match($0, /\([0-9]+\) /)) { split(substr($0, 5), p, " "); file[p[1]] = substr($0, RSTART + RLENGTH) } }
    END { for (s in seen) print s }' "$work/out" |
    grep 'core/src/' | grep -v 'rustc/' |
    sed -E 's#.*crates/core/src/##; s#::\{\{?closure[^:]*##g; s#::h[0-9a-f]{16}$##; s#<[^>]*>##g' | sort -u
}

build walk-release --release || exit 1
build walk-plain || exit 1
[ "${1:-}" = --list ] || printf '%-10s %13s %10s %6s\n' operation instructions functions files
for operation in $operations; do
  collect "$target/walk-plain/debug/examples/walk" "$operation" 1
  functions >"$work/functions"
  if [ "${1:-}" = --list ]; then
    cat "$work/functions"
    exit
  fi
  count=100
  [ "$operation" != overwrite ] || count=2016
  collect "$target/walk-release/release/examples/walk" "$operation" "$count"
  total=$(sed -n 's/^\(summary\|totals\): //p' "$work/out" | tail -n 1)
  printf '%-10s %13d %10d %6d\n' "$operation" $((total / count)) \
    "$(wc -l <"$work/functions")" "$(cut -f 1 "$work/functions" | sort -u | wc -l)"
done

# Embedded stores, each with the tests that its package brings. Sourced by others.sh.
# shellcheck shell=bash disable=SC2154

fetched() { # NAME VERSION: prints the folder of the package's source
  local folder=$pools/fetch-$1
  mkdir -p "$folder"
  printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n[dependencies]\n%s = "=%s"\n' \
    "$1" "$2" >"$folder/Cargo.toml"
  : >"$folder/lib.rs"
  cargo fetch --quiet --manifest-path "$folder/Cargo.toml" >&2 || return 1
  ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$1-$2" | head -n 1
}

crate_tests() { # FOLDER: the programs were built once; their files are in the way's own folder
  local program
  mkdir -p "$at/tmp"
  while read -r program; do
    (cd "$1" && TMPDIR=$at/tmp timeout 900 "${run[@]}" "$program" --test-threads "${THREADS:-2}") || return 1
  done <"$1/programs"
  rm -rf "$at/tmp"
}

crate() { # NAME VERSION WHAT
  local source copy=$pools/$1
  source=$(fetched "$1" "$2") || { tally skipped 1 "others: $1 could not be fetched" && return; }
  cp -r "$source" "$copy"
  rm -f "$copy/rust-toolchain"
  if ! (cd "$copy" && CARGO_TARGET_DIR=$target/others cargo test --quiet --tests --no-run --message-format=json \
    2>"$pools/log" | python3 "$here/programs.py" >programs); then
    tail -n 20 "$pools/log"
    tally failed 1 "others: $1's tests were not built"
    return
  fi
  everywhere "$3" crate_tests "$copy"
}

part_redb() { crate redb 4.6.0 "redb's own tests"; }
# LMDB in C, as the package of its Rust form brings it, with the programs that test it (mtest6 is one for a
# build that prints all that it does).
lmdb_tests() { # FOLDER: twenty rounds, as the tests draw their keys by lot
  local program _
  for _ in {1..20}; do
    for program in mtest mtest2 mtest3 mtest4 mtest5; do
      rm -rf "$at/testdb" && mkdir "$at/testdb"
      (cd "$at" && "${run[@]}" "$1/$program" >/dev/null) || return 1
      (cd "$at" && "${run[@]}" "$1/mdb_stat" -a testdb >/dev/null) || return 1
    done
    # What is dumped and loaded is the same.
    rm -rf "$at/loaded" && mkdir "$at/loaded"
    "${run[@]}" "$1/mdb_dump" -a "$at/testdb" >"$at/dump" || return 1
    "${run[@]}" "$1/mdb_load" -f "$at/dump" "$at/loaded" || return 1
    "${run[@]}" "$1/mdb_dump" -a "$at/loaded" >"$at/again" || return 1
    # Keys and values; the heads tell of the files.
    cmp <(grep '^ ' "$at/again") <(grep '^ ' "$at/dump") || return 1
  done
  rm -rf "$at/testdb" "$at/loaded" "$at/dump" "$at/again"
}

part_lmdb() {
  local source copy=$pools/lmdb programs=(mtest mtest2 mtest3 mtest4 mtest5 mdb_stat mdb_dump mdb_load)
  source=$(fetched lmdb-master-sys 0.2.6) || { tally skipped 1 'others: LMDB could not be fetched' && return; }
  cp -r "$source/lmdb/libraries/liblmdb" "$copy"
  if ! make -s -C "$copy" "${programs[@]}" >"$pools/log" 2>&1; then
    tail -n 20 "$pools/log"
    tally failed 1 "others: LMDB's tests were not built"
    return
  fi
  everywhere "LMDB's own tests" lmdb_tests "$copy"
}

part_fjall() { crate fjall 3.1.13 "fjall's own tests"; }

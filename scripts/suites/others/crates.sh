# Embedded stores in Rust, each with the tests that its package brings. Sourced by others.sh.
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
part_fjall() { crate fjall 3.1.13 "fjall's own tests"; }

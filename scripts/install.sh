#!/usr/bin/env bash
# Builds and installs the program, the C library and, where it is there, the library that
# `novale run` loads into programs: below PREFIX (/usr/local), libraries into LIBDIR (PREFIX/lib),
# all of it below DESTDIR for packagers. PROFILE: release, or dev for a quick try. BUILT: a folder of
# what was built before, and nothing is built.
# `scripts/install.sh remove` takes the same away again.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
profile=${PROFILE:-release}
into=${DESTDIR:-}
built=$target/$profile
[ "$profile" != dev ] || built=$target/debug
built=${BUILT:-$built}
capi=crates/capi
abi=$(sed -nE 's/^pub const NOVALE_ABI: u32 = ([0-9]+);$/\1/p' "$capi/src/border/version.rs")
version=$(sed -nE 's/^version = "(.*)"$/\1/p' Cargo.toml | head -n 1)

packages=(--package novale-cli --package novale-capi)
[ ! -d crates/preload ] || packages+=(--package novale-preload)

put() { # MODE SOURCE TARGET: one file
  install -D -m "$1" "$2" "$into$3"
  printf '%s\n' "$into$3"
}

install_all() {
  [ -n "${BUILT:-}" ] || cargo build --quiet --profile "$profile" "${packages[@]}"
  put 755 "$built/novale" "$prefix/bin/novale"
  put 755 "$built/libnovale.so" "$libdir/libnovale.so.$abi"
  ln -sf "libnovale.so.$abi" "$into$libdir/libnovale.so"
  put 644 "$built/libnovale.a" "$libdir/libnovale.a"
  [ ! -d crates/preload ] ||
    put 755 "$built/libnovale_preload.so" "$prefix/lib/novale/libnovale_preload.so"
  put 644 "$capi/include/novale.h" "$prefix/include/novale.h"
  install -d "$into$libdir/pkgconfig"
  sed -e "s#@PREFIX@#$prefix#; s#@LIBDIR@#$libdir#; s#@VERSION@#$version#" \
    "$capi/novale.pc.in" >"$into$libdir/pkgconfig/novale.pc"
  put 644 "$capi/man/novale.3" "$prefix/share/man/man3/novale.3"
  install -d "$into$prefix/share/man/man1"
  "$built/novale" manual "$into$prefix/share/man/man1"
}

remove_all() {
  rm -f "$into$prefix/bin/novale" "$into$prefix/include/novale.h" \
    "$into$libdir/libnovale.so.$abi" "$into$libdir/libnovale.so" "$into$libdir/libnovale.a" \
    "$into$prefix/lib/novale/libnovale_preload.so" "$into$libdir/pkgconfig/novale.pc" \
    "$into$prefix/share/man/man3/novale.3" "$into$prefix"/share/man/man1/novale{,-*}.1
}

case ${1:-install} in
  install) install_all ;;
  remove) remove_all ;;
  *)
    echo 'usage: scripts/install.sh [install|remove]' >&2
    exit 2
    ;;
esac

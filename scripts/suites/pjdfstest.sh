#!/usr/bin/env bash
# The conformance suite pjdfstest on a mount, side by side with tmpfs on the same machine. A case
# counts by what it does on the mount.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

settings=$root/scripts/suites/pjdfstest.toml
logs=$target/test
needs_mount pjdfstest
if ! need setfacl acl || ! { [ -e /usr/include/sys/acl.h ] || install_packages libacl1-dev; } ||
  ! program=$(cargo_tool pjdfstest 0.2.2); then
  tally skipped 1 'pjdfstest: could not be installed (cargo install --locked pjdfstest@0.2.2)'
  exit
fi

scratch
mkdir -p "$logs" "$mounts/novale" "$mounts/tmpfs" "$mounts/other"
mount -t tmpfs -o mode=755 none "$mounts/tmpfs"
"$novale" mkfs --size 512M "$pools/pool"
"$novale" mount "$pools/pool" "$mounts/novale"

outcomes() { # LOG: "case outcome" lines, sorted
  sed -nE 's/^([a-z0-9_:]+) +(ok|skipped|FAILED)$/\1 \2/p' "$1" | sort
}

run() { # NAME SETTINGS PATTERN...
  local name=$1 settings=$2
  shift 2
  # It exits with a failure when a case failed; what counts are the cases.
  NO_COLOR=1 "$program" -c "$settings" -p "$mounts/${name%-*}" -s "$mounts/other" "$@" \
    >"$logs/pjdfstest-$name.log" 2>&1 || true
  printf '%s: %s\n' "$name" "$(grep '^Summary' "$logs/pjdfstest-$name.log")"
  outcomes "$logs/pjdfstest-$name.log" >"$logs/pjdfstest-$name.txt"
}

run tmpfs-all "$settings"
run novale-all "$settings"
check 'pjdfstest ran whole on both' \
  cmp <(cut -d' ' -f1 "$logs/pjdfstest-tmpfs-all.txt") <(cut -d' ' -f1 "$logs/pjdfstest-novale-all.txt")
echo 'cases that differ (< tmpfs, > novale):'
diff "$logs/pjdfstest-tmpfs-all.txt" "$logs/pjdfstest-novale-all.txt" || true

# The read-only cases remount what they run on, which goes through the mount helper.
settings_remount=$pools/remount.toml
sed 's/^allow_remount = false/allow_remount = true/' "$settings" >"$settings_remount"
check 'the mount helper is installed' install_helper
run tmpfs-remount "$settings_remount" erofs
run novale-remount "$settings_remount" erofs
results=$(sort -k1,1 -u "$logs/pjdfstest-novale-remount.txt" "$logs/pjdfstest-novale-all.txt")
"$novale" umount "$mounts/novale"

while read -r name outcome; do
  case $outcome in
    ok) tally passed 1 "pjdfstest $name" ;;
    FAILED) tally failed 1 "pjdfstest $name" ;;
    skipped) tally skipped 1 "pjdfstest $name" ;;
  esac
done <<<"$results"
check 'the pool is whole after pjdfstest' "$novale" check "$pools/pool"

#!/usr/bin/env bash
# The novale program and a mount as a user meets them: each command, its refusals, a mount's life.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

needs_mount mount
scratch
pool=$pools/pool
dir=$mounts/dir
mkdir "$dir" "$mounts/second"

# --- small probes ------------------------------------------------------------------------------

size_is() { [ "$(stat -c %s "$1")" = "$2" ]; }
holds() { [ "$(cat "$1")" = "$2" ]; }
says() { # TEXT COMMAND...: succeeds and prints TEXT
  local output
  if ! output=$("${@:2}" 2>&1) || [[ $output != *"$1"* ]]; then
    printf '%s\n' "$output"
    return 1
  fi
}
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
denied() { ! as_nobody "$@" 2>/dev/null; }
listed_as() { # SOURCE DIR OPTION: in the mount table with our type
  grep -qE "^$1 $2 fuse\.novale [^ ]*\b$3\b" /proc/self/mounts
}
not_mounted() { ! mounted "$dir"; }

# --- making and refusing -----------------------------------------------------------------------

check 'mkfs makes a missing file' "$novale" mkfs --size 64M "$pool"
check 'of the size asked for' size_is "$pool" $((64 << 20))
check 'mkfs refuses to overwrite a pool' refuses "$novale" mkfs "$pool"
check 'and does so with --force' "$novale" mkfs --force "$pool"
check 'an existing file keeps its size' size_is "$pool" $((64 << 20))
check 'a new pool is whole' "$novale" check "$pool"
check 'info prints facts' says "${pool##*/}" "$novale" info "$pool"

for kind in 'empty' 'text' 'small' 'missing'; do
  file=$pools/$kind
  case $kind in
    empty) truncate -s 64M "$file" ;;
    text) head -c 64M /dev/zero >"$file" && echo 'someone else wrote this' | dd of="$file" conv=notrunc status=none ;;
    small) truncate -s 8K "$file" ;;
    missing) ;;
  esac
  for command in info check mount; do
    arguments=("$file")
    [ "$command" != mount ] || arguments+=("$dir")
    check "$command refuses a file that is no pool: $kind" refuses "$novale" "$command" "${arguments[@]}"
  done
done
check 'mkfs refuses a file that holds data' refuses "$novale" mkfs "$pools/text"
check 'mkfs refuses a file that is too small' refuses "$novale" mkfs "$pools/small"
check 'what is refused is not touched' \
  says 'someone else' head -n 1 "$pools/text"

# --- a mount's life ----------------------------------------------------------------------------

check 'mount returns' timeout 600 "$novale" mount "$pool" "$dir" </dev/null
check 'the mount table names source and type' listed_as "$pool" "$dir" rw
check 'mkfs refuses a pool in use, forced too' refuses "$novale" mkfs --force "$pool"
check 'check refuses a pool in use' refuses "$novale" check "$pool"
check 'info works on a live pool' "$novale" info "$pool"
check 'stats of a live pool' says written "$novale" stats "$pool"
shown_twice() {
  "$novale" mount "$pool" "$mounts/second" && touch "$dir/seen" && rm "$mounts/second/seen" &&
    [ ! -e "$dir/seen" ]
}
check 'the pool is shown in a second directory' shown_twice
check 'a second mount that is another is refused' refuses "$novale" mount -o ro "$pool" "$mounts/second"
check 'umount of one leaves the other' umount "$mounts/second"

echo 'first' >"$dir/file"
echo 'second' >>"$dir/file"
mkdir "$dir/folder"
ln "$dir/file" "$dir/folder/link"
ln -s file "$dir/symlink"
mkfifo "$dir/fifo"
check 'append' holds "$dir/file" $'first\nsecond'
check 'hard link' [ "$dir/file" -ef "$dir/folder/link" ]
check 'symbolic link' holds "$dir/symlink" $'first\nsecond'
ln "$dir/file" "$dir/folder/stays"
mv "$dir/folder/link" "$dir/moved"
check 'rename' holds "$dir/moved" $'first\nsecond'
check 'a directory that has entries stays' refuses rmdir "$dir/folder"
chmod 600 "$dir/file"
check 'others may not read it' denied cat "$dir/file"
check 'others may not write in the root' denied touch "$dir/other"
mkdir -m 1777 "$dir/shared"
check 'others may write where they are let' as_nobody sh -c "echo mine >'$dir/shared/mine'"
check 'and own what they make' [ "$(stat -c %u "$dir/shared/mine")" = 65534 ]
cp "$(type -P true)" "$dir/program"
check 'a program runs from it' "$dir/program"
check 'a lock is taken' flock -n "$dir/file" true
# The holder keeps the lock while it runs the second one.
check 'and keeps a second one out' flock -n "$dir/file" sh -c "! flock -n '$dir/moved' true"
truncate -s 1M "$dir/sparse"
check 'a hole takes no space' [ "$(stat -c %b "$dir/sparse")" = 0 ]
check 'free space is told' says "$dir" df "$dir"
exec 9>"$dir/unlinked"
rm "$dir/unlinked"
echo 'still here' >&9
check 'an open file outlives its name' says 'still here' cat /proc/self/fd/9
exec 9>&-

check 'umount returns' timeout 600 "$novale" umount "$dir"
check 'the pool is closed by then' "$novale" check "$pool"
check 'the directory is free' not_mounted

# --- again, and after a crash ------------------------------------------------------------------

"$novale" mount "$pool" "$dir"
check 'what was written is there' holds "$dir/moved" $'first\nsecond'
head -c 3M /dev/urandom >"$pools/random"
cp "$pools/random" "$dir/random"
kill_daemons "$pool"
check 'a dead mount answers with an error' refuses ls "$dir"
check 'a dead mount is mounted over' "$novale" mount "$pool" "$dir"
check 'what was written before kill -9 is there' cmp "$pools/random" "$dir/random"
check 'and what was there before' holds "$dir/moved" $'first\nsecond'
# shellcheck disable=SC2046
kill -TERM $(daemons "$pool")
check 'SIGTERM unmounts' await 30 not_mounted
# shellcheck disable=SC2046
check 'and ends the daemon' await 30 sh -c "! '$novale' check '$pool' 2>&1 | grep -q 'in use'"
check 'the recovered pool is whole' "$novale" check "$pool"

"$novale" mount -o ro "$pool" "$dir"
check 'a read-only mount is told so' listed_as "$pool" "$dir" ro
check 'and takes no writes' refuses touch "$dir/new"
check 'and shows what is there' cmp "$pools/random" "$dir/random"
"$novale" umount "$dir"

# --- several slots, and mount(8) ---------------------------------------------------------------

slots=("$pools/slot0" "$pools/slot1")
check 'a pool of two slots is made' "$novale" mkfs --size 32M "${slots[@]}"
check 'and mounted' "$novale" mount "${slots[@]}" "$dir"
head -c 40M /dev/urandom >"$pools/random"
check 'it takes more than one slot holds' cp "$pools/random" "$dir/random"
"$novale" umount "$dir"
check 'a slot alone is refused' refuses "$novale" mount "${slots[0]}" "$dir"
check 'and whole together' "$novale" check "${slots[@]}"

check 'the mount helper is installed' install_helper
check 'mount -t fuse.novale' mount -t fuse.novale -o noatime "${slots[0]}:${slots[1]}" "$dir"
check 'shows the same' cmp "$pools/random" "$dir/random"
check 'remounts read-only' mount -o remount,ro "$dir"
check 'which holds' refuses touch "$dir/new"
check 'remounts for writing' mount -o remount,rw "$dir"
check 'which holds too' touch "$dir/new"
"$novale" umount "$dir"
check 'the pool of two slots is whole' "$novale" check "${slots[@]}"

#!/usr/bin/env bash
# Many processes with random operations of all kinds on a mount, in the manner of fsstress: stress-ng's
# file classes, which verify what they read back. `stress.sh SECONDS` runs them once and closes the
# pool; `stress.sh SECONDS direct` does so under `novale run`; `stress.sh SECONDS kill` kills the daemon
# under them every few seconds, and the pool is recovered each time. Behind each, the pool must be whole.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

seconds=${1:-15}
how=${2:-close}
needs_mount stress
if ! need stress-ng stress-ng; then
  tally skipped 1 'stress: stress-ng could not be installed'
  exit
fi

# Each kind, with a process or two. Left out are those for what only some file systems have, and the
# one that opens all mounts of the machine.
kinds=(access aio chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap
  filename flock fpunch fsize fstat getdent hdd io iomix lease link locka lockf lockofd mknod
  mmap open readahead rename revio seek sendfile symlink sync-file touch utime xattr)
twice=(chmod dentry dir hdd rename)
sizes=(--dirdeep-bytes 64M --hdd-bytes 32M --iomix-bytes 32M --fallocate-bytes 32M --mmap-bytes 32M
  --mmap-file --fiemap-bytes 32M --revio-bytes 32M --seek-size 32M --readahead-bytes 32M
  --sync-file-bytes 32M --copy-file-bytes 128M)
workers=()
for kind in "${kinds[@]}"; do workers+=("--$kind" 1); done
for kind in "${twice[@]}"; do workers+=("--$kind" 2); done

scratch
pool=$pools/pool
dir=$mounts/dir
mkdir "$dir"
"$novale" mkfs --size 1G "$pool"

runner=()
how_mounted=()
if [ "$how" = direct ]; then
  runner=("$novale" run --strict)
  how_mounted=(-o direct)
fi
load() { # SECONDS; some kinds make files where they are started
  cd "$dir" || return 1
  exec "${runner[@]}" stress-ng --temp-path "$dir" --timeout "$1s" --verify "${sizes[@]}" "${workers[@]}" \
    >"$pools/stress.log" 2>&1
}
stress() { # SECONDS: prints what failed
  local pid status=0
  load "$1" &
  pid=$!
  if ! await $(($1 + 60)) gone "$pid"; then
    echo 'it hangs'
    kill -KILL "$pid"
  fi
  wait "$pid" || status=$?
  grep -E ': (fail|error|warn):?' "$pools/stress.log" || true
  # 3: a kind gave up, for want of something that it needs; 4: it is not for this machine.
  case $status in 0 | 3 | 4) ;; *) tail -n 5 "$pools/stress.log" && false ;; esac
}
said_nothing() { # the daemon met no damage
  [ ! -s "$pools/log" ] || { cat "$pools/log" && false; }
}
mounted_again() { "$novale" mount "${how_mounted[@]}" --log "$pools/log" "$pool" "$dir"; }
emptied() { find "$dir" -mindepth 1 -delete && [ -z "$(ls -A "$dir")" ]; }

if [ "$how" != kill ]; then
  check 'a mount to stress' mounted_again
  # In rounds: longer, some fill the pool, and others take that for a failure.
  for ((left = seconds; left > 0; left -= 20)); do
    check "processes with random operations, $left s left" stress $((left < 20 ? left : 20))
  done
  check 'the daemon met nothing odd' said_nothing
  check 'what is left can be removed' emptied
  check 'umount' timeout 600 "$novale" umount "$dir"
  check 'the pool is whole' "$novale" check "$pool"
  exit
fi

killed() { # SECONDS: the daemon is killed after them, and with it ends what used the mount
  local pid
  load $(($1 + 60)) &
  pid=$!
  sleep "$1"
  ! gone "$pid" || { tail -n 5 "$pools/stress.log" && return 1; }
  kill_daemons "$pool" || return 1
  kill -TERM "$pid" 2>/dev/null || true
  await 30 gone "$pid" || { echo 'the load hangs' && kill -KILL "$pid"; }
  wait "$pid" || true
  "$novale" umount "$dir"
}
end=$((SECONDS + seconds))
round=0
while [ "$SECONDS" -lt "$end" ]; do
  round=$((round + 1))
  check "round $round: a mount" mounted_again
  check "round $round: the daemon is killed under the load" killed $((2 + RANDOM % 5))
  check "round $round: the recovered pool is mounted" mounted_again
  check "round $round: and closed" "$novale" umount "$dir"
  check "round $round: and whole" "$novale" check "$pool"
done
check 'a last mount' mounted_again
check 'what is left can be removed' emptied
check 'umount' "$novale" umount "$dir"
check 'the pool is whole' "$novale" check "$pool"

#!/usr/bin/env bash
# Each system call of the program's commands, and of a mount's daemon, fails in turn, by strace: the
# command ends with a message, or goes on, and the pool is whole afterwards. Of each kind so many
# calls fail, the first ones.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

of_each_kind=${1:-1}
if ! need strace strace || ! strace -qq -o /dev/null true; then
  tally skipped 1 'calls: strace is missing or may not trace'
  exit
fi
scratch
pool=$pools/pool
dir=$mounts/dir
mkdir "$dir"

# Calls that can't fail, or without which no process starts or ends; brk does not fail by an error but by
# the old end, which can't be injected.
sure='brk|execve|exit|exit_group|rt_sigreturn|getpid|gettid|getuid|geteuid|getgid|getegid|getppid|umask'

count_calls() { # TRACE: lines of "KIND COUNT"
  sed -nE 's/^[0-9]+ +([a-z0-9_]+)\(.*/\1/p' "$1" | grep -vxE "$sure" | sort | uniq -c |
    awk '{ print $2, $1 }'
}

strace -f -qq -o "$pools/start" "$novale" --version >/dev/null
count_calls "$pools/start" >"$pools/started"

error_of() { # KIND
  case $1 in mmap | mremap | clone3 | clone) echo ENOMEM ;; *) echo EIO ;; esac
}

sound() { # STATUS OUTPUT KIND: how a command may end whose call failed
  case $3 in
  # Without these, the language's run-time gives up.
  getrandom | futex) return 0 ;;
  # An answer that the kernel does not take is lost: the caller waits until the daemon is killed.
  writev) return 0 ;;
  esac
  if grep -q 'panicked at' "$2"; then return 1; fi
  case $1 in
  0) ;;
  134) grep -q 'memory allocation of' "$2" ;;
  *) [ "$1" -lt 124 ] && [ -s "$2" ] ;;
  esac
}

patience=600 # seconds that a run may take
fail_each() { # RUN JUDGE: RUN's arguments are strace's
  local kind count first number status failures=0 runs=0
  : >"$pools/failures"
  "$1" -f -qq -o "$pools/trace" >/dev/null 2>&1 || return 1
  while read -r kind count; do
    # Of a futex call that fails a waker may not know, and the sleeper sleeps on.
    patience=600
    [ "$kind" != futex ] || patience=20
    first=$(awk -v kind="$kind" '$1 == kind { n = $2 } END { print n + 1 }' "$pools/started")
    for ((number = first; number <= count && number < first + of_each_kind; number++)); do
      status=0
      "$1" -f -qq -o /dev/null -e "trace=$kind" \
        -e "inject=$kind:error=$(error_of "$kind"):when=$number" >"$pools/said" 2>&1 || status=$?
      runs=$((runs + 1))
      if ! sound "$status" "$pools/said" "$kind" || ! "$2"; then
        {
          printf '%s number %s failed: exit status %s:\n' "$kind" "$number" "$status"
          cat "$pools/said"
        } >>"$pools/failures"
        failures=$((failures + 1))
      fi
    done
  done < <(count_calls "$pools/trace")
  printf '%s calls failed in turn\n' "$runs"
  [ "$failures" = 0 ] || cat "$pools/failures"
  [ "$failures" = 0 ] && [ "$runs" -gt 0 ]
}

whole() { "$novale" check "$pool" >"$pools/checked" 2>&1 || { cat "$pools/checked" && false; }; }

run_mkfs() { rm -f "$pool" && timeout "$patience" strace "$@" "$novale" mkfs --size 16M "$pool"; }
made_at_last() { "$novale" mkfs --force --size 16M "$pool" >/dev/null && whole; }
check 'mkfs' fail_each run_mkfs made_at_last

run_info() { timeout "$patience" strace "$@" "$novale" info "$pool"; }
check 'info' fail_each run_info whole
run_check() { timeout "$patience" strace "$@" "$novale" check "$pool"; }
check 'check' fail_each run_check whole

needs_mount 'calls of a mount'

acknowledged=
use_mount() { # writes a file, and down what it holds
  : >"$pools/acknowledged"
  dd if=/dev/urandom of="$dir/file" bs=4096 count=8 conv=fsync status=none || return
  sha256sum <"$dir/file" >"$pools/read"
  # A mount that has ended by now leaves the folder below it.
  [ "$(stat -c %d "$dir/file")" = "$(stat -c %d "$mounts")" ] || mv "$pools/read" "$pools/acknowledged"
}
run_mount() { # mounts, writes a file, unmounts; the daemon's exit status
  local pid status=0
  acknowledged=
  timeout -k 5 "$patience" strace "$@" "$novale" mount --foreground "$pool" "$dir" &
  pid=$!
  until mounted "$dir" || gone "$pid"; do sleep 0.02; done
  if mounted "$dir"; then
    # Where an answer to the kernel is lost, the caller waits until the daemon is gone.
    use_mount &
    await 15 gone "$!" || kill_daemons "$pool" || true
    wait "$!" || true
    acknowledged=$(cat "$pools/acknowledged")
    timeout 600 "$novale" umount "$dir" || umount -l "$dir" || true
  fi
  wait "$pid" || status=$?
  # Out of time: strace has ended, and a daemon whose thread was never woken is still there.
  [ "$status" != 124 ] || kill_daemons "$pool" || true
  ! mounted "$dir" || umount -l "$dir"
  return "$status"
}
kept() { # what was acknowledged is there
  local status=0
  await 60 no_daemons "$pool" || { echo 'a daemon is left' >>"$pools/failures" && return 1; }
  whole || { cat "$pools/checked" >>"$pools/failures" && return 1; }
  [ -n "$acknowledged" ] || return 0
  "$novale" mount "$pool" "$dir" || return 1
  [ "$(sha256sum <"$dir/file")" = "$acknowledged" ] || {
    echo 'what was acknowledged is not there' >>"$pools/failures"
    status=1
  }
  "$novale" umount "$dir" && return "$status"
}
check 'mount' fail_each run_mount kept

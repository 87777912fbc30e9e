#!/usr/bin/env bash
# Runs a command: scripts/patient.sh SECONDS COMMAND... It is ended, with status 124, when its processes
# have used so many seconds of CPU time, or next to none for ten minutes. Where each of them stood is said.
# The clock alone ends nothing: a machine that is ten times busier takes ten times as long.
limit=$1
shift
stands_still=600
moves=3 # seconds of CPU time: what waits in a loop uses some too
ticks=$(getconf CLK_TCK)

setsid "$@" <&0 &
session=$!

used() { # CPU time of the session's processes and of all that they have waited for, in ticks
  local stat total=0 rest
  for stat in /proc/[0-9]*/stat; do
    { read -r rest <"$stat"; } 2>/dev/null || continue
    # Behind the name: state, parent, group, session; the four times are the 12th to the 15th.
    # shellcheck disable=SC2086
    set -- ${rest##*) }
    [ "${4:-}" != "$session" ] || total=$((total + ${12} + ${13} + ${14} + ${15}))
  done
  echo "$total"
}

tell_where() { # each process of the session: what it is, and what each of its threads waits for
  local process thread
  for process in $(pgrep -s "$session"); do
    printf -- '--- process %s: %s\n' "$process" "$(tr '\0' ' ' <"/proc/$process/cmdline")"
    for thread in /proc/"$process"/task/*; do
      printf '%s, %s, call %s\n' "$(grep ^State "$thread/status")" "$(cat "$thread/wchan")" \
        "$(cat "$thread/syscall")"
    done
  done >&2 2>/dev/null
}

# The scripts clean up when they are asked to end; what does not is killed.
end() { # STATUS
  kill -TERM -- "-$session" 2>/dev/null
  for _ in $(seq 40); do
    kill -0 -- "-$session" 2>/dev/null || exit "$1"
    sleep 0.5
  done
  kill -KILL -- "-$session" 2>/dev/null
  exit "$1"
}
trap 'end 143' TERM INT HUP

before=0 still=0 half=0
while kill -0 "$session" 2>/dev/null; do
  sleep 0.5
  half=$((half + 1))
  [ $((half % 10)) = 0 ] || continue
  now=$(used) still=$((still + 5))
  # What has ended and is another's child counts no more.
  [ "$now" -ge "$before" ] || before=$now
  if [ $((now - before)) -ge $((moves * ticks)) ]; then
    still=0 before=$now
  fi
  if [ "$((now / ticks))" -ge "$limit" ]; then
    tell_where
    echo "patient.sh: ended after $limit s of CPU time: $*" >&2
    end 124
  elif [ "$still" -ge "$stands_still" ]; then
    tell_where
    echo "patient.sh: ended, since nothing has moved for $stands_still s: $*" >&2
    end 124
  fi
done
wait "$session"

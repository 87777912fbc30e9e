#!/usr/bin/env bash
# Runs a command: scripts/patient.sh SECONDS COMMAND... It is ended, with status 124, when its processes
# have used so many seconds of CPU time, or none at all for ten minutes. The clock alone ends nothing: a
# machine that is ten times busier takes ten times as long.
limit=$1
shift
stands_still=600
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

last=0 still=0 half=0
while kill -0 "$session" 2>/dev/null; do
  sleep 0.5
  half=$((half + 1))
  [ $((half % 10)) = 0 ] || continue
  now=$(used)
  still=$((now == last ? still + 5 : 0)) last=$now
  if [ "$((now / ticks))" -ge "$limit" ]; then
    echo "patient.sh: ended after $limit s of CPU time: $*" >&2
    end 124
  elif [ "$still" -ge "$stands_still" ]; then
    echo "patient.sh: ended, since nothing has moved for $stands_still s: $*" >&2
    end 124
  fi
done
wait "$session"

# A user who is not root: its own pool and mount, and what it may do there. Sourced by direct.sh.
# shellcheck shell=bash disable=SC2154

rights_agree() { # WHERE PLAIN COMMAND...: what the command may do there, and on the machine's own file system
  local here_dir=$1 plain_dir=$2 seed
  shift 2
  for seed in 1 2 3 4 5 6; do
    "$@" python3 "$pools/rights.py" "$plain_dir.$seed" "$seed" 600 >"$pools/rights.plain" 2>&1
    "${rights_run[@]}" python3 "$pools/rights.py" "$here_dir.$seed" "$seed" 600 >"$pools/rights.direct" 2>&1
    diff "$pools/rights.plain" "$pools/rights.direct" || return 1
    lines "$pools/rights.plain" 600 || { cat "$pools/rights.plain" && return 1; }
  done
}

prepare_rights() { # DIR COMMAND...
  local dir=$1 seed
  shift
  for seed in 1 2 3 4 5 6; do
    "$@" mkdir "$dir.$seed" && "$@" python3 "$pools/rights.py" --prepare "$dir.$seed" || return 1
  done
}

part_rights() { # user 0 without its capabilities, among its own files and others'
  need_python && need setpriv util-linux || { missing rights python3 && return; }
  cp "$here/rights.py" "$pools"
  local without=(setpriv --bounding-set=-all --inh-caps=-all)
  rights_run=("${without[@]}" "${run[@]}")
  prepare_rights "$plain/rights" env && prepare_rights "$dir/rights" env
  check 'user 0 without capabilities: results as on tmpfs' \
    rights_agree "$dir/rights" "$plain/rights" "${without[@]}"
}

user_cases() { # LOG FOLDER COMMAND...: the cases of the conformance suite, and what came of them
  local log=$1 folder=$2 group
  shift 2
  for group in "${pjdfstest_parts[@]}"; do
    NO_COLOR=1 "$@" "$pools/pjdfstest" -c "$pools/pjdfstest.toml" -p "$folder" -s "$plain/user" "$group" || true
  done >"$log" 2>&1
  sed -nE 's/^([a-z0-9_:]+) +(ok|skipped|FAILED)$/\1 \2/p' "$log" | sort >"$log.txt"
}

user_conforms() { # what fails on tmpfs may fail here
  user_cases "$pools/user-plain" "$plain/user" "${user[@]}"
  user_cases "$pools/user-direct" "$mounts/user/cases" "${rights_run[@]}"
  [ "$(grep -c ' ok$' "$pools/user-direct.txt")" -ge 300 ] &&
    ! diff "$pools/user-plain.txt" "$pools/user-direct.txt" | grep '^> .*FAILED'
}

part_user() {
  local program
  need fusermount3 fuse3 && need setpriv util-linux && need_python || { missing user fuse3 && return; }
  if [ "$(stat -c %a /dev/fuse)" != 666 ]; then
    tally skipped 1 'direct: user: only root may open /dev/fuse here'
    return
  fi
  mkdir "$mounts/user" "$pools/user" "$plain/user"
  chown nobody "$mounts/user" "$pools/user" "$plain/user"
  cp "$here/rights.py" "$pools"
  local user=(setpriv --reuid=nobody --regid=nogroup --clear-groups env "HOME=$pools/user"
    "XDG_CACHE_HOME=$pools/user/cache")
  rights_run=("${user[@]}" "$novale" run --strict --mount "$mounts/user" --)
  [ "${NOVALE_THROUGH:-}" != mount ] || rights_run=("${user[@]}")
  "${user[@]}" "$novale" mkfs --size 128M "$pools/user/pool"
  step 'a user: a mount of its own' \
    "${user[@]}" "$novale" mount -o direct "$pools/user/pool" "$mounts/user" || return 0
  prepare_rights "$plain/user/rights" "${user[@]}" && prepare_rights "$mounts/user/rights" "${user[@]}"
  check 'a user: results as on tmpfs' \
    rights_agree "$mounts/user/rights" "$plain/user/rights" "${user[@]}"
  if program=$(cargo_tool pjdfstest 0.2.2); then
    # Where the user can reach them.
    cp "$program" "$root/scripts/suites/pjdfstest.toml" "$pools"
    chmod a+r "$pools/pjdfstest.toml"
    "${user[@]}" mkdir "$mounts/user/cases"
    check 'a user: pjdfstest fails nowhere where tmpfs does not' user_conforms
  fi
  check 'a user: umount' await 10 "${user[@]}" "$novale" umount "$mounts/user"
  check 'a user: the pool is whole' "$novale" check "$pools/user/pool"
}

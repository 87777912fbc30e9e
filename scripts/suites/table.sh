#!/usr/bin/env bash
# Some 7,000 file system calls with good and bad arguments, whose answers and changes are those of
# tmpfs: through a mount, through a shared one, directly, and so by a link to a folder of it (linked), for
# root and for another user. What
# differs and is right is explained in a section of docs/DIRECT.md, `Calls that answer otherwise`, a
# row for each; all else fails, and so does a row that is not so (where all ways are run). `table.sh WAY...`
# runs some: mount, shared, direct, linked, user-shared, user-direct, user-linked.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$root/scripts/suites/table
ways=("$@")
[ $# -gt 0 ] || ways=(mount shared direct linked user-shared user-direct user-linked)
needs_mount table
needs_c table
# Users may mount where this one may, in a mount namespace of this suite's.
if [ "$(stat -c %a /dev/fuse)" != 666 ] && [ -z "${NOVALE_NAMESPACE:-}" ] && unshare -m true; then
  NOVALE_NAMESPACE=1 exec unshare -m --propagation private "$0" "$@"
fi

scratch
if [ "$(stat -fc %T "$pools")" != tmpfs ]; then
  tally skipped 1 'table: there is no tmpfs with room to compare with'
  exit
fi
if [ -n "${NOVALE_NAMESPACE:-}" ]; then
  mkdir "$mounts/dev"
  mount -t tmpfs -o mode=755,size=64k dev "$mounts/dev"
  mknod -m 666 "$mounts/dev/fuse" c 10 229 && mount --bind "$mounts/dev/fuse" /dev/fuse || true
fi
bin=$pools/bin
mkdir "$bin"
library=$(dirname "$novale")/libnovale_preload.so
[ -e "$library" ] || library=$(dirname "$novale")/deps/libnovale_preload.so
cp "$novale" "$library" "$bin"
novale=$bin/novale
cc -std=gnu2x -O1 -Wall -Wextra -Werror -o "$bin/table" "$here/table.c"
awk -F' [|] ' '/^## Calls that answer/ { on = 1; next } /^## / { on = 0 }
  on && /^[|] `/ { sub(/^[|] /, ""); print }' "$root/docs/DIRECT.md" >"$pools/explained"
export XDG_CACHE_HOME=$pools/cache LC_ALL=C
nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups env "HOME=$pools/user"
  "XDG_CACHE_HOME=$pools/user/cache")

rows() { # NAME DIR COMMAND...: the table's lines in a folder, which is made
  local name=$1 dir=$2
  shift 2
  "$@" mkdir -p "$dir" || return 1
  if [[ $name == *linked ]]; then
    "$@" ln -s "$dir" "$pools/user/to-$name" && dir=$pools/user/to-$name
  fi
  [ ${#run[@]} -gt 0 ] || run=("$@")
  "${run[@]}" "$bin/table" "$dir" >"$pools/$name" 2>"$pools/$name.errors" || {
    cat "$pools/$name.errors"
    return 1
  }
}

agree() { # WAY CONTROL: no difference that is not explained
  awk -v way="${1/linked/direct}" -f "$here/compare.awk" "$pools/explained" "$pools/$2" "$pools/$1" >"$pools/differences"
  cat "$pools/differences"
  sed -n 's/^explained: //p' "$pools/differences" >>"$pools/used"
  ! grep -q '^differs: ' "$pools/differences"
}

compared() { # WAY OPTIONS CONTROL USER...: by a mount of a new pool
  local way=$1 options=$2 control=$3 status=0
  run=()
  shift 3
  local dir=$mounts/$way pool=$pools/user/$way.pool
  "$@" mkdir "$dir" && "$@" "$novale" mkfs --size 64M "$pool" >/dev/null || return 1
  # shellcheck disable=SC2086
  "$@" "$novale" mount $options "$pool" "$dir" || return 1
  [[ $way != *direct && $way != *linked ]] || run=("$@" "$novale" run --strict --mount "$dir" --)
  rows "$way" "$dir/table" "$@" && agree "$way" "$control" || status=1
  await 10 "$@" "$novale" umount "$dir" && "$@" "$novale" check "$pool" >/dev/null || status=1
  return "$status"
}

run=()
: >"$pools/used"
mkdir "$pools/user"
chmod 1777 "$mounts" "$pools/user"
rows root-tmpfs "$pools/table" env || { tally failed 1 'table: on tmpfs' && exit 1; }
run=()
rows user-tmpfs "$pools/user/table" "${nobody[@]}" || { tally failed 1 'table: on tmpfs, a user' && exit 1; }
for way in "${ways[@]}"; do
  case $way in
  mount) check 'calls by a mount answer as on tmpfs' compared mount '' root-tmpfs env ;;
  shared) check 'calls by a shared mount answer as on tmpfs' compared shared '-o direct' root-tmpfs env ;;
  direct) check 'direct calls answer as on tmpfs' compared direct '-o direct' root-tmpfs env ;;
  linked)
    check 'direct calls by a link from elsewhere answer as on tmpfs' \
      compared linked '-o direct' root-tmpfs env
    ;;
  user-*)
    if ! need fusermount3 fuse3 || [ "$(stat -c %a /dev/fuse)" != 666 ]; then
      tally skipped 1 "table: $way: no user may mount here"
    else
      check "calls of a user answer as on tmpfs: ${way#user-}" \
        compared "$way" '-o direct' user-tmpfs "${nobody[@]}"
    fi
    ;;
  esac
done
all_used() { # all that docs/DIRECT.md explains was seen
  local missing
  missing=$(awk -F' [|] ' '{ print $1 }' "$pools/explained" | grep -vxFf "$pools/used") || true
  [ -z "$missing" ] || { printf 'explained, and not so:\n%s\n' "$missing" && return 1; }
}
[ $# -gt 0 ] || check 'what docs/DIRECT.md says of calls is so' all_used

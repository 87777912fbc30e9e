#!/usr/bin/env bash
# Extended attributes and ACLs through the tools that people use, on a mount and on one of the
# machine's own file systems: both must answer alike. With DIRECT=1 the tools run directly.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

needs_mount xattr
if ! { need setfattr attr && need setfacl acl && need setpriv util-linux; }; then
  tally skipped 1 'xattr: no attr or acl package'
  exit
fi
scratch
pool=$pools/pool
dir=$mounts/dir
mkdir "$dir"
"$novale" mkfs --size 128M "$pool"
"$novale" mount "$pool" "$dir"

way=() # how what works in the mount is started
if [ -n "${DIRECT:-}" ]; then
  "$novale" umount "$dir"
  "$novale" mount -o direct "$pool" "$dir"
  way=("$novale" run --strict --mount "$dir" --)
  export XDG_CACHE_HOME=$pools/cache
fi

# The reference: a folder whose file system has ACLs and attributes of all namespaces.
reference=
for place in "$target" "${TMPDIR:-/tmp}" /dev/shm; do
  folder=$(mktemp -d "$place/novale-reference.XXXXXX") || continue
  if touch "$folder/probe" && setfattr -n user.a -v 1 "$folder/probe" 2>/dev/null &&
    setfattr -n trusted.a -v 1 "$folder/probe" 2>/dev/null &&
    setfacl -m u:1:r "$folder/probe" 2>/dev/null; then
    rm "$folder/probe"
    reference=$folder
    break
  fi
  rm -rf "$folder"
done
end() {
  cd /
  [ -z "$reference" ] || rm -rf "$reference"
  leave
}
trap end EXIT
if [ -z "$reference" ]; then
  tally skipped 1 'xattr: no file system here has attributes and ACLs to compare with'
  exit
fi
chmod 755 "$reference"
printf 'reference: %s\n' "$(stat -f -c %T "$reference")"

as_user() { # UID GID GROUPS COMMAND...
  setpriv --reuid="$1" --regid="$2" --groups="$3" "${@:4}"
}
export -f as_user

answer() { # FOLDER SCRIPT [START...]: all that the script says in an empty folder there
  rm -rf "$1/work"
  mkdir "$1/work"
  (cd "$1/work" && umask 022 && "${@:3}" bash -c "$2" 2>&1 && echo "status $?" || echo "status $?")
}

same() { # WHAT SCRIPT
  local expected found
  expected=$(answer "$reference" "$2")
  found=$(answer "$dir" "$2" ${way[@]+"${way[@]}"})
  if [ "$expected" != "$found" ]; then
    diff <(printf '%s\n' "$expected") <(printf '%s\n' "$found") || true
  fi
  check "$1" [ "$expected" = "$found" ]
}

# --- attributes --------------------------------------------------------------------------------

same 'set, list and remove' '
  touch f && setfattr -n user.one -v 1 f && setfattr -n user.two -v 0xdead00beef f &&
  getfattr -d -m - f && setfattr -x user.one f && getfattr -d f && setfattr -x user.one f'
same 'on directories, links, pipes and devices' '
  mkdir d && ln -s d l && mkfifo p && mknod c c 1 3
  for file in d l p c; do
    setfattr -h -n user.a -v 1 "$file"; setfattr -h -n trusted.a -v 1 "$file"
    getfattr -h -d -m - "$file"
  done'
same 'no namespace, no name, names and values too long' '
  touch f
  setfattr -n nothing.a -v 1 f; setfattr -n user. -v 1 f; setfattr -n system.other -v 1 f
  setfattr -n "user.$(printf "%0250d" 0)" -v long f && getfattr -d f | wc -c
  setfattr -n "user.$(printf "%0251d" 0)" -v longer f'
same 'an unprivileged user' '
  touch f && chmod 666 f && setfattr -n trusted.a -v 1 f && setfattr -n user.a -v 2 f
  mkdir -m 1777 t && mkdir -m 777 d
  as_user 1000 1000 1000 getfattr -d -m - f
  for name in user.b trusted.b security.b; do as_user 1000 1000 1000 setfattr -n $name -v 3 f; done
  as_user 1000 1000 1000 setfattr -n user.a -v 4 t d
  chmod 600 f; as_user 1000 1000 1000 getfattr -n user.a f; as_user 1000 1000 1000 setfattr -x user.a f
  getfattr -d -m - f t d'
same 'times: ctime moves, mtime does not' '
  touch -d 2001-01-01 f && before=$(stat -c %Z f) && sleep 0.01 && setfattr -n user.a -v 1 f &&
  stat -c %Y f && [ "$(stat -c %.Z f)" != "$before" ]'
same 'a hard link shows the same' '
  touch f && ln f g && setfattr -n user.a -v 1 f && getfattr -d g && mv g h && getfattr -d h'
same 'file capabilities go with a write, a truncation, a new owner' '
  for change in "echo more >>f" "truncate -s 1 f" "chown 1000 f" "chgrp 1000 f" "chmod 700 f" "touch f"; do
    rm -f f && cp "$(type -P true)" f && setfattr -n user.a -v stays f &&
      setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 f
    getfattr -d -m - f; eval "$change"; getfattr -d -m - f
  done'

# --- access control lists ----------------------------------------------------------------------

same 'an ACL sets the mode, chmod changes the ACL' '
  touch f && setfacl -m u:1000:rwx,g:1001:r f && getfacl -n f && stat -c %a f &&
  chmod 640 f && getfacl -n f && setfacl -m m::rwx f && stat -c %a f && setfacl -b f &&
  getfacl -n f && stat -c %a f && setfacl -x u:5 f; getfattr -d -m - f'
same 'an ACL that the mode says is not kept' '
  touch f && setfacl --set u::rwx,g::r,o::- f && stat -c %a f && getfattr -d -m - f; getfacl -n f'
same 'a default ACL is inherited, and the umask is not asked' '
  mkdir d && setfacl -m d:u:1000:rwx,d:g::r-x,d:o::--- d && getfacl -n d
  for mask in 022 077 000; do
    umask $mask
    mkdir d/sub$mask; touch d/file$mask; mkfifo d/pipe$mask; ln -s x d/link$mask; mknod d/c$mask c 1 3
    cp "$(type -P true)" d/program$mask
  done
  getfacl -n d/*[0-7] 2>&1; stat -c "%n %a" d/*; mkdir -p d/sub022/deep; getfacl -n d/sub022/deep
  setfacl -k d; mkdir d/after; getfacl -n d d/after'
same 'without a default ACL the umask counts' '
  for mask in 022 077 027; do umask $mask; mkdir d$mask; touch f$mask; mkfifo p$mask; done
  stat -c "%n %a" *'
same 'a default ACL on a file, bad ACLs' '
  touch f && setfacl -m d:u:1:r f; setfattr -n system.posix_acl_access -v 0x0200 f
  setfattr -n system.posix_acl_access -v 0x03000000 f
  setfattr -n system.posix_acl_access -v 0x0200000001000600ffffffff f
  setfattr -n system.posix_acl_access -v 0x02000000 f; getfacl -n f; stat -c %a f'
same 'who is let in' '
  echo text >f && chmod 600 f && setfacl -m u:1000:r,g:1001:rw f
  mkdir d && echo inside >d/f && chmod 700 d && setfacl -m u:1002:x d
  as_user 1000 1000 1000 cat f; as_user 1000 1000 1000 sh -c "echo >>f"
  as_user 1001 1001 1001 sh -c "cat f; echo more >>f"; as_user 1003 1003 1003 cat f
  as_user 1003 1003 1003,1001 cat f; as_user 1003 1003 1003,1001 sh -c "echo again >>f"
  as_user 1002 1002 1002 cat d/f; as_user 1002 1002 1002 ls d; as_user 1000 1000 1000 cat d/f
  chmod 600 f; as_user 1000 1000 1000 cat f; as_user 1001 1001 1001 cat f
  setfacl -m m::r f; as_user 1000 1000 1000 cat f'
same 'who may change an ACL' '
  touch f && chown 1000 f && as_user 1000 1000 1000 setfacl -m u:1001:r f
  as_user 1001 1001 1001 setfacl -m u:1001:rwx f; getfacl -n f'
same 'set-gid and an ACL of a caller outside the group' '
  for groups in 1000 1000,1005; do
    rm -f f && touch f && chown 1000:1005 f && chmod 2755 f
    as_user 1000 1000 $groups setfacl -m u:1001:r f; stat -c %a f; getfacl -n f
  done
  rm f && touch f && chown 1000:1005 f && chmod 2755 f && setfacl -m u:1:r f && stat -c %a f'
same 'set-gid and sticky directories' '
  mkdir -m 2775 g && chgrp 1005 g && chown 1000 g && mkdir g/sub && touch g/f && mkfifo g/p
  umask 002; as_user 1000 1000 1000 mkdir g/own; as_user 1000 1000 1000 touch g/ownf
  as_user 1000 1000 1000 sh -c "touch g/x && chmod 2755 g/x; cp /bin/true g/program; chmod 2711 g/program"
  setfacl -m d:u:1001:rwx g; mkdir g/acl; touch g/aclf
  stat -c "%n %a %u %g" g g/* | sort
  mkdir -m 1777 t && touch t/root && as_user 1000 1000 1000 touch t/mine
  as_user 1001 1001 1001 rm -f t/mine; as_user 1001 1001 1001 mv t/mine t/yours
  as_user 1000 1000 1000 rm -f t/root; as_user 1000 1000 1000 mv t/mine t/moved; ls t'

if [ -n "${DIRECT:-}" ]; then
  "$novale" umount "$dir"
  check 'the pool is whole' "$novale" check "$pool"
  exit
fi

# --- copies there and back ---------------------------------------------------------------------

rich='
  mkdir -p tree/d && cd tree && echo text >f && ln -s f l && mkfifo p
  setfattr -n user.a -v "some value" f && setfattr -n user.long -v 0x'$(head -c 3000 /dev/urandom | od -An -tx1 -v | tr -d ' \n')' d
  setfattr -n trusted.b -v t f && setfacl -m u:1000:rwx,g:7:r f && setfacl -m d:u:1000:rx,u:9:x d
  chmod 640 f'
show() { # FOLDER: its attributes and ACLs in order
  (cd "$1" && find . | sort | while read -r file; do
    [ -L "$file" ] || getfacl -n "$file"
    getfattr -h -d -m - -e hex "$file"
    stat -c '%n %A %u %g' "$file"
  done)
}
equal() { diff <(show "$1") <(show "$2"); }

answer "$reference" "$rich" >/dev/null
rm -rf "$dir/work" && mkdir "$dir/work"
from=$reference/work/tree to=$dir/work
check 'cp -a' cp -a "$from" "$to/cp"
check 'keeps all' equal "$from" "$to/cp"
check 'tar there' sh -c "tar -C '$from' --xattrs --xattrs-include='*' --acls -cf '$pools/tar' . && mkdir '$to/tar' && tar -C '$to/tar' --xattrs --xattrs-include='*' --acls -xpf '$pools/tar'"
check 'keeps all' equal "$from" "$to/tar"
check 'tar back' sh -c "tar -C '$to/tar' --xattrs --xattrs-include='*' --acls -cf '$pools/tar' . && mkdir '$reference/work/back' && tar -C '$reference/work/back' --xattrs --xattrs-include='*' --acls -xpf '$pools/tar'"
check 'keeps all' equal "$from" "$reference/work/back"
if need rsync rsync; then
  check 'rsync -AX' rsync -aAX "$from/" "$to/rsync/"
  check 'keeps all' equal "$from" "$to/rsync"
else
  tally skipped 1 'xattr: no rsync'
fi

"$novale" umount "$dir"
check 'the pool is whole' "$novale" check "$pool"
"$novale" mount "$pool" "$dir"
check 'all of it is there after a remount' equal "$from" "$dir/work/cp"
setfattr -n user.late -v 1 "$dir/work/cp/f"
setfattr -n user.late -v 1 "$from/f"
kill_daemons "$pool"
"$novale" mount "$pool" "$dir"
check 'and after kill -9' equal "$from" "$dir/work/cp"
"$novale" umount "$dir"
check 'the recovered pool is whole' "$novale" check "$pool"

# --- mounted without -------------------------------------------------------------------------------

"$novale" mount "$pool" "$dir"
plain=$dir/plain
mkdir "$plain" && touch "$plain/f" && setfacl -m u:1000:rw "$plain/f" && setfacl -m d:u:1000:rwx "$plain"
setfattr -n user.kept -v 1 "$plain/f"
as_found=$(show "$plain")
"$novale" umount "$dir"
"$novale" mount -o noacl,nouser_xattr "$pool" "$dir"
unsupported() { # COMMAND...: fails, and says that there is no such thing here
  local said
  said=$("$@" 2>&1) && return 1
  grep -q 'not supported' <<<"$said"
}
check 'noacl: no ACL can be set' unsupported setfacl -m u:1000:r "$plain/f"
check 'noacl: none is shown' [ -z "$(getfacl -ns "$plain/f" "$plain")" ]
check 'noacl: who has rights by an ACL alone is not let in' sh -c "! setpriv --reuid=1000 --regid=1000 --clear-groups sh -c 'echo >>$plain/f' 2>/dev/null"
check 'noacl: nothing is inherited, and the umask counts' sh -c "umask 027 && mkdir '$plain/d' && [ \"\$(stat -c %a '$plain/d')\" = 750 ]"
check 'nouser_xattr: no attribute can be set' unsupported setfattr -n user.a -v 1 "$plain/f"
check 'nouser_xattr: none is shown' [ -z "$(getfattr -d -m - "$plain/f")" ]
check 'nouser_xattr: others are' setfattr -n trusted.a -v 1 "$plain/f"
setfattr -x trusted.a "$plain/f"
rmdir "$plain/d"
"$novale" umount "$dir"
"$novale" mount -o acl,user_xattr "$pool" "$dir"
check 'with both again all is as it was' [ "$(show "$plain" | grep -v '^\. ')" = "$(grep -v '^\. ' <<<"$as_found")" ]
"$novale" umount "$dir"

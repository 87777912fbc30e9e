#!/usr/bin/env bash
# A mount exported over NFS 4 on this machine by a server in user space (nfs-ganesha), which reaches
# files by their handles, and read by a client in user space (libnfs).
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

if ! reason=$(why_no_mount); then
  tally skipped 1 "nfs: $reason"
  exit
fi
if ! need ganesha.nfsd nfs-ganesha nfs-ganesha-vfs || ! need nfs-cat libnfs-utils; then
  tally skipped 1 'nfs: nfs-ganesha and libnfs-utils could not be installed'
  exit
fi

scratch
pool=$pools/pool
dir=$mounts/dir
port=22049
url=nfs://127.0.0.1/novale
mkdir "$dir" "$pools/state"
cat >"$pools/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 4; NFS_Port = $port; Enable_NLM = false; Enable_RQUOTA = false; }
NFSV4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = $pools/state; }
EXPORT {
  Export_Id = 77; Filesystem_Id = 77.1; Path = $dir; Pseudo = /novale;
  Access_Type = RO; Squash = No_Root_Squash; SecType = sys; FSAL { Name = VFS; }
}
END

server=
stop() {
  [ -n "$server" ] || return 0
  kill "$server" && await 10 gone "$server" || kill -9 "$server" || true
  wait "$server" 2>/dev/null || true
  server=
}
trap 'stop; leave' EXIT

nfs() { # PROGRAM PATH [OPTION...]
  timeout 20 "$1" "${@:3}" "$url/$2?version=4&nfsport=$port"
}
answers() { nfs nfs-ls '' >/dev/null 2>&1; }
start() {
  ganesha.nfsd -F -f "$pools/ganesha.conf" -L "$pools/ganesha.log" -p "$pools/ganesha.pid" \
    >"$pools/ganesha.out" 2>&1 &
  server=$!
  await 20 answers || { tail -n 20 "$pools/ganesha.log" && false; }
}
same_over_nfs() { # every file, by its name from the root
  local name
  while read -r name; do
    nfs nfs-cat "$name" >"$pools/read" && cmp "$dir/$name" "$pools/read" || return 1
  done < <(cd "$dir" && find . -type f -printf '%P\n')
}
listed_over_nfs() {
  [ "$(nfs nfs-ls '' -R | wc -l)" = "$(find "$dir" -mindepth 1 | wc -l)" ]
}

"$novale" mkfs --size 256M "$pool"
"$novale" mount "$pool" "$dir"
for ((n = 0; n < 40; n++)); do
  mkdir -p "$dir/$((n % 3))/$((n % 7))/deep"
  head -c $((n * 3001)) /dev/urandom >"$dir/$((n % 3))/$((n % 7))/deep/$n"
done
check 'a mount is exported over NFS' start
check 'its files are the same there' same_over_nfs
check 'its directories are listed whole' listed_over_nfs
# What the server knows are handles alone then: the kernel asks for inodes by number.
sync && echo 2 >/proc/sys/vm/drop_caches
check 'the same when the kernel has forgotten its inodes' same_over_nfs
mv "$dir/0/0/deep" "$dir/1/moved"
rm -r "$dir/2/1"
check 'after changes on the mount' same_over_nfs
stop
check 'umount when the server is gone' "$novale" umount "$dir"
check 'the pool is whole' "$novale" check "$pool"

#!/usr/bin/env bash
# A mount exported over NFS 4 on this machine by a server in user space (nfs-ganesha), which reaches
# files by their handles, and read and written by a client in user space (libnfs). What is written is
# written to a folder of tmpfs too, exported by the same server: both must answer alike.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

needs_mount nfs
# Its module for file systems is a package of its own: the server may be there without it.
has_module() { compgen -G '/usr/lib/*/ganesha/libfsalvfs.so' >/dev/null; }
if ! need ganesha.nfsd nfs-ganesha nfs-ganesha-vfs || ! need nfs-cat libnfs-utils ||
  ! { has_module || { install_packages nfs-ganesha-vfs && has_module; }; }; then
  tally skipped 1 'nfs: nfs-ganesha and libnfs-utils could not be installed'
  exit
fi

scratch
pool=$pools/pool
dir=$mounts/dir
port=22049
url=nfs://127.0.0.1/novale
plain=$pools/plain
mkdir "$dir" "$pools/state" "$plain"
cat >"$pools/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 4; NFS_Port = $port; Enable_NLM = false; Enable_RQUOTA = false; }
NFSV4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = $pools/state; }
EXPORT {
  Export_Id = 77; Filesystem_Id = 77.1; Path = $dir; Pseudo = /novale;
  Access_Type = RW; Squash = No_Root_Squash; SecType = sys; FSAL { Name = VFS; }
}
EXPORT {
  Export_Id = 78; Filesystem_Id = 78.1; Path = $plain; Pseudo = /plain;
  Access_Type = RW; Squash = No_Root_Squash; SecType = sys; FSAL { Name = VFS; }
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
  timeout 600 "$1" "${@:3}" "$url/$2?version=4&nfsport=$port"
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
rm -r "${dir:?}"/*
if need cc gcc libc6-dev && { [ -e /usr/include/nfsc/libnfs.h ] || install_packages libnfs-dev; } &&
  cc -O1 -o "$pools/writes" "$root/scripts/suites/nfs_writes.c" -lnfs; then
  writes() { # PSEUDO: what a client does there, and is answered
    timeout 600 "$pools/writes" "nfs://127.0.0.1/$1?version=4&nfsport=$port" >"$pools/$1.out" 2>&1 ||
      { cat "$pools/$1.out" && false; }
  }
  tree() { (cd "$1" && find . -printf '%p %y %m %n %U %l\n' | sort && find . -type f -exec md5sum {} + | sort); }
  check 'a client writes to tmpfs' writes plain
  check 'and to the mount' writes novale
  check 'it is answered alike: files, names, locks, refusals' diff "$pools/plain.out" "$pools/novale.out"
  check 'what it left is the same' diff <(tree "$plain") <(tree "$dir")
  check 'a lock that another has is refused' grep -q '^lock by another: refused' "$pools/novale.out"
  check 'one that nobody has is given' grep -q '^lock by a third: done' "$pools/novale.out"
  check 'what was written is read' grep -q '^/d/a: 400000 bytes' "$pools/novale.out"
else
  tally skipped 1 'nfs: no compiler, or no libnfs-dev'
fi
stop
check 'umount when the server is gone' "$novale" umount "$dir"
check 'the pool is whole' "$novale" check "$pool"

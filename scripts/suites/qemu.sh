#!/usr/bin/env bash
# Pools on DAX devices of a guest kernel under QEMU, whose power is cut: QEMU is killed under load. And
# memory that a kernel leaves to the next one, over kexec. What the workers in the guest have done they
# tell through a port as they do it; after each cut the pool must be as one of the last two lines says.
#   scripts/suites/qemu.sh [ROUNDS [SEED [KIND...]]]      (as root; 4, 1, all kinds; CI does not run it)
# What it needs beside QEMU it fetches from Debian: a kernel, busybox, ndctl, mkfs.ext4, kexec.
# NOVALE_ACCEL=kvm|tcg says how QEMU runs the guest; without it, kvm where a guest starts in 30 s.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"

here=$root/scripts/suites/qemu
rounds=${1:-4}
seed=${2:-1}
kinds=("${@:3}")
[ $# -gt 2 ] || kinds=(nvdimm-devdax nvdimm-ext4 virtio-ext4 virtio-devdax memmap-devdax memmap-ext4)
logs=$target/qemu # of each kind what the guests said, and what the workers told

for pair in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio ndctl:ndctl \
  mkfs.ext4:e2fsprogs kexec:kexec-tools cc:gcc strip:binutils dpkg-deb:dpkg; do
  if ! need "${pair%:*}" --no-install-recommends "${pair#*:}" libc6-dev; then
    tally skipped 1 "qemu: no ${pair%:*}"
    exit
  fi
done

# --- the kernel, and what the guest starts with ------------------------------------------------

fetch_kernel() { # below $tools/kernel, from Debian's package, which is not installed
  local package
  [ ! -e "$tools/kernel/boot" ] || return 0
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9]\)/\1/p')
  [ -n "$package" ] || return 1
  rm -rf "$tools/kernel"
  mkdir -p "$tools/kernel"
  (cd "$tools/kernel" && apt-get download -qq "$package" && dpkg-deb -x ./*.deb .) >/dev/null 2>&1
}

pack_program() { # PROGRAM TO: with the libraries that it names
  local library
  install -D "$1" "$image$2"
  while read -r library; do
    install -D "$library" "$image/lib/${library##*/}"
  done < <(ldd "$1" 2>/dev/null | grep -oE '/[^ ]+')
}

pack_modules() { # those of DAX, FUSE and virtio
  local version=${kernel##*/vmlinuz-} from to
  from=$tools/kernel/lib/modules/$version to=$image/lib/modules/$version
  mkdir -p "$to"
  cp "$from"/modules.builtin* "$from/modules.order" "$to"
  (cd "$from" && cp --parents kernel/drivers/{nvdimm,virtio}/*.ko kernel/drivers/dax/{,hmem/}*.ko \
    kernel/drivers/acpi/nfit/nfit.ko kernel/drivers/char/virtio_console.ko kernel/fs/fuse/fuse.ko "$to")
  busybox depmod -b "$image" "$version"
}

pack() {
  local loader=/lib64/ld-linux-x86-64.so.2
  mkdir -p "$image"/{bin,boot}
  install "$here/init" "$here/guest.sh" "$image"
  cp "$kernel" "$image/boot/vmlinuz"
  pack_modules
  cc -O1 -o "$image/bin/ledger" "$here/ledger.c"
  pack_program "$novale" /bin/novale
  pack_program "$(dirname "$novale")/libnovale_preload.so" /bin/libnovale_preload.so
  strip "$image/bin/novale" "$image/bin/libnovale_preload.so"
  pack_program "$(command -v ndctl)" /bin/ndctl
  pack_program "$(command -v mkfs.ext4)" /bin/mkfs.ext4
  pack_program "$(command -v kexec)" /bin/kexec
  pack_program "$(command -v cp)" /usr/bin/cp
  install -D "$(command -v busybox)" "$image/bin/busybox"
  ln -s busybox "$image/bin/sh"
  install -D "$loader" "$image$loader"
  (cd "$image" && find . | cpio -o -H newc --quiet | gzip -1) >"$pools/image"
}

# --- a guest -----------------------------------------------------------------------------------

job() { # KIND: packs what the guest is to do behind the image
  local memory=dax-device survives=true size='' then=load_until_cut
  case $1 in
    virtio-devdax) memory=virtio-pmem survives=false ;;
    virtio-ext4) memory=page-cache survives=false size='--size 256M' ;;
    memmap-devdax) memory=set-aside survives=false ;;
    memmap-ext4) memory=set-aside survives=false size='--size 256M' ;;
    *-ext4) memory=dax-file size='--size 256M' ;;
  esac
  [[ $1 != memmap-* ]] || then=load_until_kexec
  mkdir -p "$pools/job"
  printf "kind=%s memory=%s survives=%s size='%s' seed=%d rounds=%d then=%s\n" \
    "$1" "$memory" "$survives" "$size" "$seed" "$rounds" "$then" >"$pools/job/job"
  cp "$pools/image" "$pools/initrd"
  truncate -s %4 "$pools/initrd"
  (cd "$pools/job" && echo job | cpio -o -H newc --quiet) >>"$pools/initrd"
}

start() { # KIND ROUND: in the background; what it says goes to $console
  # The kernel takes regions of whole 16 MB; a DIMM's labels lie behind its own.
  local size=$((512 << 20)) append="console=ttyS0 panic=-1 quiet round=$2" machine
  machine=(-machine "pc,nvdimm=on,accel=$accel" -cpu max -smp 2)
  case $1 in
    nvdimm-*)
      size=$((size + (256 << 10)))
      machine+=(-device "nvdimm,id=dimm,memdev=memory,label-size=256K")
      ;;
    virtio-*) machine+=(-device "virtio-pmem-pci,id=dimm,memdev=memory") ;;
  esac
  if [[ $1 = memmap-* ]]; then
    append+=" memmap=$size!1G"
    machine+=(-m 2G)
  else
    machine+=(-m "1G,slots=2,maxmem=8G"
      -object "memory-backend-file,id=memory,share=on,mem-path=$pools/backing,size=$size")
  fi
  job "$1"
  [ ! -s "$console" ] || cat "$console" >>"$console.before"
  : >"$console"
  qemu-system-x86_64 "${machine[@]}" -display none -monitor none -no-reboot -nodefaults \
    -kernel "$kernel" -initrd "$pools/initrd" -append "$append" \
    -chardev "file,id=console,path=$console" -serial chardev:console \
    -device virtio-serial-pci -chardev "file,id=ledger,path=$ledger,append=on" \
    -device virtserialport,chardev=ledger >"$pools/qemu.log" 2>&1 &
  guest=$!
}

said() { grep -q "^@$1" "$console"; }
said_or_ended() { said "$1" || gone "$guest"; }

cut_power() {
  kill -9 "$guest" 2>/dev/null || true
  wait "$guest" 2>/dev/null || true
}

collect() { # WHAT: counts what the guest checked
  local result what
  while read -r result what; do
    tally "${result#@}" 1 "$1: $what"
    [ "$result" = @failed ] || printf 'ok: %s: %s\n' "$1" "$what"
  done < <(tr -d '\r' <"$console" | grep -E '^@(passed|failed) ')
  if said failed; then
    tail -n 60 "$console"
    return 1
  fi
}

starts_with_kvm() { # in half a minute
  local status=0
  accel=kvm
  console=$pools/kvm.console ledger=$pools/kvm.ledger
  start hello 0
  await 30 gone "$guest" || status=1
  cut_power
  accel=tcg
  [ "$status" = 0 ] && said hello
}

# --- the ledger --------------------------------------------------------------------------------
# Lines of it are "SEED NUMBER STEP". A worker's files must look as after the last step that it told, or
# as after the next one, which it had begun.

told() { # SEED STEPS: so many by workers on files, and some by the one that maps
  [ "$(grep -c "^$1 [0-3] " "$ledger")" -ge "$2" ] && [ "$(grep -c "^$1 4 " "$ledger")" -ge 2 ]
}
told_or_ended() { told "$@" || gone "$guest"; }

agrees() { # looks at what the guest found, each time that it did, and at what was told before
  awk -v first="$seed" '
    FNR == NR { if (NF == 3) last[$1 " " $2] = $3; next }
    /^@found / { found[$2 " " $3 " " $4 + 0] }
    /^@looked / {
      for (worker in last) {
        split(worker, of)
        if (of[1] >= first + $2) continue
        if (!((worker " " last[worker]) in found) && !((worker " " last[worker] + 1) in found)) {
          printf "seed and worker %s told step %d, and that is not what was found\n", worker, last[worker]
          wrong = 1
        }
        workers++
        steps += last[worker]
      }
      delete found
    }
    END {
      printf "%d workers, %d steps\n", workers, steps
      exit wrong || !workers
    }' "$ledger" <(tr -d '\r' <"$console")
}

# --- rounds ------------------------------------------------------------------------------------

fails() { # WHAT: the guest did not get there
  tally failed 1 "$1"
  tail -n 40 "$console" "$pools/qemu.log"
  cut_power
}

cut_in_load() { # KIND ROUND
  local steps=$((50 + RANDOM % 800))
  start "$1" "$2"
  if ! await 240 said_or_ended loading || ! await 240 told_or_ended $((seed + $2)) "$steps"; then
    fails "$1: round $2 comes to its load"
    return 1
  fi
  cut_power
  collect "$1"
}

cut_in_recovery() { # KIND ROUND
  start "$1" "$2"
  if ! await 240 said_or_ended mounting; then
    fails "$1: round $2 comes to its recovery"
    return 1
  fi
  sleep 0.$((RANDOM % 40 + 10))
  cut_power
}

look_back() { # KIND ROUND: no cut; the guest ends by itself
  start "$1" "$2"
  if ! await 600 gone "$guest"; then
    fails "$1: the guest ends"
    return 1
  fi
  wait "$guest" || true
  collect "$1" && said 'looked'
}

try() { # KIND
  local round
  RANDOM=$seed
  console=$logs/$1.console ledger=$logs/$1.ledger
  rm -f "$console"* "$ledger" "$pools/backing"
  touch "$ledger"
  if [[ $1 = memmap-* ]]; then
    look_back "$1" 0 || return 0
    check "$1: over $rounds kexecs what was told is there" agrees
    return
  fi
  for ((round = 0; round < rounds; round++)); do
    if [ $((round % 3)) = 2 ]; then
      cut_in_recovery "$1" "$round" || return 0
    fi
    cut_in_load "$1" "$round" || return 0
    [ "$round" = 0 ] || check "$1: after $round cuts what was told is there" agrees
  done
  look_back "$1" "$round" || return 0
  check "$1: after $round cuts what was told is there" agrees
}

if ! fetch_kernel; then
  tally skipped 1 'qemu: no kernel of linux-image-cloud-amd64 could be fetched'
  exit
fi
kernel=$(echo "$tools"/kernel/boot/vmlinuz-*)
scratch
guest=
end() {
  [ -z "$guest" ] || cut_power
  leave
}
trap end EXIT
image=$pools/root
mkdir -p "$logs"
pack

accel=${NOVALE_ACCEL:-}
if [ -z "$accel" ]; then
  accel=tcg
  [ ! -w /dev/kvm ] || ! starts_with_kvm || accel=kvm
fi
printf 'QEMU %s, kernel %s, %s, seed %d\n' "$(qemu-system-x86_64 --version | sed -n '1s/.*version //p')" \
  "${kernel##*/vmlinuz-}" "$accel" "$seed"
for kind in "${kinds[@]}"; do
  try "$kind"
done

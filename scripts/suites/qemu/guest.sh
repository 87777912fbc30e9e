# What jobs in the guest do. Lines that begin with @ are read by the host: @passed and @failed are
# counted, @loading and the like say how far the guest is.
# Sourced from init. The job sets the kind of slot and what it must be called, how many rounds there are,
# the first one's seed, and what comes after recovery; the kernel's command line has the round.
# shellcheck shell=sh disable=SC2154,SC2086

say() { echo "@$*"; }

off() {
  sync
  poweroff -f
  sleep 60
}

check() { # WHAT COMMAND...
  what=$1
  shift
  if "$@"; then
    say passed "$what"
  else
    say failed "$what"
    dmesg | tail -n 20
    off
  fi
}

modules() {
  for module in "$@"; do
    modprobe "$module" || echo "no module $module"
  done
}

await() { # SECONDS COMMAND...
  left=$(($1 * 20))
  shift
  until "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 1
    sleep 0.05
  done
}

refuses() { ! "$@"; }

# --- slots -------------------------------------------------------------------------------------

namespace() { # MODE ALIGNMENT: the region's memory as a namespace of that mode, if it is not one yet
  case $(ndctl list -N) in
    *"\"mode\":\"$1\""*) return 0 ;;
    *namespace0.0*) ndctl create-namespace -f -e namespace0.0 -m "$1" -a "$2" >/dev/null ;;
    *) ndctl create-namespace -m "$1" -a "$2" >/dev/null ;;
  esac
}

find_slot() { # sets slot, a DAX device or a file on ext4 with -o dax
  modules nfit virtio_pci virtio_pmem nd_e820 nd_pmem dax_pmem device_dax fuse virtio_console
  await 10 test -e /sys/bus/nd/devices/region0
  case $kind in
    *devdax)
      check 'a devdax namespace is there' namespace devdax 4K
      slot=/dev/dax0.0
      check 'its device is there' await 10 test -c "$slot"
      ;;
    *)
      check 'an fsdax namespace is there' namespace fsdax 2M
      check 'its device is there' await 10 test -b /dev/pmem0
      # A superblock of ext4 has its magic at 1080.
      [ "$(dd if=/dev/pmem0 bs=1 skip=1080 count=2 2>/dev/null | od -An -tx1)" = ' 53 ef' ] ||
        check 'ext4 is made on it' mkfs.ext4 -q -b 4096 /dev/pmem0
      mkdir -p /pmem
      check 'and mounted with -o dax' mount -t ext4 -o dax /dev/pmem0 /pmem
      slot=/pmem/pool
      ;;
  esac
}

memory_is() { # WORD SURVIVES: what `novale info` says of the slot
  novale info --json "$slot" >/tmp/info || return 1
  grep -q "\"memory\": \"$1\"" /tmp/info && grep -q "\"survives_power_cuts\": $2" /tmp/info && return
  cat /tmp/info
  return 1
}

# --- a pool in it ------------------------------------------------------------------------------

first_use() { # makes the pool, and uses it as a user would
  if [ "$kind" = virtio-ext4 ]; then
    # Without MAP_SYNC ext4 forgets in a crash which blocks have been stored to for the first time, as
    # `novale info` says of a file in the page cache: they are written before.
    check 'its blocks are written' dd if=/dev/zero of="$slot" bs=1M count=256
    sync
    size=--force
  fi
  check 'mkfs makes a pool there' novale mkfs $size "$slot"
  check "info says that it is $memory and survives power cuts: $survives" memory_is "$memory" "$survives"
  check 'it is mounted' novale mount -o direct "$slot" /mnt
  check 'a program copies to it directly' novale run --strict /usr/bin/cp /bin/novale /mnt/direct
  check 'another through the mount' cp /bin/novale /mnt/plain
  check 'both copies are right' same_copies
}

same_copies() { cmp /bin/novale /mnt/direct && cmp /bin/novale /mnt/plain; }

recover() { # what the last cut left
  check 'the pool that was cut off is whole' novale check "$slot"
  say mounting
  check 'it is mounted' novale mount -o direct "$slot" /mnt
  check 'what was there before is there' same_copies
  past=0
  while [ "$past" -lt "$round" ]; do
    for worker in 0 1 2 3; do
      ledger look /mnt/"$past" $((seed + past)) "$worker" 30000
    done
    ledger mapped /mnt/"$past" $((seed + past)) 4
    past=$((past + 1))
  done
  check 'it is unmounted' novale umount /mnt
  check 'it is whole' novale check "$slot"
  say looked "$round"
  check 'it is mounted again' novale mount -o direct "$slot" /mnt
}

load() { # until the power is cut: two workers through the mount, two served directly, one that maps
  mkdir /mnt/"$round"
  number=$((seed + round))
  exec 3>"$(echo /dev/vport*p1)"
  ledger work /mnt/"$round" "$number" 0 2 3 &
  novale run --strict ledger work /mnt/"$round" "$number" 2 2 3 &
  novale run --strict --map=dax ledger map /mnt/"$round" "$number" 4 3 &
  say loading
}

load_until_cut() {
  load
  wait
  check 'the load goes on' false
}

main() {
  say hello
  [ "$kind" != hello ] || off
  find_slot
  if [ "$round" = 0 ]; then
    first_use
  else
    recover
  fi
  [ "$round" -lt "$rounds" ] && "$then"
  check 'it is unmounted at the end' novale umount /mnt
  off
}

# --- the same over a kexec ---------------------------------------------------------------------

load_next_kernel() {
  (cd / && find . -xdev | cpio -o -H newc >/tmp/initrd) 2>/dev/null
  kexec -l /boot/vmlinuz --initrd=/tmp/initrd \
    --append="$(sed 's/ round=[0-9]*//' /proc/cmdline) round=$((round + 1))"
}

load_until_kexec() { # another kernel takes this one's place as it is, under load
  check 'the next kernel is loaded' load_next_kernel
  load
  sleep 3
  kexec -e
  check 'the next kernel starts' false
}

# Programs that make, copy, pack and compare trees of files; python, java and fio, which use files in
# all ways there are. Sourced by direct.sh.
# shellcheck shell=bash disable=SC2154

make_tree() { # DIR: files of many sizes, links of both kinds, a hole, modes, times
  local n
  mkdir -p "$1"
  for ((n = 0; n < 60; n++)); do
    mkdir -p "$1/$((n % 3))/$((n % 7))"
    head -c $((n * n * 29)) /dev/urandom >"$1/$((n % 3))/$((n % 7))/$n"
  done
  truncate -s 3M "$1/hole"
  printf end >>"$1/hole"
  ln "$1/hole" "$1/0/linked"
  ln -s ../0/linked "$1/1/symbolic"
  ln -s /nowhere "$1/dangling"
  chmod 750 "$1/1"
  chmod 4711 "$1/2/2/2"
  touch -d '2001-02-03 04:05:06.789' "$1/2/0"
}

listing() { # DIR: all that stat tells and that does not depend on the file system
  (cd "$1" && find . -printf '%P %y %m %n %U %G %T@ %l %y' -a \( -type f -printf ' %s' -o -true \) \
    -printf '\n' | sort)
}

same_tree() { # A B
  diff -r --no-dereference "$1" "$2" && diff <(listing "$1") <(listing "$2")
}

copied() { # NAME COMMAND...: makes $dir/NAME a copy of the tree, seen the same through the mount
  local to=$dir/$1
  shift
  "$@" || { tail -n 20 "$pools/errors" && return 1; }
  same_tree "$plain/tree" "$to"
}

tar_out_and_in() {
  direct tar --format=posix -C "$dir/cp" -cf "$dir/tree.tar" . && mkdir "$dir/tar" &&
    direct tar -C "$dir/tar" -xpf "$dir/tree.tar"
}

tar_killed() { # in the middle of an archive: what was taken out before is whole, and the rest follows
  local archive=$pools/tree.tar half feeder
  tar --format=posix -C "$plain/tree" -S -cf "$archive" . && mkdir "$dir/torn" && mkfifo "$pools/half" || return 1
  half=$(($(stat -c %s "$archive") / 2))
  { head -c "$half" "$archive" && exec sleep 60; } >"$pools/half" &
  feeder=$!
  begin_all tar -C "$dir/torn" -xpf "$pools/half"
  await 30 files_in "$dir/torn" 5 && crash_all || return 1
  kill "$feeder" && { wait "$feeder" || true; } 2>/dev/null
  # The last one may have been in the middle.
  [ "$(tar -C "$dir/torn" --compare -f "$archive" 2>&1 | grep -c 'Contents differ\|Size differs')" -le 1 ] &&
    direct tar -C "$dir/torn" -xpf "$archive" && same_tree "$plain/tree" "$dir/torn"
}

rsync_killed() {
  begin_all rsync -aH --bwlimit=400 "$plain/tree/" "$dir/synced/"
  await 30 files_in "$dir/synced" 20 && crash_all || return 1
  direct rsync -aHc --delete "$plain/tree/" "$dir/synced/" && same_tree "$plain/tree" "$dir/synced"
}

files_in() { # DIR COUNT: so many, or more
  [ "$(find "$1" -type f 2>/dev/null | wc -l)" -ge "$2" ]
}

found_the_same() {
  local found=(find . -newermt 2001-01-01 -size -100k -type f -links 1)
  diff <(cd "$plain/tree" && "${found[@]}" | sort) <(cd "$dir/cp" && direct "${found[@]}" | sort) &&
    direct diff -r --no-dereference "$plain/tree" "$dir/tar"
}

part_copies() {
  make_tree "$plain/tree"
  # rsync leaves the times of links and directories alone where they differ by less than a second.
  find "$plain/tree" -depth -exec touch -h -d '2020-02-02 02:02:02.5' {} +
  check 'cp -a' copied cp direct cp -a "$plain/tree" "$dir/cp"
  check 'tar, out and in again' copied tar tar_out_and_in
  check 'mv within the mount' copied moved direct mv "$dir/tar" "$dir/moved"
  mv "$dir/moved" "$dir/tar"
  check 'find and diff' found_the_same
  need pgrep procps && check 'tar, killed, and again' tar_killed
  if need rsync rsync; then
    check 'rsync' copied rsync direct rsync -aH "$plain/tree/" "$dir/rsync/"
    check 'rsync again, which changes nothing' \
      copied rsync direct rsync -aHc --delete "$dir/cp/" "$dir/rsync/"
    need pgrep procps && check 'rsync, killed, and again' rsync_killed
  else
    missing rsync rsync
  fi
  check 'rm -r' direct rm -r "$dir/cp" "$dir/tar" "$dir/rsync"
}

# What the interpreter's own tests need is in another package, and takes minutes: a task of our own.
part_python() {
  need_python || { missing python python3 && return; }
  mkdir "$dir/python" "$plain/python"
  python_agrees() {
    (cd "$plain/python" && python3 "$here/task.py" >"$pools/python.plain") &&
      (cd "$dir/python" && direct python3 "$here/task.py" >"$pools/python.direct") &&
      diff "$pools/python.plain" "$pools/python.direct" && [ -s "$pools/python.plain" ] ||
      { tail -n 20 "$pools/errors" && return 1; }
  }
  check 'python: os, shutil, tempfile, mmap, subprocess' python_agrees
  check 'python: a file replaced again and again, killed' python_killed
}

python_killed() {
  local round
  for round in 1 2 3; do
    : >"$pools/replaced"
    rm -rf "$dir/replaced"
    begin python3 "$here/replaced.py" "$dir/replaced" >"$pools/replaced"
    await 30 lines "$pools/replaced" $((100 * round)) && crash &&
      direct python3 "$here/replaced.py" "$dir/replaced" "$(tail -n 1 "$pools/replaced")" &&
      python3 "$here/replaced.py" "$dir/replaced" "$(tail -n 1 "$pools/replaced")" || return 1
  done
}

java_killed() { # every record that was forced is there, and whole
  local round last
  for round in 1 2; do
    : >"$pools/records"
    begin java -XX:TieredStopAtLevel=1 "$here/Records.java" "$dir/records" >"$pools/records"
    await 30 lines "$pools/records" 200 && crash || return 1
    last=$(tail -n 1 "$pools/records")
    python3 - "$dir/records" "$last" <<'PYTHON' || return 1
import sys
found = open(sys.argv[1], "rb").read()
records = [found[at:at + 100] for at in range(0, len(found), 100)]
assert len(found) % 100 == 0 and len(records) in (int(sys.argv[2]) + 1, int(sys.argv[2]) + 2), len(found)
assert all(record == bytes([97 + n % 26]) * 100 for n, record in enumerate(records))
PYTHON
  done
}

part_java() {
  need javac default-jdk-headless || { missing java default-jdk-headless && return; }
  mkdir "$dir/java" "$plain/java"
  java_agrees() {
    (cd "$plain/java" && java -XX:TieredStopAtLevel=1 "$here/Task.java" >"$pools/java.plain") &&
      (cd "$dir/java" && direct java -XX:TieredStopAtLevel=1 "$here/Task.java" >"$pools/java.direct") &&
      diff "$pools/java.plain" "$pools/java.direct" && [ -s "$pools/java.plain" ] ||
      { tail -n 20 "$pools/errors" && return 1; }
  }
  check 'java: compiled, and java.nio with mapped files' java_agrees
  need_python && check 'java: records forced, killed' java_killed
}

fio_verifies() { # ENGINE [OPTION...]
  direct fio --name="$1" --ioengine="$1" --directory="$dir/fio" --size=2M --bsrange=512-64k \
    --blockalign=512 --rw=randrw --verify=crc32c --verify_fatal=1 --do_verify=1 --numjobs=2 \
    --verify_state_save=0 --output="$pools/fio.log" "${@:2}" || { tail -n 20 "$pools/fio.log" && return 1; }
}

fio_killed() { # ENGINE: what was appended before is right, by the sums that are in it
  local file=$dir/fio/killed-$1 size
  local job=(--name=killed --ioengine="$1" --filename="$file" --bs=8k --verify=crc32c --numjobs=1
    --fallocate=none --output="$pools/fio.log")
  begin fio "${job[@]}" --thread --rw=write --size=1G --rate=30m --do_verify=0 --verify_state_save=0
  await 30 larger "$file" 1000000 && crash || return 1
  size=$(($(stat -c %s "$file") / 8192 * 8192))
  direct fio "${job[@]}" --rw=read --size="$size" && fio "${job[@]}" --rw=read --size="$size" ||
    { tail -n 20 "$pools/fio.log" && return 1; }
  rm "$file"
}

larger() { # FILE BYTES
  [ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -gt "$2" ]
}

part_fio() {
  need fio fio || { missing fio fio && return; }
  mkdir "$dir/fio"
  local engine
  for engine in psync pvsync2 mmap io_uring libaio; do
    check "fio $engine, verified" fio_verifies "$engine"
  done
  check 'fio psync with threads, appended and synchronous' \
    fio_verifies psync --thread --fsync=4 --sync=1 --fallocate=none
  for engine in psync pvsync2 io_uring libaio; do
    check "fio $engine, killed, and what it wrote verified" fio_killed "$engine"
  done
  rm -r "$dir/fio"
}

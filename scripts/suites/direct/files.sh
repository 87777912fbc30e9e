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
  if need rsync rsync; then
    check 'rsync' copied rsync direct rsync -aH "$plain/tree/" "$dir/rsync/"
    check 'rsync again, which changes nothing' \
      copied rsync direct rsync -aHc --delete "$dir/cp/" "$dir/rsync/"
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
}

fio_verifies() { # ENGINE [OPTION...]
  direct fio --name="$1" --ioengine="$1" --directory="$dir/fio" --size=2M --bsrange=512-64k \
    --blockalign=512 --rw=randrw --verify=crc32c --verify_fatal=1 --do_verify=1 --numjobs=2 \
    --verify_state_save=0 --output="$pools/fio.log" "${@:2}" || { tail -n 20 "$pools/fio.log" && return 1; }
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
  rm -r "$dir/fio"
}

# The conformance suite pjdfstest, the comparison of attributes and ACLs, and the exerciser fsx, as
# programs that run directly. Sourced by direct.sh.
# shellcheck shell=bash disable=SC2154

# A case that mounts something leaves the rest of its run to the kernel: so each part has one.
pjdfstest_parts=(chmod chown ftruncate link mkdir mkfifo mknod open posix_fallocate rename rmdir
  symlink truncate unlink utimensat)
# As many cases as these parts have, those that two of them match counted twice, but for some that ask
# for what a machine may not have.
pjdfstest_cases=450

part_pjdfstest() {
  local program group log=$target/test/pjdfstest-direct.log
  if ! need setfacl acl || ! { [ -e /usr/include/sys/acl.h ] || install_packages libacl1-dev; } ||
    ! program=$(cargo_tool pjdfstest 0.2.2); then
    tally skipped 1 'direct: pjdfstest could not be installed'
    return 0
  fi
  mkdir -p "$target/test" "$dir/pjdfstest" "$plain/other"
  : >"$log"
  for group in "${pjdfstest_parts[@]}"; do
    NO_COLOR=1 direct "$program" -c "$root/scripts/suites/pjdfstest.toml" -p "$dir/pjdfstest" \
      -s "$plain/other" "$group" >>"$log" 2>>"$pools/errors" || true
  done
  check 'pjdfstest: no case fails' no_case_fails "$log"
  rm -rf "$dir/pjdfstest"
}

no_case_fails() { # LOG
  local passed
  ! grep 'FAILED$' "$1" || return 1
  passed=$(grep -c ' ok$' "$1")
  echo "$passed cases passed"
  [ "$passed" -ge "$pjdfstest_cases" ]
}

part_acls() {
  DIRECT=1 NOVALE=$novale "$root/scripts/suites/xattr.sh"
}

part_fsx() {
  local program
  if ! program=$(cargo_tool fsx 0.3.2); then
    tally skipped 1 'direct: fsx could not be installed'
    return 0
  fi
  mkdir -p "$target/test/fsx"
  check 'fsx: 20,000 operations' direct "$program" -q -N 20000 -S 1 \
    -f "$root/scripts/suites/fsx.toml" -P "$target/test/fsx" "$dir/fsx"
}

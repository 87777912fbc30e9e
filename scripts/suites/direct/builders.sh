# git, and compilers at work. Sourced by direct.sh.
# shellcheck shell=bash disable=SC2154

first_commits() { # DIR
  git init -q -b main "$1" && cd "$1" || return 1
  git config user.name test
  git config user.email test@localhost
  local n
  for ((n = 0; n < 150; n++)); do
    mkdir -p "$((n % 5))"
    seq $((n * 7)) >"$((n % 5))/$n"
  done
  git add . && git commit -q -m first
  for ((n = 0; n < 5; n++)); do
    echo more >>"$n/$n" && git commit -q -a -m "$n"
  done
}

works_on_clone() { # clone, switch, merge, gc: what a day brings
  local git=(direct git -c user.name=test -c user.email=test@localhost)
  (cd "$dir/git" && "${git[@]}" switch -q -c side && direct git mv 0/5 renamed &&
    echo side >new && direct git add new && "${git[@]}" commit -q -a -m side &&
    "${git[@]}" switch -q main && echo main >other && direct git add other &&
    "${git[@]}" commit -q -m main && "${git[@]}" merge -q --no-edit side &&
    direct git stash list && direct git gc -q --aggressive --prune=now && direct git fsck --full --strict)
}

# Commits without end, a collection at each seventh: the number of each once it is made.
git_loop='cd "$0" && for ((n = $1; ; n++)); do
  echo "$n" >"file$((n % 5))" && git add . && git commit -q -m "$n" && echo "$n" || exit
  ((n % 7)) || git gc -q --prune=now
done'

git_killed() { # what was committed is there; git's own check finds nothing
  local git=(git -C "$dir/loop" -c user.name=test -c user.email=test@localhost) round last=0 found
  "${git[0]}" init -q -b main "$dir/loop" && "${git[@]}" config user.name test &&
    "${git[@]}" config user.email test@localhost || return 1
  for round in 1 2 3; do
    : >"$pools/commits"
    begin_all bash -c "$git_loop" "$dir/loop" $((last + 1)) >"$pools/commits"
    await 60 lines "$pools/commits" $((7 + round * 4)) && crash_all || return 1
    last=$(tail -n 1 "$pools/commits")
    # What a git that died had locked is the user's to remove.
    find "$dir/loop/.git" -name '*.lock' -delete
    direct git -C "$dir/loop" fsck --full --strict 2>&1 | grep -vE '^(dangling|notice)' && return 1
    git -C "$dir/loop" fsck --full --strict >/dev/null 2>&1 || return 1
    found=$("${git[@]}" log -1 --format=%s)
    [ "$found" -ge "$last" ] && [ "$found" -le $((last + 1)) ] &&
      [ "$("${git[@]}" rev-list --count HEAD)" = "$found" ] || { echo "committed: $last, there: $found" && return 1; }
    last=$found
  done
}

git_is_same() { # as git itself sees it through the mount, without direct access
  (cd "$dir/git" && [ -z "$(git status --porcelain)" ] && git fsck --full --strict &&
    git diff --stat HEAD origin/main | tail -n 1 | grep -q '3 files changed' &&
    [ "$(git rev-list --count HEAD)" = 9 ] && git log -p origin/main | cmp - "$pools/git.log")
}

part_git() {
  need git git || { missing git git && return; }
  (first_commits "$plain/git" && git log -p main >"$pools/git.log")
  export GIT_CONFIG_GLOBAL=$pools/gitconfig
  git config --global --add safe.directory '*'
  check 'git clone' direct git clone -q "$plain/git" "$dir/git"
  check 'git: commits, a merge, gc and fsck' works_on_clone
  check 'git: the mount shows the same repository' git_is_same
  need pgrep procps && check 'git: commits and collections, killed, three times' git_killed
}

make_sources() { # DIR: 50 functions in files of their own, a library of them, a program
  mkdir -p "$1" && cd "$1" || return 1
  local n
  for ((n = 0; n < 50; n++)); do
    printf '#include "all.h"\n#include <stdio.h>\n#include <stdlib.h>\nlong f%d(long x) { return x * %d + %d; }\n' \
      "$n" $((n % 5 + 1)) "$n" >"f$n.c"
    printf 'long f%d(long x);\n' "$n" >>all.h
    printf '  x = f%d(x) %% 1000003;\n' "$n" >>calls
  done
  { echo '#include "all.h"' && echo '#include <stdio.h>' && echo 'int main(void) { long x = 1;' &&
    cat calls && echo '  printf("%ld\n", x); return 0; }'; } >main.c
  cat >Makefile <<'MAKE'
objects := $(patsubst %.c,%.o,$(wildcard f*.c))
program: main.o libf.a
	$(CC) -o $@ main.o -L. -lf
libf.a: $(objects)
	$(AR) rcs $@ $^
%.o: %.c all.h
	$(CC) -pipe -O1 -g -MMD -c -o $@ $<
MAKE
}

built() { # COMMAND...: builds in both places; the programs say the same, and their code is the same
  (make_sources "$plain/c" && make -s -j2) && (make_sources "$dir/c" && direct make -s -j4) ||
    { tail -n 20 "$pools/errors" && return 1; }
  [ "$("$dir/c/program")" = "$("$plain/c/program")" ] &&
    [ "$(direct "$dir/c/program")" = "$("$plain/c/program")" ] &&
    cmp <(cd "$plain/c" && objcopy -O binary -j .text program /dev/stdout) \
      <(cd "$dir/c" && objcopy -O binary -j .text program /dev/stdout) &&
    (cd "$dir/c" && [ -z "$(direct make -s -j4)" ])
}

build_killed() { # a compiler that is killed leaves no object under its name; make goes on from there
  local round
  (make_sources "$dir/killed" && sed -i 's/-o \$@ \$</-o $@.new $< \&\& mv $@.new $@/' Makefile)
  for round in 1 2; do
    begin_all make -s -j2 -C "$dir/killed"
    await 60 objects_in "$dir/killed" $((round * 15)) && crash_all || return 1
  done
  direct make -s -j4 -C "$dir/killed" && [ "$("$dir/killed/program")" = "$("$plain/c/program")" ]
}

objects_in() { # DIR COUNT
  [ "$(find "$1" -name '*.o' | wc -l)" -ge "$2" ]
}

part_compiler() {
  need make make || { missing compiler make && return; }
  check 'gcc: 51 files with make -j4' built
  need pgrep procps && check 'gcc: make killed, twice, and again' build_killed
}

make_crate() { # DIR
  mkdir -p "$1/src" "$1/tests" && cd "$1" || return 1
  printf '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' >Cargo.toml
  printf 'pub mod sum;\npub use sum::sum;\n' >src/lib.rs
  printf '/// Adds up.\npub fn sum(all: &[u64]) -> u64 {\n    all.iter().sum()\n}\n' >src/sum.rs
  printf 'fn main() {\n    println!("{}", tiny::sum(&[1, 2, 39]));\n}\n' >src/main.rs
  printf '#[test]\nfn adds() {\n    assert_eq!(tiny::sum(&[2, 2]), 4);\n}\n' >tests/adds.rs
}

crate_builds() {
  (make_crate "$dir/crate" && direct cargo build --quiet --offline &&
    [ "$(target/debug/tiny)" = 42 ] && [ "$(direct target/debug/tiny)" = 42 ] &&
    direct cargo test --quiet --offline --test adds >"$pools/cargo.log" &&
    grep -q '1 passed' "$pools/cargo.log" &&
    [[ $(cargo build --offline 2>&1) != *Compiling* ]]) || { tail -n 20 "$pools/errors" && return 1; }
}

part_cargo() {
  check 'cargo: a crate built and tested, incrementally' crate_builds
}

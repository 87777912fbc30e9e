//! `novale mount -o remount`: the flags of a mount changed, and what can't be changed said.

use std::path::Path;

use anyhow::{Result, bail};
use novale_fuse::{MountOptions, find, remount};

use crate::base::args::MountArgs;
use crate::base::out::shown_path;
use crate::base::words::{QUIET, Words, spelled};
use crate::holders::ask;
use crate::holders::facts::Facts;

/// Changes the mount at `target` by the words of `-o`, on top of the options that it has.
pub(crate) fn run(args: &MountArgs, words: &Words, target: &Path) -> Result<()> {
    if let Some(flag) = flag_of_a_mount(args) {
        bail!("{flag} applies only when a pool is mounted: unmount it first");
    }
    let entry = find(target)?;
    let mut now = MountOptions::parse_sloppy(&entry.options)?;
    // It is of the whole file system, and goes with a remount that does not ask for it.
    now.sync = entry.is_sync();
    let mut options = now.with(&words.mount)?;
    let shown = shown_path(&entry.target);
    // One that does not answer is remounted all the same: the flags are the kernel's.
    if let Some(facts) = ask::ask(&entry, ask::ANSWER_MAX).unwrap_or_default().facts {
        if facts.read_only && !options.read_only {
            bail!(
                "{shown}: the pool was opened read-only: unmount it, and mount it for writing \
                 (novale umount {shown}; novale mount {} {shown})",
                facts.slots.join(" ")
            );
        }
        cannot_change(&entry.target, &for_the_next_mount(words, &facts));
    }
    // What is not asked for stays; the daemon reads the mount's flags.
    options.atime = words.options.atime.or(Some(entry.atime()));
    remount(&options, &entry)?;
    Ok(())
}

/// The words that ask for something else than the daemon was started with. fstab's come along with
/// every remount, so those are no mistake.
pub(crate) fn for_the_next_mount(words: &Words, facts: &Facts) -> Vec<String> {
    let asked = &words.options;
    let is_new = |word: &&String| *word != QUIET && !facts.daemon_words.contains(&spelled(word));
    let mut late: Vec<String> = words.daemon.iter().filter(is_new).cloned().collect();
    let attributes = asked.attribute_words(true).into_iter().map(str::to_owned);
    late.extend(attributes.filter(|word| is_new(&word)));
    if let Some(threads) = asked.threads
        && threads != facts.threads
    {
        late.push(format!("threads={threads}"));
    }
    if let Some(seconds) = asked.grace_seconds
        && seconds != facts.grace_seconds
    {
        late.push(format!("grace={seconds}"));
    }
    late
}

/// Says which words have no effect on a pool that is mounted.
pub(crate) fn cannot_change(target: &Path, late: &[String]) {
    if !late.is_empty() {
        remark!(
            "novale: {}: {} can't be changed while mounted: unmount it, and mount it so",
            shown_path(target),
            late.join(" and ")
        );
    }
}

/// An argument that says how a pool is to be mounted.
fn flag_of_a_mount(args: &MountArgs) -> Option<&'static str> {
    let given = [
        ("--foreground", args.foreground),
        ("--grace", args.grace.is_some()),
        ("--threads", args.threads.is_some()),
        ("--form", args.form.is_some()),
        ("--method", args.method.is_some()),
        ("--placement", args.placement.is_some()),
        ("--lawn-slot", args.lawn_slot.is_some()),
        ("--mode", args.mode.is_some()),
        ("--buffer", args.buffer.is_some()),
        ("what the buffer goes by", !args.buffer_rules.words().is_empty()),
        ("--map", args.map.is_some()),
        ("--populate", args.populate),
        ("--direct", args.direct),
        ("--arena-max", args.arena_max.is_some()),
        ("--index-memory", args.index_memory.is_some()),
        ("--pace", args.pace.is_some()),
        ("--cold-after", args.cold_after.is_some()),
        ("--log", args.log.is_some()),
    ];
    given.into_iter().find_map(|(flag, given)| given.then_some(flag))
}

#[cfg(test)]
mod tests {
    use super::for_the_next_mount;
    use crate::base::words::Words;
    use crate::holders::facts::Facts;

    #[test]
    fn only_what_differs_from_the_running_daemon_is_named() {
        let facts = Facts {
            threads: 8,
            grace_seconds: 10,
            daemon_words: [
                "form=auto",
                "method=auto",
                "log=/var/log/novale",
                "arena_max=2147483648",
                "acl",
                "nouser_xattr",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Facts::default()
        };
        let late = |words: &str| for_the_next_mount(&Words::parse(words).unwrap(), &facts);
        assert!(late("remount,ro,noatime,threads=8,log=/var/log/novale,grace=10").is_empty());
        assert!(late("remount,form=auto,arena_max=2G").is_empty());
        assert_eq!(late("remount,log=/tmp/log,rw"), ["log=/tmp/log"]);
        assert_eq!(late("remount,relatime,threads=4"), ["threads=4"]);
        assert_eq!(late("remount,grace=0"), ["grace=0"]);
        assert!(late("remount,acl,nouser_xattr").is_empty());
        assert_eq!(late("remount,noacl"), ["noacl"]);
    }
}

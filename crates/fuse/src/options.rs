//! The words after `-o`: applied, known to be needless, or refused by name.

use rustix::mount::MountFlags;

use crate::Atime;

/// An option word that stands for nothing here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownOption {
    /// A word of no meaning to Novale, mount(8) or FUSE.
    #[error("unknown mount option '{0}'")]
    Word(String),
    /// A known word with a value that it can't have.
    #[error("mount option '{word}': {wanted}")]
    Value {
        /// The whole word as given.
        word: String,
        /// What it takes.
        wanted: &'static str,
    },
}

/// What `-o` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a mount option of its own")]
pub struct MountOptions {
    /// `ro`.
    pub read_only: bool,
    /// `remount`: change a mount that is there.
    pub remount: bool,
    /// `allow_other`, or `None` when not said: root's mounts then serve everybody.
    pub allow_other: Option<bool>,
    /// `noatime`, `relatime`, `strictatime`; `None` when not said.
    pub atime: Option<Atime>,
    /// `nosuid`: set-id bits have no effect.
    pub nosuid: bool,
    /// `nodev`: devices can't be opened.
    pub nodev: bool,
    /// `noexec`: nothing can be executed.
    pub noexec: bool,
    /// `nosymfollow`: symbolic links are not followed.
    pub nosymfollow: bool,
    /// `acl` and `noacl`: access control lists count and can be set; `None` when not said: they do.
    pub acl: Option<bool>,
    /// `user_xattr` and `nouser_xattr`: there are attributes of users; `None` when not said: there are.
    pub user_xattr: Option<bool>,
    /// `sync`: every write is durable when it returns, in mode buffered too.
    pub sync: bool,
    /// `threads=`: how many serve.
    pub threads: Option<usize>,
    /// `grace=`: seconds that open files have at the end.
    pub grace_seconds: Option<u64>,
}

/// Words that ask for what is so in any case, or that mount(8) and fstab keep to themselves.
///
/// `dirsync`: every change of names is durable when it returns. `default_permissions`: always on.
/// `user` and its like: mount(8) passes what they imply in words of their
/// own. The ones with a value are what the kernel lists in `/proc/mounts`, and come back with a
/// remount. `fsname=` would hide the slots, by which `novale umount` and `novale info` know a mount.
const NEEDLESS: &[&str] = &[
    "defaults",
    "default_permissions",
    "dirsync",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "nonempty",
    "mand",
    "nomand",
];
const NEEDLESS_VALUES: &[&str] = &[
    "user_id=",
    "group_id=",
    "rootmode=",
    "fd=",
    "max_read=",
    "blksize=",
    "fsname=",
    "subtype=",
    "comment=",
    "user=",
    "x-",
    "X-",
];

impl MountOptions {
    /// Reads words separated by commas, in order, later ones over earlier ones.
    ///
    /// # Errors
    /// The first word that is unknown, or has a value out of range.
    pub fn parse(words: &str) -> Result<Self, UnknownOption> {
        Self::default().with(words)
    }

    /// The same on top of options that are there, as in a remount.
    ///
    /// # Errors
    /// Those of [`MountOptions::parse`].
    pub fn with(mut self, words: &str) -> Result<Self, UnknownOption> {
        for word in words.split(',').filter(|word| !word.is_empty()) {
            self.apply(word)?;
        }
        Ok(self)
    }

    /// The same, but words that are unknown are passed over, as `mount -s` asks.
    ///
    /// # Errors
    /// A known word with a value out of range.
    pub fn parse_sloppy(words: &str) -> Result<Self, UnknownOption> {
        let mut options = Self::default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            match options.apply(word) {
                Ok(()) | Err(UnknownOption::Word(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(options)
    }

    fn apply(&mut self, word: &str) -> Result<(), UnknownOption> {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "remount" => self.remount = true,
            "allow_other" => self.allow_other = Some(true),
            "noatime" => self.atime = Some(Atime::Never),
            "atime" | "relatime" | "nostrictatime" => self.atime = Some(Atime::Relative),
            "strictatime" | "norelatime" => self.atime = Some(Atime::Always),
            "nosuid" => self.nosuid = true,
            "suid" => self.nosuid = false,
            "nodev" => self.nodev = true,
            "dev" => self.nodev = false,
            "noexec" => self.noexec = true,
            "exec" => self.noexec = false,
            "nosymfollow" => self.nosymfollow = true,
            "symfollow" => self.nosymfollow = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "acl" => self.acl = Some(true),
            "noacl" => self.acl = Some(false),
            "user_xattr" => self.user_xattr = Some(true),
            "nouser_xattr" => self.user_xattr = Some(false),
            _ => return self.apply_value(word),
        }
        Ok(())
    }

    fn apply_value(&mut self, word: &str) -> Result<(), UnknownOption> {
        if let Some(threads) = word.strip_prefix("threads=") {
            let threads = threads.parse().ok().filter(|threads| (1..=1024).contains(threads));
            self.threads = Some(threads.ok_or_else(|| value(word, "a number from 1 to 1024"))?);
        } else if let Some(seconds) = word.strip_prefix("grace=") {
            let seconds = seconds.parse().map_err(|_| value(word, "a number of seconds"))?;
            self.grace_seconds = Some(seconds);
        } else if !NEEDLESS.contains(&word)
            && !NEEDLESS_VALUES.iter().any(|known| word.starts_with(known))
        {
            return Err(UnknownOption::Word(word.to_owned()));
        }
        Ok(())
    }

    /// Whether access control lists count and can be set.
    #[must_use]
    pub fn has_acls(&self) -> bool {
        self.acl.unwrap_or(true)
    }

    /// Whether there are attributes of users.
    #[must_use]
    pub fn has_user_xattrs(&self) -> bool {
        self.user_xattr.unwrap_or(true)
    }

    /// What a daemon does with ACLs and attributes, in words that no remount can change; only those
    /// that were said, or both.
    #[must_use]
    pub fn attribute_words(&self, only_said: bool) -> Vec<&'static str> {
        let acl = if self.has_acls() { "acl" } else { "noacl" };
        let user = if self.has_user_xattrs() { "user_xattr" } else { "nouser_xattr" };
        let words = [(self.acl, acl), (self.user_xattr, user)].into_iter();
        words.filter(|(said, _)| !only_said || said.is_some()).map(|(_, word)| word).collect()
    }

    /// The flags of mount(2). The access time flags only show in `/proc/mounts`: access times are
    /// the core's work.
    pub(crate) fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, self.nosuid);
        flags.set(MountFlags::NODEV, self.nodev);
        flags.set(MountFlags::NOEXEC, self.noexec);
        flags.set(MountFlags::NOSYMFOLLOW, self.nosymfollow);
        flags.set(MountFlags::SYNCHRONOUS, self.sync);
        flags
            | match self.atime.unwrap_or_default() {
                Atime::Relative => MountFlags::RELATIME,
                Atime::Never => MountFlags::NOATIME,
                Atime::Always => MountFlags::STRICTATIME,
            }
    }

    /// The words that fusermount3 takes.
    pub(crate) fn fusermount_words(&self) -> Vec<&'static str> {
        let mut words = vec!["default_permissions"];
        words.push(if self.read_only { "ro" } else { "rw" });
        if self.noexec {
            words.push("noexec");
        }
        if self.nosymfollow {
            words.push("nosymfollow");
        }
        if self.sync {
            words.push("sync");
        }
        if self.atime == Some(Atime::Never) {
            words.push("noatime");
        }
        if self.allow_other == Some(true) {
            words.push("allow_other");
        }
        words
    }
}

fn value(word: &str, wanted: &'static str) -> UnknownOption {
    UnknownOption::Value { word: word.to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    use super::{MountOptions, UnknownOption};
    use crate::Atime;
    use rustix::mount::MountFlags;

    #[test]
    fn what_fstab_and_mount_pass_is_taken_and_later_words_win() {
        let words = "rw,user,noexec,nosuid,nodev,nofail,_netdev,x-systemd.automount,comment=mine,\
                     exec,noatime,ro,user_id=0,group_id=0,default_permissions,allow_other,sync";
        let options = MountOptions::parse(words).unwrap();
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(options.flags(), flags | MountFlags::NOATIME | MountFlags::SYNCHRONOUS);
        assert_eq!(options.allow_other, Some(true));
        assert!(!options.remount);
    }

    #[test]
    fn of_acls_and_attributes_the_later_word_counts() {
        let options = MountOptions::parse("acl,nouser_xattr,noacl,ro").unwrap();
        assert!(!options.has_acls() && !options.has_user_xattrs());
        assert_eq!(options.attribute_words(true), ["noacl", "nouser_xattr"]);
        let options = options.with("user_xattr,acl").unwrap();
        assert!(options.has_acls() && options.has_user_xattrs());
        let options = MountOptions::parse("ro").unwrap();
        assert_eq!(options.attribute_words(false), ["acl", "user_xattr"]);
        assert!(options.attribute_words(true).is_empty());
    }

    #[test]
    fn an_unknown_word_is_named_and_sloppiness_passes_it_over() {
        let words = "ro,data=journal,strictatime";
        let refused = MountOptions::parse(words);
        assert_eq!(refused, Err(UnknownOption::Word("data=journal".to_owned())));
        assert_eq!(MountOptions::parse_sloppy(words).unwrap().atime, Some(Atime::Always));
    }

    #[test]
    fn values_out_of_range_are_refused_also_when_sloppy() {
        for words in ["threads=0", "threads=x", "grace=-1"] {
            let refused = MountOptions::parse_sloppy(words);
            assert!(matches!(refused, Err(UnknownOption::Value { .. })), "{words}: {refused:?}");
        }
    }
}

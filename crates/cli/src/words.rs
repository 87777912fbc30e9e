//! The words behind `-o`: the mount's own, and those for the daemon, which fstab has no other place
//! for.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use novale_fuse::MountOptions;

use crate::args::{FormArg, MountArgs};
use crate::size::parse_size;

/// What the words of `-o` ask for.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// The mount's words, as the daemon gets them.
    pub(crate) mount: String,
    /// What those mean.
    pub(crate) options: MountOptions,
    /// The words for the daemon, as given.
    pub(crate) daemon: Vec<String>,
    log: Option<PathBuf>,
    arena_max: Option<u64>,
    form: Option<FormArg>,
    populate: bool,
}

impl Words {
    /// Reads all words; the first one that is unknown, or has a wrong value, is named.
    pub(crate) fn parse(words: &str) -> Result<Self> {
        let mut this = Self::default();
        let mut mount = Vec::new();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            if this.take(word)? {
                this.daemon.push(word.to_owned());
            } else {
                mount.push(word);
            }
        }
        this.mount = mount.join(",");
        this.options = MountOptions::parse(&this.mount)
            .map_err(|error| anyhow!("{error} (`novale mount --help` lists what there is)"))?;
        Ok(this)
    }

    /// Whether a word is the daemon's.
    fn take(&mut self, word: &str) -> Result<bool> {
        let wrong = |error: String| anyhow!("mount option '{word}': {error}");
        match word.split_once('=') {
            None if word == "populate" => self.populate = true,
            Some(("log", path)) => self.log = Some(path.into()),
            Some(("arena_max", size)) => self.arena_max = Some(parse_size(size).map_err(wrong)?),
            Some(("form", form)) => {
                self.form = Some(FormArg::from_str(form, false).map_err(wrong)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Puts what the words say of the daemon to its arguments; an argument given wins.
    pub(crate) fn complete(&self, args: &mut MountArgs) {
        args.log = args.log.take().or_else(|| self.log.clone());
        args.arena_max = args.arena_max.or(self.arena_max);
        args.form = args.form.or(self.form);
        args.populate |= self.populate;
    }
}

#[cfg(test)]
mod tests {
    use super::Words;
    use crate::args::FormArg;

    #[test]
    fn the_daemons_words_are_taken_out_and_the_rest_is_the_mounts() {
        let words = "noatime,log=/var/log/novale,ro,arena_max=2G,form=two,populate,threads=3";
        let words = Words::parse(words).unwrap();
        assert_eq!(words.mount, "noatime,ro,threads=3");
        assert!(words.options.read_only && words.populate);
        assert_eq!((words.arena_max, words.form), (Some(2 << 30), Some(FormArg::Two)));
        assert_eq!(words.daemon.len(), 4);
    }

    #[test]
    fn a_wrong_word_is_named() {
        for word in ["form=three", "arena_max=much", "bogus", "threads=0"] {
            let refused = Words::parse(&format!("ro,{word}")).unwrap_err().to_string();
            assert!(refused.contains(&format!("'{word}'")), "{refused}");
        }
    }
}

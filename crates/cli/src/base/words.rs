//! The words after `-o`: the mount's own, and those for the daemon, which fstab has no other place
//! for.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use novale_fuse::MountOptions;
use novale_pm::{Device, DeviceError};
use novale_policy::SlotLines;

use crate::base::args::{FormArg, MapKind, MethodArg, ModeArg, MountArgs, PlacementArg};
use crate::base::buffer::BufferArgs;
use crate::base::size::{parse_lawn_slot, parse_size};

/// The word of a mount that others may use the pool beside.
pub(crate) const DIRECT: &str = "direct";
/// The word of the user who knows what the pool's memory does not survive.
pub(crate) const QUIET: &str = "quiet";
/// The word that says what mappings are to programs that are run directly.
pub(crate) const MAP: &str = "map";

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
    index_memory: Option<u64>,
    pace: Option<u64>,
    cold_after: Option<u32>,
    form: Option<FormArg>,
    method: Option<MethodArg>,
    placement: Option<PlacementArg>,
    lawn_slot: Option<SlotLines>,
    mode: Option<ModeArg>,
    buffer: Option<u64>,
    buffer_rules: BufferArgs,
    device: Option<Device>,
    map: Option<MapKind>,
    populate: bool,
    direct: bool,
    quiet: bool,
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
            None if word == DIRECT => self.direct = true,
            None if word == QUIET => self.quiet = true,
            Some(("log", path)) => self.log = Some(path.into()),
            Some(("arena_max", size)) => self.arena_max = Some(parse_size(size).map_err(wrong)?),
            Some(("index_memory", size)) => {
                self.index_memory = Some(parse_size(size).map_err(wrong)?);
            }
            Some(("pace", size)) => self.pace = Some(parse_size(size).map_err(wrong)?),
            Some(("cold_after", seconds)) => {
                let number = seconds.parse().map_err(|_| wrong("a number of seconds".to_owned()));
                self.cold_after = Some(number?);
            }
            Some(("form", form)) => self.form = Some(one_of(form).map_err(wrong)?),
            Some(("method", method)) => self.method = Some(one_of(method).map_err(wrong)?),
            Some(("placement", way)) => self.placement = Some(one_of(way).map_err(wrong)?),
            Some(("lawn_slot", size)) => {
                self.lawn_slot = Some(parse_lawn_slot(size).map_err(wrong)?);
            }
            Some(("mode", mode)) => self.mode = Some(one_of(mode).map_err(wrong)?),
            Some(("buffer", size)) => self.buffer = Some(parse_size(size).map_err(wrong)?),
            Some(("device", device)) => {
                let device: Result<Device, DeviceError> = device.parse();
                self.device = Some(device.map_err(|error| wrong(error.to_string()))?);
            }
            Some((MAP, map)) => self.map = Some(one_of(map).map_err(wrong)?),
            Some((key, value)) => return self.buffer_rules.take(key, value).map_err(wrong),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Puts what the words say of the daemon to its arguments; an argument given wins.
    pub(crate) fn complete(&self, args: &mut MountArgs) {
        let threads = self.options.threads.and_then(|threads| u16::try_from(threads).ok());
        args.threads = args.threads.or(threads);
        args.grace = args.grace.or(self.options.grace_seconds);
        args.log = args.log.take().or_else(|| self.log.clone());
        args.arena_max = args.arena_max.or(self.arena_max);
        args.index_memory = args.index_memory.or(self.index_memory);
        args.pace = args.pace.or(self.pace);
        args.cold_after = args.cold_after.or(self.cold_after);
        args.form = args.form.or(self.form);
        args.method = args.method.or(self.method);
        args.placement = args.placement.or(self.placement);
        args.lawn_slot = args.lawn_slot.or(self.lawn_slot);
        args.mode = args.mode.or(self.mode);
        args.buffer = args.buffer.or(self.buffer);
        args.buffer_rules.complete(self.buffer_rules.clone());
        args.device = args.device.or(self.device);
        args.map = args.map.or(self.map);
        args.populate |= self.populate;
        args.direct |= self.direct;
        args.quiet |= self.quiet;
    }
}

/// The value of that name, or the names that there are.
fn one_of<T: ValueEnum>(name: &str) -> Result<T, String> {
    T::from_str(name, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        format!("it is one of {}", names.join(", "))
    })
}

/// What a daemon runs with, as the words that ask for it.
pub(crate) fn running(args: &MountArgs, options: &MountOptions) -> Vec<String> {
    let form = args.form.is_none().then(|| "form=auto".to_owned());
    let attributes = options.attribute_words(false).into_iter().map(str::to_owned);
    form.into_iter().chain(asked(args)).chain(attributes).collect()
}

/// What is asked of a daemon, as [`running`] spells it.
pub(crate) fn asked(args: &MountArgs) -> Vec<String> {
    let form = args.form.and_then(|form| form.to_possible_value());
    let form = form.map(|form| format!("form={}", form.get_name()));
    let method = args.method.map(|method| format!("method={}", method.policy().name()));
    let placement = args.placement.map(|way| format!("placement={}", way.placement().name()));
    let slot = args.lawn_slot.map(|slot| format!("lawn_slot={}", slot.bytes()));
    let mode = args.mode.map(|mode| format!("mode={}", mode.mode().name()));
    let buffer = args.buffer.map(|bytes| format!("buffer={bytes}"));
    let device = args.device.filter(|device| !device.is_own());
    let device = device.map(|device| format!("device={}", device.spelled()));
    let log = args.log.as_ref().map(|log| format!("log={}", log.display()));
    let arena = args.arena_max.map(|bytes| format!("arena_max={bytes}"));
    let index = args.index_memory.map(|bytes| format!("index_memory={bytes}"));
    let pace = args.pace.map(|bytes| format!("pace={bytes}"));
    let cold = args.cold_after.map(|seconds| format!("cold_after={seconds}"));
    let populate = args.populate.then(|| "populate".to_owned());
    let direct = args.direct.then(|| DIRECT.to_owned());
    let map = args.map.and_then(|map| map.to_possible_value());
    let map = map.map(|map| format!("{MAP}={}", map.get_name()));
    let quiet = args.quiet.then(|| QUIET.to_owned());
    let own = [
        form, method, placement, slot, mode, buffer, device, log, arena, index, pace, cold,
        populate, direct, map, quiet,
    ]
    .into_iter()
    .flatten();
    own.chain(args.buffer_rules.words()).collect()
}

/// What programs under `novale run` are told of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForPrograms {
    /// Options by which some extended attributes are not there: the mount serves all of them.
    pub(crate) hides_attributes: bool,
    /// What mappings are, where the mount says so.
    pub(crate) map: Option<MapKind>,
}

impl ForPrograms {
    const HIDES: u16 = 1;
    const MAP_SHIFT: u32 = 1;
    const SYNCS: u16 = 1 << 3;
    const MAPS: [MapKind; 3] = [MapKind::Kernel, MapKind::Dax, MapKind::Atomic];

    /// What a daemon runs with.
    pub(crate) fn of(args: &MountArgs, options: &MountOptions) -> Self {
        let hides_attributes = !options.has_acls() || !options.has_user_xattrs();
        Self { hides_attributes, map: args.map }
    }

    /// As the arena has it, with the mount's `sync` when it is made: programs of builds that do not look for that in the
    /// mount table go by it.
    pub(crate) fn bits(self, syncs: bool) -> u16 {
        let kinds = (1..).zip(Self::MAPS);
        let map = kinds.filter(|(_, kind)| Some(*kind) == self.map).map(|(number, _)| number);
        let map: u16 = map.sum();
        let hides = if self.hides_attributes { Self::HIDES } else { 0 };
        let syncs = if syncs { Self::SYNCS } else { 0 };
        map << Self::MAP_SHIFT | hides | syncs
    }

    /// What [`ForPrograms::bits`] has made.
    pub(crate) fn from_bits(bits: u16) -> Self {
        let map = usize::from(bits >> Self::MAP_SHIFT & 0b11).checked_sub(1);
        let map = map.and_then(|index| Self::MAPS.get(index).copied());
        Self { hides_attributes: bits & Self::HIDES != 0, map }
    }
}

/// A daemon's word as [`running`] spells it.
pub(crate) fn spelled(word: &str) -> String {
    match word.split_once('=') {
        Some((name @ ("arena_max" | "index_memory" | "pace"), size)) => {
            parse_size(size).map_or_else(|_| word.to_owned(), |bytes| format!("{name}={bytes}"))
        }
        Some(("device", device)) => device
            .parse::<Device>()
            .map_or_else(|_| word.to_owned(), |device| format!("device={}", device.spelled())),
        Some(("log", log)) => std::path::absolute(log)
            .map_or_else(|_| word.to_owned(), |log| format!("log={}", log.display())),
        _ => word.to_owned(),
    }
}

/// What is told of a process that was stopped at work.
pub(crate) fn of_stopped(pid: u32) -> String {
    format!(
        "process {pid}, in the middle of an operation: others wait until it goes on (kill -CONT {pid}) \
         or ends"
    )
}

#[cfg(test)]
mod tests {
    use super::{ForPrograms, Words};
    use clap::ValueEnum;

    use crate::base::args::{FormArg, MapKind, MethodArg};

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
    fn methods_have_the_names_of_their_policies() {
        for method in MethodArg::value_variants() {
            let spelled = method.to_possible_value().unwrap();
            assert_eq!(spelled.get_name(), method.policy().name());
        }
        assert_eq!(MethodArg::value_variants().len(), novale_policy::UpdatePolicy::ALL.len());
    }

    #[test]
    fn what_programs_are_told_goes_through_the_arena() {
        let maps = [None, Some(MapKind::Kernel), Some(MapKind::Dax), Some(MapKind::Atomic)];
        for (map, hides_attributes) in
            maps.into_iter().flat_map(|map| [false, true].map(|hides| (map, hides)))
        {
            let told = ForPrograms { hides_attributes, map };
            assert_eq!(ForPrograms::from_bits(told.bits(false)), told);
            assert_eq!(ForPrograms::from_bits(told.bits(true)), told);
            assert_eq!(told.bits(true) ^ told.bits(false), 8, "what earlier builds go by");
        }
    }

    #[test]
    fn a_wrong_word_is_named() {
        for word in
            ["form=three", "method=magic", "map=mine", "arena_max=much", "bogus", "threads=0"]
        {
            let refused = Words::parse(&format!("ro,{word}")).unwrap_err().to_string();
            assert!(refused.contains(&format!("'{word}'")), "{refused}");
        }
    }
}

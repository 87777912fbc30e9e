//! From the slots that a user names to the slots of one pool, in order.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use novale_core::{CUT_OFF, PoolInfo, SLOT_BYTES_MIN, SlotInfo, Space, identify_slot, inspect};
use novale_layout::{MAX_SLOTS, PAGE, PmAddr, SUPERBLOCK_BYTES, Superblock};
use novale_pm::{Pm, PmOptions, SlotLock, SlotMemory, SlotSpec};
use novale_posix::join::ArenaFile;
use novale_posix::{OUR_FORMAT, slot_head, what_it_holds};
use uuid::Uuid;

use crate::base::size::show_size;
use crate::pools::remaining::{self, LeftOut, SlotState};
use crate::pools::slot_files::head_of;
use crate::pools::unfinished;

/// Where a slot's header lies in its first bytes.
const HEADER_BYTES: Range<usize> = 2048..2048 + 128;

/// Links that are followed to a file that is not there, as many as the kernel follows.
const LINKS_MAX: u32 = 40;

/// A pool that was found: its slots in order, and what it says of itself.
#[derive(Debug)]
pub(crate) struct Found {
    /// Those that are there.
    pub(crate) paths: Vec<PathBuf>,
    /// All of them, by their numbers.
    pub(crate) places: Vec<Option<PathBuf>>,
    /// Why some are not there.
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) info: PoolInfo,
    /// What memory each of those that are there is in.
    pub(crate) memory: Vec<SlotMemory>,
    /// The slots as they were named.
    pub(crate) given: Vec<PathBuf>,
}

impl Found {
    /// The pool's arena.
    pub(crate) fn arena(&self) -> Result<ArenaFile> {
        let first = self.paths.first().context("a pool has a slot")?;
        let slot = fs::metadata(first).with_context(|| first.display().to_string())?;
        Ok(ArenaFile::new(self.info.uuid, &slot)?)
    }

    /// Whether there may be bytes that the pool does not have, where nobody uses it.
    pub(crate) fn may_have_left_behind(&self) -> bool {
        // What can't be looked at just now may have some.
        self.arena().is_ok_and(|arena| arena.has_left_behind().unwrap_or(true))
    }

    /// Whether all slots are there.
    pub(crate) fn is_whole(&self) -> bool {
        self.paths.len() == self.places.len()
    }

    /// Whether the slot is there without which nothing is found.
    pub(crate) fn has_first(&self) -> bool {
        self.places.first().is_some_and(Option::is_some)
    }

    /// Opens the slots; where some are missing, read-only and without locks.
    pub(crate) fn open(&self, options: PmOptions) -> Result<Pm> {
        if self.is_whole() {
            open(&self.paths, options)
        } else {
            remaining::open_some(&self.places)
        }
    }

    /// Each slot with its path and its memory, where it is there.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (&SlotInfo, Option<(&Path, SlotMemory)>)> {
        let mut memory = self.memory.iter().copied();
        self.info.slots.iter().zip(&self.places).map(move |(slot, place)| {
            let there = place.as_deref().and_then(|path| Some((path, memory.next()?)));
            (slot, there)
        })
    }

    /// How a slot is that is not there.
    pub(crate) fn state_of(&self, slot: u8) -> SlotState {
        let left_out = self.left_out.iter().find(|left_out| left_out.slot == Some(slot));
        left_out.map_or(SlotState::Missing, |left_out| left_out.state)
    }

    /// What `/proc/mounts` shows: the slots in the order in which they were named, by which mount(8)
    /// and umount(8) know a line of fstab.
    pub(crate) fn source(&self) -> OsString {
        joined_source(&self.given)
    }
}

/// A slot as its header shows it: its number, its pool, and where it is.
type KnownSlot = (u8, [u8; 16], PathBuf);

/// The slots in a source of a mount, by its spelling alone: anybody may make a file whose path is that of two slots
/// with a colon between. A source that begins with a slash ends a path at each colon that a slash follows, another
/// one at each colon.
pub(crate) fn split_source(source: &OsStr) -> Vec<PathBuf> {
    let is_absolute = source.as_bytes().starts_with(b"/");
    let mut slots: Vec<Vec<u8>> = Vec::new();
    for part in source.as_bytes().split(|byte| *byte == b':') {
        match slots.last_mut() {
            Some(slot) if is_absolute && !part.starts_with(b"/") => {
                slot.push(b':');
                slot.extend_from_slice(part);
            }
            _ => slots.push(part.to_vec()),
        }
    }
    slots.into_iter().map(|slot| PathBuf::from(OsString::from_vec(slot))).collect()
}

/// The slots of a mount as `/proc/mounts` shows them.
fn joined_source(given: &[PathBuf]) -> OsString {
    let paths: Vec<&OsStr> = given.iter().map(|path| path.as_os_str()).collect();
    paths.join(OsStr::new(":"))
}

/// Bytes of a mount's source at most: the kernel copies a page of it, and the last one ends it.
const SOURCE_BYTES_MAX: usize = 4095;

/// Refuses paths, which are absolute, that no mount has room for together.
pub(crate) fn refuse_long<'a>(given: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    let (mut count, mut bytes) = (0_usize, 0);
    for path in given {
        bytes += usize::from(count > 0) + path.as_os_str().len();
        count += 1;
    }
    if bytes > SOURCE_BYTES_MAX {
        bail!(
            "the paths of the {count} slots have {bytes} bytes together, and a mount has room for {SOURCE_BYTES_MAX}: \
             name them by shorter ones, such as symbolic links"
        );
    }
    Ok(())
}

/// Refuses slots that the source of their mount would not name.
pub(crate) fn refuse_unnamed(given: &[PathBuf]) -> Result<()> {
    refuse_long(given)?;
    refuse_taken_apart(given)
}

/// Refuses slots that the source of their mount would name by other paths.
pub(crate) fn refuse_taken_apart(given: &[PathBuf]) -> Result<()> {
    if split_source(&joined_source(given)) == given {
        return Ok(());
    }
    let is_taken_apart = |path: &&PathBuf| split_source(path.as_os_str()) != [path.as_path()];
    let slot = given.iter().find(is_taken_apart).or(given.first()).context("a pool has a slot")?;
    bail!(
        "{}: in what is mounted a colon before a slash ends the path of a slot: name this one by a path without \
         ':/', such as a symbolic link elsewhere",
        slot.display()
    )
}

/// Absolute paths, so that a daemon may change its directory. Those that are so stay as they are
/// spelled.
pub(crate) fn absolute(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let absolute = |path: &PathBuf| {
        if path.is_absolute() {
            return Ok(path.clone());
        }
        std::path::absolute(path).context("a slot's path")
    };
    given.iter().map(absolute).collect()
}

/// Opens slots as they are given; the one who opens them for writing holds their locks.
pub(crate) fn open(paths: &[PathBuf], options: PmOptions) -> Result<Pm> {
    let specs: Vec<SlotSpec> = paths.iter().map(SlotSpec::new).collect();
    Ok(Pm::open(&specs, &PmOptions { lock: SlotLock::Held, ..options })?)
}

/// What memory each slot is in.
pub(crate) fn memory_of(pm: &Pm) -> Vec<SlotMemory> {
    (0..pm.slot_count()).map(|slot| pm.slot_memory(slot)).collect()
}

pub(crate) fn reading() -> PmOptions {
    PmOptions { read_only: true, ..PmOptions::default() }
}

/// Finds out which slots of which pool these are, puts them in order, and reads the description.
pub(crate) fn find(given: &[PathBuf]) -> Result<Found> {
    let given = absolute(given)?;
    refuse_twice(&given)?;
    let mut known = Vec::new();
    for path in &given {
        let (pool, index) = identify(path)?;
        known.push((index, pool, path.clone()));
    }
    known.sort_by_key(|(index, ..)| *index);
    let paths: Vec<PathBuf> = known.iter().map(|(_, _, path)| path.clone()).collect();
    check_together(&known).map_err(|error| unfinished::replaced(&paths).unwrap_or(error))?;
    let pm = open(&paths, reading())?;
    let info = inspect(&pm).with_context(|| shown(&paths));
    let info = info.map_err(|error| unfinished::without_place(&paths).unwrap_or(error))?;
    let memory = memory_of(&pm);
    let places = paths.iter().cloned().map(Some).collect();
    Ok(Found { paths, places, left_out: Vec::new(), info, memory, given })
}

/// The slots of a pool as far as they are there and can be told apart.
#[derive(Debug)]
pub(crate) struct FoundSome {
    /// By their numbers; none for one that is missing.
    slots: Vec<Option<PathBuf>>,
    /// What is missing, and what was taken for what.
    pub(crate) remarks: Vec<String>,
}

impl FoundSome {
    /// Opens them, read-only and without locks.
    pub(crate) fn open(&self) -> Result<Pm> {
        remaining::open_some(&self.slots)
    }
}

/// Puts slots in order of which some may be missing or damaged: one that does not say which it is
/// takes the first free place.
pub(crate) fn find_some(given: &[PathBuf]) -> Result<FoundSome> {
    let given = absolute(given)?;
    refuse_twice(&given)?;
    let (mut known, mut unknown): (Vec<KnownSlot>, Vec<(PathBuf, String)>) = (vec![], vec![]);
    for path in given {
        let pm = open(std::slice::from_ref(&path), reading())?;
        match identify_slot(&pm, 0) {
            Ok((pool, index)) if index < MAX_SLOTS => known.push((index, pool, path)),
            Ok((_, index)) => bail!("{}: slot {index} of a pool", path.display()),
            Err(error) => unknown.push((path, error.to_string())),
        }
    }
    known.sort_by_key(|(index, ..)| *index);
    check_alike(&known)?;
    let mut slots: Vec<Option<PathBuf>> = Vec::new();
    for (index, _, path) in known {
        slots.resize(usize::from(index) + 1, None);
        slots.pop();
        slots.push(Some(path));
    }
    let mut remarks = Vec::new();
    for (path, why) in unknown {
        let index = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        remarks.push(format!("{} is taken for slot {index}: {why}", path.display()));
        if let Some(place) = slots.get_mut(index) {
            *place = Some(path);
        } else {
            slots.push(Some(path));
        }
    }
    let count = slots.first().and_then(Option::as_ref).and_then(|first| slot_count(first));
    slots.resize(slots.len().max(count.unwrap_or(0)), None);
    let missing = (0..).zip(&slots).filter(|(_, slot)| slot.is_none());
    remarks.extend(missing.map(|(index, _): (usize, _)| format!("slot {index} is missing")));
    Ok(FoundSome { slots, remarks })
}

/// The number of slots of a pool as its first one says.
pub(crate) fn slot_count(first: &Path) -> Option<usize> {
    let pm = open(&[first.to_owned()], reading()).ok()?;
    let mut bytes = [0; SUPERBLOCK_BYTES];
    pm.load(PmAddr::new(0, 0), &mut bytes).ok()?;
    Superblock::decode(&bytes).ok().map(|superblock| superblock.slot_count.into())
}

/// Whether a file's first bytes are a slot's, sound or not. They are read: nothing is mapped.
pub(crate) fn begins_as_slot(path: &Path) -> bool {
    file_len(path).is_some_and(|len| len > 0)
        && open_ordinary(path).is_ok_and(|(file, _)| {
            head_of(&file).is_ok_and(|head| what_it_holds(&head) == Some(OUR_FORMAT))
        })
}

/// The pool and the number of a slot, or what it is instead.
pub(crate) fn identify(path: &Path) -> Result<([u8; 16], u8)> {
    let shown = path.display();
    if let Some(len) = file_len(path).filter(|len| *len < SLOT_BYTES_MIN) {
        let held = what_it_holds(&head(path)?);
        // One of ours that was cut off is better described by what it says itself.
        if held != Some(OUR_FORMAT) || len < PAGE {
            if held == Some(OUR_FORMAT) {
                bail!(
                    "{shown} was cut off: it has {}, and a slot at least {}; {CUT_OFF}",
                    show_size(len),
                    show_size(SLOT_BYTES_MIN)
                );
            }
            let held = held.map_or_else(String::new, |held| format!(" of {held}"));
            bail!(
                "{shown} holds no pool, but {}{held}; a slot has at least {}: name the slots of a pool",
                show_size(len),
                show_size(SLOT_BYTES_MIN)
            );
        }
    }
    let pm = open(&[path.to_owned()], reading())?;
    let error = match identify_slot(&pm, 0) {
        Ok(known) => return Ok(known),
        Err(error) => error,
    };
    match what_it_holds(&head(path)?) {
        None => bail!("{shown} holds no pool, only zeroes: make one with `novale mkfs {shown}`"),
        Some(OUR_FORMAT) => bail!("{shown}: {error}"),
        Some(other) => bail!("{shown} holds no pool, but {other}: name the slots of a pool"),
    }
}

/// The length of an ordinary file.
pub(crate) fn file_len(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// The length of a slot that is no ordinary file.
pub(crate) fn device_len(path: &Path) -> Result<u64> {
    Ok(open(&[path.to_owned()], reading())?.slot_len(0))
}

/// A slot's first bytes, those that tell what it holds. A file too short to be a slot is read all the same, as far as
/// it says once it is open: its owner may have put something there meanwhile that has no end.
pub(crate) fn head(path: &Path) -> Result<Vec<u8>> {
    if file_len(path).is_some_and(|len| len < PAGE) {
        return short_head(path).with_context(|| path.display().to_string());
    }
    Ok(slot_head(&open(&[path.to_owned()], reading())?, 0)?)
}

/// Opens what is an ordinary file, as its owner may have put something else there since it was looked at; and its length.
fn open_ordinary(path: &Path) -> io::Result<(fs::File, u64)> {
    let waits_for_nobody = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(waits_for_nobody).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata.len()))
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

fn short_head(path: &Path) -> io::Result<Vec<u8>> {
    let (file, len) = open_ordinary(path)?;
    let mut head = Vec::new();
    file.take(len.min(PAGE)).read_to_end(&mut head)?;
    Ok(head)
}

/// Whether a slot is none any more: it is not there, or what its headers and all before them held is zeroes.
/// An erasure that was cut off leaves a superblock, or state lines, to which no header leads.
pub(crate) fn is_gone(path: &Path) -> bool {
    let Ok(head) = head(path) else { return !path.exists() };
    let is_zero = |range: Range<usize>| {
        head.get(range).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    };
    let is_ours = what_it_holds(&head) == Some(OUR_FORMAT);
    let is_erased = is_zero(0..HEADER_BYTES.end) || is_ours && is_zero(HEADER_BYTES);
    is_erased && identify(path).is_err()
}

/// What space there is in a pool that nobody uses, as far as it says.
pub(crate) fn space(found: &Found) -> Option<Space> {
    found.open(reading()).ok().and_then(|pm| novale_core::space(&pm).ok().flatten())
}

/// File system and inode of a file that is there.
type FileIdentity = Option<(u64, u64)>;

/// The other slots.
pub(crate) fn without(paths: &[PathBuf], slot: &Path) -> Vec<PathBuf> {
    paths.iter().filter(|path| path.as_path() != slot).cloned().collect()
}

/// Refuses a slot that is named twice, by whatever paths, also one that is yet to be created.
pub(crate) fn refuse_twice(paths: &[PathBuf]) -> Result<()> {
    let mut seen: Vec<(PathBuf, FileIdentity, &Path)> = Vec::new();
    for path in paths {
        let real = real_path(path);
        let file = file_identity(&real);
        let same = seen
            .iter()
            .find(|(other, other_file, _)| *other == real || file.is_some() && file == *other_file);
        if let Some((.., first)) = same {
            if *first == path.as_path() {
                bail!("{} is named twice: name each slot once", first.display());
            }
            let (first, path) = (first.display(), path.display());
            bail!("{first} and {path} are the same: name each slot once");
        }
        seen.push((real, file, path));
    }
    Ok(())
}

/// Whether two paths lead to one file, which is there.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other || file_identity(one).is_some_and(|file| file_identity(other) == Some(file))
}

fn file_identity(path: &Path) -> FileIdentity {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// A path without symbolic links and dots; of one that is not there, as far as it is.
fn real_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Ok(real) = path.canonicalize() {
            return real;
        }
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let (Some(folder), Some(name)) = (folder, path.file_name()) else { return path };
        path = folder.join(name);
        match fs::read_link(&path) {
            Ok(leads) => path = folder.join(leads),
            Err(_) => return path,
        }
    }
    path
}

/// Refuses slots of two pools, and a slot given twice.
fn check_alike(known: &[KnownSlot]) -> Result<()> {
    for pair in known.windows(2) {
        let [(first_index, first_pool, first), (index, pool, path)] = pair else { continue };
        let (first, path) = (first.display(), path.display());
        if first_pool != pool {
            let (one, other) = (Uuid::from_bytes(*first_pool), Uuid::from_bytes(*pool));
            bail!(
                "{first} belongs to pool {one}, but {path} to pool {other}: name the slots of one pool"
            );
        }
        if first_index == index {
            bail!(
                "{first} and {path} are both slot {index} of the pool: one is the other's copy; name \
                 one"
            );
        }
    }
    Ok(())
}

/// Refuses slots of two pools, a slot given twice, and a missing one as far as that can be seen.
fn check_together(known: &[KnownSlot]) -> Result<()> {
    check_alike(known)?;
    let gap = (0..).zip(known).find(|(expected, (index, ..))| expected != index);
    if let Some((expected, (index, pool, path))) = gap {
        bail!(
            "slot {expected} of pool {} is missing ({} is slot {index}): name all slots",
            Uuid::from_bytes(*pool),
            path.display()
        );
    }
    Ok(())
}

pub(crate) fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(" ")
}

/// Bytes of a number of pages.
pub(crate) fn page_bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    use super::{check_together, refuse_unnamed, split_source};

    fn complaint(slots: &[(u8, u8)]) -> String {
        let slot = |(index, pool): &(u8, u8)| (*index, [*pool; 16], format!("s{index}").into());
        let known: Vec<_> = slots.iter().map(slot).collect();
        check_together(&known).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn slots_that_do_not_belong_together_are_named() {
        assert_eq!(complaint(&[(0, 7), (1, 7)]), "");
        assert!(complaint(&[(0, 7), (1, 8)]).contains("belongs to pool 07070707"));
        assert!(complaint(&[(0, 7), (0, 7)]).contains("both slot 0"));
        assert!(complaint(&[(1, 7)]).starts_with("slot 0 of pool"));
        assert!(complaint(&[(0, 7), (2, 7)]).starts_with("slot 1 of pool"));
    }

    #[test]
    fn a_source_is_taken_apart_by_its_spelling() {
        let split = |source: &str| split_source(OsStr::new(source));
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(split("/m/a:/m/b"), paths(&["/m/a", "/m/b"]));
        assert_eq!(split("/m/po:ol"), paths(&["/m/po:ol"]));
        assert_eq!(split("/m/po::/m/b:"), paths(&["/m/po:", "/m/b:"]));
        assert_eq!(split("a:b:/m/c"), paths(&["a", "b", "/m/c"]));
        for slots in [&["/m/a:/b"][..], &["/m/a", "/m/a:/m/b"]] {
            assert!(refuse_unnamed(&paths(slots)).is_err(), "{slots:?}");
        }
        assert!(refuse_unnamed(&paths(&["/m/po:", "/m/:b", "/m/c"])).is_ok());
    }
}

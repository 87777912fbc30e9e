//! The arena: a segment with its header, root block and checked access to its words.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::base::error::{ArenaError, BadOffset};
use crate::base::liveness;
use crate::base::liveness::ClientInfo;
use crate::base::off::{Off, at, to_usize};
use crate::base::word::AtomicU64;
use crate::memory::segment::{FIXED, GREATEST, Known, STEP, Segment, io_error};

/// "Novale a": the first word of a finished segment.
const MAGIC: u64 = 0x6120_656c_6176_6f4e;

/// Changes with every change of what this crate keeps where; part of the layout hash.
const LAYOUT: u64 = 13;

// Words of the header line.
const HEADER_MAGIC: usize = 0;
const HEADER_ABI: usize = 1;
const HEADER_UUID_LOW: usize = 2;
const HEADER_UUID_HIGH: usize = 3;
const HEADER_LEN: usize = 4;
const HEADER_GENERATION: usize = 5;
const HEADER_POISONED: usize = 6;
const HEADER_WANTED: usize = 7;

// Byte offsets of the fixed part.
const HEADER_AT: usize = 0;
const BUMP_AT: usize = 64;
const NAMESPACE_AT: usize = 128;
const HASH_SEED_AT: usize = 192;
const ROOT_AT: usize = 512;
const HEADS_AT: usize = 4096;
pub(crate) const CLIENTS_AT: usize = HEADS_AT + 256 * 64;

/// What [`Arena::raise_max`] adds at least: 16 MB.
const RAISED_LEAST: u64 = 16 << 20;

/// Words of the fixed part.
const FIXED_WORDS: usize = to_usize(FIXED) / 8;

/// Client slots of a segment.
pub(crate) const CLIENTS: usize = 512;
/// Words of a client slot.
pub(crate) const CLIENT_WORDS: usize = 16;

/// What a segment must agree on with those who open it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The pool that the segment is the view of.
    pub pool_uuid: [u8; 16],
    /// A hash of all that the caller keeps in the segment and how.
    pub abi: u64,
}

/// Says of a client whether something other than its process proves that it lives.
pub(crate) type AliveProbe = Box<dyn Fn(&ClientInfo) -> bool + Send + Sync>;

/// Says whether an allocation is granted.
pub(crate) type GrantProbe = Box<dyn Fn() -> bool + Send + Sync>;

/// A shared segment of words. Cloning gives another handle on the same mapping.
#[derive(Clone)]
pub struct Arena {
    segment: Arc<Segment>,
    alive: Arc<OnceLock<AliveProbe>>,
    granted: Arc<OnceLock<GrantProbe>>,
    /// Memory was refused to somebody here.
    was_refused: Arc<AtomicBool>,
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl Arena {
    /// Makes a segment without a name, shared with child processes only.
    ///
    /// `max_bytes` is rounded up to 2 MB; memory is used as blocks are.
    ///
    /// # Errors
    /// [`ArenaError::BadSize`], or [`ArenaError::Io`] if the kernel maps no more.
    pub fn anonymous(max_bytes: u64) -> Result<Self, ArenaError> {
        let arena = Self::of(Segment::anonymous(max_bytes)?);
        arena.initialise(&Identity { pool_uuid: [0; 16], abi: 0 });
        Ok(arena)
    }

    /// Makes a segment at `path`, which appears there complete or not at all.
    ///
    /// # Errors
    /// [`ArenaError::Exists`], [`ArenaError::BadSize`], [`ArenaError::Full`] if the file system of
    /// `path` has no room for the header, [`ArenaError::Io`].
    pub fn create(path: &Path, max_bytes: u64, identity: Identity) -> Result<Self, ArenaError> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        let arena = Self::unnamed(folder.unwrap_or_else(|| Path::new(".")), max_bytes, identity)?;
        arena.link_at(path)?;
        Ok(arena)
    }

    /// Makes a segment on the file system of `folder`, which gets its name by [`Arena::link_at`].
    ///
    /// # Errors
    /// As [`Arena::create`].
    pub fn unnamed(folder: &Path, max_bytes: u64, identity: Identity) -> Result<Self, ArenaError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| io_error("create the arena", e.into()))?;
        let arena = Self::of(Segment::of_file(File::from(file), max_bytes)?);
        arena.initialise(&identity);
        arena.namespace_word().store(liveness::pid_namespace(), Relaxed);
        arena.time_namespace_word().store(liveness::time_namespace(), Relaxed);
        arena.draw_hash_seed();
        Ok(arena)
    }

    /// Opens the segment at `path`.
    ///
    /// # Errors
    /// [`ArenaError::NotFound`]; [`ArenaError::NotArena`], [`ArenaError::OtherBuild`],
    /// [`ArenaError::OtherPool`], [`ArenaError::OtherNamespace`] and [`ArenaError::Poisoned`] by what
    /// its header says;
    /// [`ArenaError::Io`].
    pub fn open(path: &Path, identity: Identity) -> Result<Self, ArenaError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Err(not_found(path)),
            Err(e) => return Err(io_error("open the arena", e.into())),
        };
        Self::open_file(file, identity)
    }

    /// The segment in a file that is open for reading and writing: a client that has looked at its owner.
    ///
    /// # Errors
    /// As [`Arena::open`].
    pub fn open_file(file: File, identity: Identity) -> Result<Self, ArenaError> {
        let len = stored_len(&file)?;
        let arena = Self::of(Segment::of_file(file, len)?);
        arena.check_header(&identity)?;
        Ok(arena)
    }

    /// The file that the segment is in; none for an anonymous one.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.segment().file()
    }

    /// Removes the name of the segment at `path`; those who have it open keep it.
    ///
    /// # Errors
    /// [`ArenaError::NotFound`], [`ArenaError::Io`].
    pub fn remove(path: &Path) -> Result<(), ArenaError> {
        match rustix::fs::unlink(path) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::NOENT) => Err(not_found(path)),
            Err(e) => Err(io_error("remove the arena", e.into())),
        }
    }

    /// The segment as if it had just been made anonymously: cheaper than another mapping where many
    /// views follow each other. It costs the clearing of what was ever handed out.
    ///
    /// # Errors
    /// Gives the arena back if somebody else has a handle on it.
    pub fn renewed(self) -> Result<Self, Self> {
        if Arc::strong_count(&self.segment) > 1 {
            return Err(self);
        }
        let used = self.used_bytes().min(self.max_bytes());
        // A damaged bump word would have let nobody allocate beyond the segment either.
        let blocks = self.slice(Off::from_raw(FIXED), used.saturating_sub(FIXED) / 8);
        let fixed = self.segment.fixed::<HEADER_AT, { FIXED_WORDS }>();
        fixed.iter().chain(blocks.unwrap_or_default()).for_each(|word| word.store(0, Relaxed));
        let arena = Self::on(self.segment);
        arena.initialise(&Identity { pool_uuid: [0; 16], abi: 0 });
        Ok(arena)
    }

    fn of(segment: Segment) -> Self {
        Self::on(Arc::new(segment))
    }

    fn on(segment: Arc<Segment>) -> Self {
        Self {
            segment,
            alive: Arc::default(),
            granted: Arc::default(),
            was_refused: Arc::default(),
        }
    }

    fn initialise(&self, identity: &Identity) {
        let header = self.header();
        let [uuid_low, uuid_high] = uuid_words(&identity.pool_uuid);
        header[HEADER_ABI].store(abi(identity), Relaxed);
        header[HEADER_UUID_LOW].store(uuid_low, Relaxed);
        header[HEADER_UUID_HIGH].store(uuid_high, Relaxed);
        header[HEADER_LEN].store(self.segment().len(), Relaxed);
        header[HEADER_GENERATION].store(1, Relaxed);
        header[HEADER_WANTED].store(self.segment().len(), Relaxed);
        self.bump_word().store(FIXED, Relaxed);
        header[HEADER_MAGIC].store(MAGIC, Release);
    }

    fn check_header(&self, identity: &Identity) -> Result<(), ArenaError> {
        let header = self.header();
        let magic = header[HEADER_MAGIC].load(Acquire);
        if magic != MAGIC {
            return Err(ArenaError::NotArena { found: format!("magic word {magic:#x}") });
        }
        let (expected, found) = (abi(identity), header[HEADER_ABI].load(Relaxed));
        if expected != found {
            return Err(ArenaError::OtherBuild { expected, found });
        }
        let found = [HEADER_UUID_LOW, HEADER_UUID_HIGH].map(|word| at(header, word).load(Relaxed));
        if found != uuid_words(&identity.pool_uuid) {
            // As a UUID is written: its first byte first.
            let expected = u128::from_le_bytes(identity.pool_uuid).swap_bytes();
            let found = (u128::from(found[1]) << 64 | u128::from(found[0])).swap_bytes();
            return Err(ArenaError::OtherPool { expected, found });
        }
        // Whose process numbers are others can't tell who lives.
        let (found, own) = (self.namespace_word().load(Relaxed), liveness::pid_namespace());
        if found != own {
            return Err(ArenaError::OtherNamespace { kind: "pid", found, own });
        }
        // And whose clocks are others sees them begin at other times.
        let (found, own) = (self.time_namespace_word().load(Relaxed), liveness::time_namespace());
        if found != own {
            return Err(ArenaError::OtherNamespace { kind: "time", found, own });
        }
        if self.is_poisoned() { Err(ArenaError::Poisoned) } else { Ok(()) }
    }

    /// Gives the finished, still nameless file its name.
    ///
    /// # Errors
    /// [`ArenaError::Exists`], [`ArenaError::Io`].
    pub fn link_at(&self, path: &Path) -> Result<(), ArenaError> {
        let Some(file) = self.segment().file() else {
            return Ok(());
        };
        let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
        match rustix::fs::linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::EXIST) => {
                Err(ArenaError::Exists { path: path.display().to_string() })
            }
            Err(e) => Err(io_error("name the arena", e.into())),
        }
    }

    /// The 64 words that belong to the file system: where all else is found from.
    #[must_use]
    pub fn root(&self) -> &[AtomicU64; 64] {
        self.segment().fixed::<ROOT_AT, 64>()
    }

    /// The block of `N` words at `off`, a multiple of 64.
    ///
    /// # Errors
    /// [`BadOffset`] if it is null, misaligned or not wholly inside.
    #[inline]
    pub fn block<const N: usize>(&self, off: Off) -> Result<&[AtomicU64; N], BadOffset> {
        self.segment().block(off.raw())
    }

    /// What this process knows to be allocated by now.
    #[inline(always)]
    #[must_use]
    pub fn known(&self) -> Known<'_> {
        self.segment().known()
    }

    /// The `words` words at `off`, a multiple of 64.
    ///
    /// # Errors
    /// [`BadOffset`] if it is null, misaligned or not wholly inside.
    #[inline]
    pub fn slice(&self, off: Off, words: u64) -> Result<&[AtomicU64], BadOffset> {
        self.segment().slice(off.raw(), words)
    }

    /// The word at `off`, a multiple of 8.
    ///
    /// # Errors
    /// [`BadOffset`] if it is null, misaligned or outside.
    #[inline]
    pub fn word(&self, off: Off) -> Result<&AtomicU64, BadOffset> {
        self.segment().word(off.raw())
    }

    /// The segment's greatest size in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.segment().len()
    }

    /// Has those who open the segment from now on use more memory, as those who have it open do not: nobody does but
    /// the caller, who opens it anew.
    pub fn raise_max(&self) {
        let len = self.max_bytes();
        let more = RAISED_LEAST.max(len / 8);
        let raised = len.saturating_add(more).next_multiple_of(STEP).min(GREATEST);
        self.header()[HEADER_LEN].store(raised, Release);
    }

    /// Which of successive segments of a pool this is; 1 unless set.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.header()[HEADER_GENERATION].load(Acquire)
    }

    /// Sets the generation: its creator does, when it replaces a poisoned segment.
    pub fn set_generation(&self, generation: u64) {
        self.header()[HEADER_GENERATION].store(generation, Release);
    }

    /// Gives the segment up: nobody can open it any more, and clients stop when they look.
    pub fn poison(&self) {
        self.header()[HEADER_POISONED].store(1, Release);
    }

    /// True once somebody has given the segment up.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.header()[HEADER_POISONED].load(Acquire) != 0
    }

    /// Adds a proof of life to the process check: a client counts as dead only if its process is
    /// gone and `alive` says false. The first call counts; says whether this was it.
    #[must_use]
    pub fn set_alive_probe(&self, alive: AliveProbe) -> bool {
        self.alive.set(alive).is_ok()
    }

    pub(crate) fn alive_probe(&self) -> Option<&AliveProbe> {
        self.alive.get()
    }

    /// Lets `granted` decide on each allocation that comes, of memory here and of whatever else asks
    /// [`Arena::grants`]: how refusals are tried out. The first call counts; says whether this was it.
    #[must_use]
    pub fn set_grant_probe(&self, granted: GrantProbe) -> bool {
        self.granted.set(granted).is_ok()
    }

    /// Whether an allocation that there is room for may be made: yes, but where refusals are tried
    /// out.
    #[inline]
    #[must_use]
    pub fn grants(&self) -> bool {
        self.granted.get().is_none_or(|granted| granted())
    }

    /// Sets how many bytes in use its users want to do with; it stays possible to go beyond that.
    pub fn set_wanted_bytes(&self, bytes: u64) {
        self.header()[HEADER_WANTED].store(bytes, Relaxed);
    }

    /// How many bytes in use its users want to do with.
    #[must_use]
    pub fn wanted_bytes(&self) -> u64 {
        self.header()[HEADER_WANTED].load(Relaxed)
    }

    /// By how many bytes what is in use exceeds what is wanted. Blocks that were given back don't
    /// count: they wait for others of their class.
    #[inline]
    #[must_use]
    pub fn pressure(&self) -> u64 {
        let (used, wanted) = (self.used_bytes(), self.wanted_bytes());
        if used <= wanted { 0 } else { (used - wanted).saturating_sub(self.free_bytes()) }
    }

    /// Whether little fresh memory is left: less than an eighth.
    #[inline]
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.used_bytes() > self.max_bytes() / 8 * 7
    }

    /// Somebody was refused memory: what is not needed is to be given back, though there may be free blocks enough
    /// of other classes.
    pub(crate) fn note_refusal(&self) {
        self.was_refused.store(true, Relaxed);
    }

    /// Whether somebody was refused memory by this process; the answer is given once.
    #[inline]
    #[must_use]
    pub fn takes_refusal(&self) -> bool {
        self.was_refused.load(Relaxed) && self.was_refused.swap(false, Relaxed)
    }

    #[inline]
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    #[inline]
    fn header(&self) -> &[AtomicU64; 8] {
        self.segment().fixed::<HEADER_AT, 8>()
    }

    /// Which processes its clients' numbers are of.
    fn namespace_word(&self) -> &AtomicU64 {
        &self.segment().fixed::<NAMESPACE_AT, 8>()[0]
    }

    /// By which clock they began.
    fn time_namespace_word(&self) -> &AtomicU64 {
        &self.segment().fixed::<NAMESPACE_AT, 8>()[2]
    }

    /// What hashes of names start from, so that nobody who makes names knows which of them share one.
    /// It is 0 in an anonymous segment until one is drawn: what is done there can be repeated.
    #[inline]
    #[must_use]
    pub fn hash_seed(&self) -> u64 {
        self.hash_seed_word().load(Relaxed)
    }

    /// Draws the seed, before anything is hashed.
    pub fn draw_hash_seed(&self) {
        // Seeded by the kernel.
        self.hash_seed_word().store(RandomState::new().build_hasher().finish(), Relaxed);
    }

    /// In a line that nothing else is stored to.
    #[inline]
    fn hash_seed_word(&self) -> &AtomicU64 {
        &self.segment().fixed::<HASH_SEED_AT, 8>()[0]
    }

    /// Rises when mappings of files change hands.
    pub(crate) fn mappings_word(&self) -> &AtomicU64 {
        &self.segment().fixed::<NAMESPACE_AT, 8>()[1]
    }

    /// Where the untouched part of the segment begins, in bytes.
    #[inline]
    pub(crate) fn bump_word(&self) -> &AtomicU64 {
        &self.bump_line()[0]
    }

    /// The bump pointer, and after it a bit for each class that has had a block given back.
    #[inline]
    pub(crate) fn bump_line(&self) -> &[AtomicU64; 8] {
        self.segment().fixed::<BUMP_AT, 8>()
    }

    /// A line for each class: the head of its free list and its block size in words.
    #[inline]
    pub(crate) fn class_heads(&self) -> &[AtomicU64; 256 * 8] {
        self.segment().fixed::<HEADS_AT, { 256 * 8 }>()
    }

    /// All client slots.
    #[inline]
    pub(crate) fn client_slots(&self) -> &[AtomicU64; CLIENTS * CLIENT_WORDS] {
        self.segment().fixed::<CLIENTS_AT, { CLIENTS * CLIENT_WORDS }>()
    }
}

fn not_found(path: &Path) -> ArenaError {
    ArenaError::NotFound { path: path.display().to_string() }
}

/// The caller's layout hash with this crate's own mixed in.
fn abi(identity: &Identity) -> u64 {
    (identity.abi ^ LAYOUT).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn uuid_words(uuid: &[u8; 16]) -> [u64; 2] {
    let (words, _) = uuid.as_chunks::<8>();
    [0, 1].map(|index| words.get(index).map_or(0, |word| u64::from_le_bytes(*word)))
}

/// The size that the segment in `file` was made for.
fn stored_len(file: &File) -> Result<u64, ArenaError> {
    use std::os::unix::fs::FileExt;
    let mut header = [0; 64];
    if let Err(e) = file.read_exact_at(&mut header, 0) {
        if e.kind() != std::io::ErrorKind::UnexpectedEof {
            return Err(io_error("read the arena", e));
        }
        return Err(ArenaError::NotArena { found: format!("a header that ends early ({e})") });
    }
    let (words, _) = header.as_chunks::<8>();
    let word = |index: usize| words.get(index).map_or(0, |w| u64::from_le_bytes(*w));
    if word(HEADER_MAGIC) != MAGIC {
        let found = format!("magic word {:#x}", word(HEADER_MAGIC));
        return Err(ArenaError::NotArena { found });
    }
    Ok(word(HEADER_LEN))
}

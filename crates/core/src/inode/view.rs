//! The volatile view of an inode: 40 words in the arena.
//!
//! Writers hold the inode's lock. Readers take none: they read words between
//! [`View::read_begin`] and [`View::read_valid`] and try again when a writer published meanwhile.
//! Words change only after the fence of the commit that they show, so that no read returns what
//! a crash would take back.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, AtomicU64, Class, Known, NameTable, Off, Radix, SeqCount};
use novale_layout::{COOKIE_MIN, FileKind, Ino, PmAddr};
use novale_policy::{Mode, UpdatePolicy};

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::inode::state::{Attrs, State};
use crate::inode::words::{BUFFERED, KEPT, MAPPED, OVERLAID, ParentWord, XattrSet};

/// The block of a view.
pub(crate) const VIEW_CLASS: Class = Class::new(16, 40);
const WORDS: usize = 40;

const LOCK: u64 = 0;
const SEQ: usize = 1;
const INO: usize = 2;
/// Generation in the high half; kind and flags in the low one.
const KIND: usize = 3;
const OP_SEQ: usize = 4;
const LOG_HEAD: usize = 5;
const LOG_TAIL: usize = 6;
const SIZE: usize = 7;
const MTIME: usize = 8;
const CTIME: usize = 9;
/// `nlink` in the low half; the flags of [`State`] above.
const LINK: usize = 10;
const OWNER: usize = 11;
const MODE: usize = 12;
/// Attribute flags in the low half; pages of extended attributes and their summary above.
const FLAGS: usize = 13;
const BIRTH: usize = 14;
const ATIME: usize = 15;
const INDEX: usize = 16;
const HOLDS: usize = 17;
/// Two words.
const NAMES: usize = 24;
const NAMES_WORDS: usize = 2;
/// Pages of the log in the low half; of a file, above: where [`View::cut`] begins.
const LOG_PAGES: usize = 20;
const SPARE_ADDR: usize = 21;
const SPARE_PAGES: usize = 22;
const GC_CURSOR: usize = 23;
const DATA_PAGES: usize = 18;
const ATTR_SEQ: usize = 19;
const XATTR_ROOT: usize = 26;
const PARENT: usize = 27;
const NEXT_COOKIE: usize = 28;
/// The same word: a file has no cookies.
const CUT_SEQ: usize = NEXT_COOKIE;
const TAIL_PAGE_SEQ: usize = 29;
const POLICY_PROJECT: usize = 30;
const PLACE: usize = 31;
/// Of a file: the last line, which is [`crate::inode::buffer`]'s.
const BUFFER: usize = 32;

const LOADED: u64 = 1 << 8;
/// In the word of the number: somebody has used the view since it was last looked at.
const TOUCHED: u64 = 1 << 63;
/// Bits of the pages of extended attributes, below the summary's.
const XATTR_PAGES_BITS: u32 = 28;

/// Which block a view was, and how much had been published of it: blocks go on counting when they are
/// used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewSeen {
    off: Off,
    count: u64,
}

/// An inode's view.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    words: &'a [AtomicU64; WORDS],
    off: Off,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("ino", &self.ino()).field("state", &self.state()).finish()
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[allow(clippy::cast_possible_truncation, reason = "each takes one half of a word")]
fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn at(arena: &'a Arena, off: Off) -> Result<Self> {
        Ok(Self { words: arena.block::<WORDS>(off)?, off })
    }

    #[inline]
    fn get(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.words.get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn lock_off(&self) -> Off {
        self.off.add(LOCK * 8)
    }

    pub(crate) fn off(&self) -> Off {
        self.off
    }

    // Sequence counter.

    pub(crate) fn read_begin(&self) -> Option<u64> {
        SeqCount::new(&self.words[SEQ]).read_begin()
    }

    pub(crate) fn read_valid(&self, begun: u64) -> bool {
        SeqCount::new(&self.words[SEQ]).read_valid(begun)
    }

    /// What the view is as long as nothing is published.
    pub(crate) fn seen(&self) -> ViewSeen {
        ViewSeen { off: self.off, count: self.get(SEQ) }
    }

    /// Runs `change` with the counter odd.
    pub(crate) fn publish<T>(&self, change: impl FnOnce() -> T) -> T {
        self.publish_begin();
        let value = change();
        self.publish_end();
        value
    }

    /// Makes the counter odd: readers wait from here on.
    pub(crate) fn publish_begin(&self) {
        SeqCount::new(&self.words[SEQ]).write_begin();
    }

    /// Makes the counter even again.
    pub(crate) fn publish_end(&self) {
        SeqCount::new(&self.words[SEQ]).write_end();
    }

    // Identity.

    pub(crate) fn ino(&self) -> Ino {
        Ino::new(self.get(INO) & !TOUCHED)
    }

    /// Whether this is the view of `ino`: a block that is given back may be another inode's. Notes
    /// that it is used.
    #[inline]
    pub(crate) fn is_of(&self, ino: Ino) -> bool {
        let word = self.get(INO);
        if word == ino.get() {
            // By exchange, since readers come here without the lock: the number stays whose it is.
            let touched = word | TOUCHED;
            let order = Ordering::Relaxed;
            return self.words[INO].compare_exchange(word, touched, order, order).is_ok()
                || self.ino() == ino;
        }
        word == ino.get() | TOUCHED
    }

    /// Whether somebody has used the view since this was last asked.
    pub(crate) fn take_touched(&self) -> bool {
        self.words[INO].fetch_and(!TOUCHED, Ordering::Relaxed) & TOUCHED != 0
    }

    /// Makes the block nobody's: a client that locks it from here on finds that it is not what it sought.
    pub(crate) fn set_nobodys(&self) {
        self.set(INO, 0);
    }

    pub(crate) fn generation(&self) -> u32 {
        halves(self.get(KIND)).0
    }

    /// Where the inode lies on media, which never changes; null until it is noted.
    pub(crate) fn place(&self) -> PmAddr {
        PmAddr::from_raw(self.get(PLACE))
    }

    pub(crate) fn note_place(&self, addr: PmAddr) {
        self.set(PLACE, addr.raw());
    }

    /// The kind; `None` while the view is not loaded.
    pub(crate) fn kind(&self) -> Option<FileKind> {
        let word = self.words[KIND].load(Ordering::Acquire);
        if word & LOADED == 0 {
            return None;
        }
        FileKind::from_u8(u8::try_from(word & 0xff).ok()?)
    }

    /// Whether the view is loaded, and of this kind, of what no kernel has mapped, and whose bytes are
    /// those of its pages.
    #[inline]
    pub(crate) fn is_loaded_as(&self, kind: FileKind) -> bool {
        let word = self.words[KIND].load(Ordering::Acquire);
        word & (LOADED | MAPPED | OVERLAID | BUFFERED | 0xff) == LOADED | u64::from(kind.to_u8())
    }

    /// Sets who this inode is. `loaded` makes the view readable: everything else was set before.
    pub(crate) fn set_identity(&self, ino: Ino, generation: u32, kind: FileKind, loaded: bool) {
        self.set(INO, ino.get());
        let stays = KEPT | BUFFERED;
        let kept = if self.generation() == generation { self.get(KIND) & stays } else { 0 };
        let low = kept | u64::from(kind.to_u8()) | if loaded { LOADED } else { 0 };
        self.words[KIND].store(u64::from(generation) << 32 | low, Ordering::Release);
    }

    /// Makes a view readable of which everything else was set, and whose bytes are not all those of its
    /// pages.
    pub(crate) fn set_loaded_beneath(&self) {
        self.words[KIND].fetch_or(LOADED | OVERLAID, Ordering::Release);
    }

    /// The word that [`MAPPED`] is in.
    pub(crate) fn kind_word(&self) -> &AtomicU64 {
        &self.words[KIND]
    }

    /// Whether the number's last use, loaded or not, was as a directory.
    pub(crate) fn was_directory(&self) -> bool {
        self.get(KIND) & 0xff == u64::from(FileKind::Directory.to_u8())
    }

    /// Makes the view unreadable: its inode is gone.
    pub(crate) fn set_unloaded(&self) {
        self.words[KIND].store(self.get(KIND) & !LOADED, Ordering::Release);
    }

    // State.

    pub(crate) fn state(&self) -> State {
        let (flags, nlink) = halves(self.get(LINK));
        State {
            op_seq: self.get(OP_SEQ),
            log_head: PmAddr::from_raw(self.get(LOG_HEAD)),
            log_tail: PmAddr::from_raw(self.get(LOG_TAIL)),
            size: self.get(SIZE),
            mtime_ns: self.get(MTIME).cast_signed(),
            ctime_ns: self.get(CTIME).cast_signed(),
            nlink,
            slot: u8::from(flags & 1 != 0),
            flags: u16::try_from(flags >> 1).unwrap_or(0),
        }
    }

    // One word of the state; all of it would be nine loads.

    pub(crate) fn op_seq(&self) -> u64 {
        self.get(OP_SEQ)
    }

    pub(crate) fn log_tail(&self) -> PmAddr {
        PmAddr::from_raw(self.get(LOG_TAIL))
    }

    /// The flags of the line that stands.
    pub(crate) fn line_flags(&self) -> u16 {
        u16::try_from(halves(self.get(LINK)).0 >> 1).unwrap_or(0)
    }

    pub(crate) fn nlink(&self) -> u32 {
        halves(self.get(LINK)).1
    }

    pub(crate) fn set_state(&self, state: &State) {
        self.set(OP_SEQ, state.op_seq);
        self.set(LOG_HEAD, state.log_head.raw());
        self.set(LOG_TAIL, state.log_tail.raw());
        self.set(SIZE, state.size);
        self.set(MTIME, state.mtime_ns.cast_unsigned());
        self.set(CTIME, state.ctime_ns.cast_unsigned());
        let flags = u32::from(state.slot & 1) | u32::from(state.flags) << 1;
        self.set(LINK, pair(flags, state.nlink));
    }

    pub(crate) fn size(&self) -> u64 {
        self.get(SIZE)
    }

    pub(crate) fn mtime_ns(&self) -> i64 {
        self.get(MTIME).cast_signed()
    }

    pub(crate) fn ctime_ns(&self) -> i64 {
        self.get(CTIME).cast_signed()
    }

    // Attributes.

    pub(crate) fn attrs(&self) -> Attrs {
        let (uid, gid) = halves(self.get(OWNER));
        let (_, mode) = halves(self.get(MODE));
        let (project, policy) = halves(self.get(POLICY_PROJECT));
        Attrs {
            mode,
            uid,
            gid,
            flags: halves(self.get(FLAGS)).1,
            project,
            policy: u8::try_from(policy).unwrap_or(0),
            xattrs: self.xattrs(),
        }
    }

    /// The permission, set-id and sticky bits.
    #[inline]
    pub(crate) fn mode_bits(&self) -> u32 {
        halves(self.get(MODE)).1
    }

    /// The update policy that the file has of its own; of a directory, that of what is made in it.
    #[inline]
    pub(crate) fn policy(&self) -> Option<UpdatePolicy> {
        let (_, policy) = halves(self.get(POLICY_PROJECT));
        UpdatePolicy::numbered(Mode::without(u8::try_from(policy).unwrap_or(0)))
    }

    /// The mode that the file has of its own; of a directory, that of what is made in it.
    #[inline]
    pub(crate) fn mode(&self) -> Option<Mode> {
        let (_, policy) = halves(self.get(POLICY_PROJECT));
        Mode::of_bits(u8::try_from(policy).unwrap_or(0))
    }

    pub(crate) fn set_attrs(&self, attrs: &Attrs, rdev: u32) {
        self.set(OWNER, pair(attrs.uid, attrs.gid));
        self.set(MODE, pair(rdev, attrs.mode));
        let xattrs = &attrs.xattrs;
        let sums = xattrs.summary << XATTR_PAGES_BITS | xattrs.pages;
        self.set(FLAGS, pair(sums, attrs.flags));
        self.set(POLICY_PROJECT, pair(attrs.project, u32::from(attrs.policy)));
        self.set(XATTR_ROOT, xattrs.root.raw());
    }

    /// Whether a certain attribute is among the extended ones: a `HAS_` bit of their first page.
    #[inline]
    pub(crate) fn has_xattr(&self, bit: u32) -> bool {
        halves(self.get(FLAGS)).0 >> XATTR_PAGES_BITS & bit != 0
    }

    /// Where the extended attributes lie.
    pub(crate) fn xattrs(&self) -> XattrSet {
        let (sums, _) = halves(self.get(FLAGS));
        XattrSet {
            root: PmAddr::from_raw(self.get(XATTR_ROOT)),
            pages: sums & ((1 << XATTR_PAGES_BITS) - 1),
            summary: sums >> XATTR_PAGES_BITS,
        }
    }

    pub(crate) fn rdev(&self) -> u32 {
        halves(self.get(MODE)).0
    }

    pub(crate) fn birth_ns(&self) -> i64 {
        self.get(BIRTH).cast_signed()
    }

    pub(crate) fn set_birth_ns(&self, birth_ns: i64) {
        self.set(BIRTH, birth_ns.cast_unsigned());
    }

    pub(crate) fn atime_ns(&self) -> i64 {
        self.get(ATIME).cast_signed()
    }

    pub(crate) fn set_atime_ns(&self, atime_ns: i64) {
        self.set(ATIME, atime_ns.cast_unsigned());
    }

    // Indexes.

    /// A file: page number to page address. A directory: cookie to address of the dentry.
    pub(crate) fn index(&self) -> Radix<'a> {
        Radix::new(self.index_word())
    }

    /// The root of the same.
    pub(crate) fn index_word(&self) -> &'a AtomicU64 {
        &self.words[INDEX]
    }

    /// A directory: hash of a name to place of the dentry.
    #[allow(clippy::indexing_slicing, reason = "a view has 20 pairs of words")]
    pub(crate) fn names(&self) -> NameTable<'a> {
        let (pairs, _) = self.words.as_chunks::<NAMES_WORDS>();
        NameTable::new(&pairs[NAMES / NAMES_WORDS])
    }

    /// The root of what [`crate::map::fill`] keeps: a file has no names.
    pub(crate) fn parked_word(&self) -> &'a AtomicU64 {
        &self.words[NAMES]
    }

    /// The root of the file's pairs ([`crate::inode::pairs`]): a file has no names.
    pub(crate) fn pairs_word(&self) -> &'a AtomicU64 {
        &self.words[NAMES + 1]
    }

    /// The words of [`crate::inode::buffer`].
    #[allow(clippy::indexing_slicing, reason = "a view has five lines")]
    pub(crate) fn buffer_words(&self) -> &'a [AtomicU64; 8] {
        let (lines, _) = self.words.as_chunks::<8>();
        &lines[BUFFER / 8]
    }

    // What only holders of the lock use.

    pub(crate) fn holds(&self) -> &'a AtomicU64 {
        &self.words[HOLDS]
    }

    pub(crate) fn log_pages(&self) -> u64 {
        u64::from(halves(self.get(LOG_PAGES)).1)
    }

    pub(crate) fn set_log_pages(&self, pages: u64) {
        // More would be 16 TB of log.
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        self.set(LOG_PAGES, pair(halves(self.get(LOG_PAGES)).0, pages));
    }

    /// Pages taken for the log and not linked yet.
    pub(crate) fn spare(&self) -> Extent {
        let addr = PmAddr::from_raw(self.get(SPARE_ADDR));
        Extent { addr, pages: self.get(SPARE_PAGES) }
    }

    pub(crate) fn set_spare(&self, spare: Extent) {
        self.set(SPARE_PAGES, 0);
        self.set(SPARE_ADDR, spare.addr.raw());
        self.set(SPARE_PAGES, spare.pages);
    }

    /// The log page after which collection goes on; null: at the head.
    pub(crate) fn gc_cursor(&self) -> PmAddr {
        PmAddr::from_raw(self.get(GC_CURSOR))
    }

    pub(crate) fn set_gc_cursor(&self, page: PmAddr) {
        self.set(GC_CURSOR, page.raw());
    }

    /// Pages of data, of the log and of extended attributes.
    pub(crate) fn pages(&self) -> u64 {
        self.get(DATA_PAGES) + self.log_pages() + u64::from(self.xattrs().pages)
    }

    /// The tree that it belongs to; 0: none.
    pub(crate) fn project(&self) -> u32 {
        halves(self.get(POLICY_PROJECT)).0
    }

    pub(crate) fn data_pages(&self) -> u64 {
        self.get(DATA_PAGES)
    }

    pub(crate) fn set_data_pages(&self, pages: u64) {
        self.set(DATA_PAGES, pages);
    }

    /// op_seq of the newest attributes entry, 0 where there is none.
    pub(crate) fn attr_seq(&self) -> u64 {
        self.get(ATTR_SEQ)
    }

    pub(crate) fn set_attr_seq(&self, op_seq: u64) {
        self.set(ATTR_SEQ, op_seq);
    }

    /// A directory's parent; 0 where it is not known.
    pub(crate) fn parent(&self) -> Ino {
        self.parent_word().ino()
    }

    /// The same, and the low bits of its generation.
    pub(crate) fn parent_word(&self) -> ParentWord {
        ParentWord::from_raw(self.get(PARENT))
    }

    /// Notes the parent that a look-up passed, unless it is known: a rename may be newer.
    pub(crate) fn note_parent(&self, parent: ParentWord) {
        let _known = self.words[PARENT].compare_exchange(
            0,
            parent.raw(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    pub(crate) fn set_parent(&self, parent: ParentWord) {
        self.set(PARENT, parent.raw());
    }

    pub(crate) fn next_cookie(&self) -> u64 {
        self.get(NEXT_COOKIE).max(COOKIE_MIN)
    }

    pub(crate) fn set_next_cookie(&self, cookie: u64) {
        self.set(NEXT_COOKIE, cookie);
    }

    /// Of a file: an operation that took all pages from one on out of the map, by op_seq and page.
    /// What older entries say of those counts no more. 0: none is known.
    pub(crate) fn cut(&self) -> (u64, u64) {
        (self.get(CUT_SEQ), u64::from(halves(self.get(LOG_PAGES)).0))
    }

    pub(crate) fn set_cut(&self, op_seq: u64, from: u64) {
        // One after 16 TB is not worth a word.
        let Ok(from) = u32::try_from(from) else { return };
        self.set(CUT_SEQ, op_seq);
        self.set(LOG_PAGES, pair(from, halves(self.get(LOG_PAGES)).1));
    }

    /// The page_seq of the log's last page.
    pub(crate) fn tail_page_seq(&self) -> u64 {
        self.get(TAIL_PAGE_SEQ)
    }

    pub(crate) fn set_tail_page_seq(&self, seq: u64) {
        self.set(TAIL_PAGE_SEQ, seq);
    }
}

/// Finds the views of inodes by number: one word each, in radix trees spread by number; and those that a
/// caller has used lately without a walk.
#[derive(Debug)]
pub(crate) struct Views {
    shards: Off,
    /// By hint, so that callers with hints of their own write nothing in common.
    lately: Box<[Lately; LATELY]>,
}

/// Where views are, or were: only a view says whose it is. By the low bits of the number.
#[derive(Debug)]
#[repr(align(128))]
struct Lately([AtomicU64; LATELY]);

const LATELY: usize = 64;

/// What a walk to an inode's view came to.
enum Walked<'a> {
    Found(View<'a>),
    Nowhere,
    /// Beyond what this process knows of the arena, or damaged.
    Unknown,
}

impl Lately {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

const SHARDS: u64 = 64;
const SHARD_WORDS: usize = 8;
const SHARD_BYTES: u64 = 64;
const SHARD_LOCK: u64 = 0;
const SHARD_ROOT: usize = 1;
const SHARD_ROOT_AT: u64 = 8;
/// A word of the first shard: the shard and the key that a round over all views is at.
const HAND: u64 = 2;
const HAND_SHIFT: u32 = 48;

impl Views {
    /// The tables that another client has made.
    pub(crate) fn attach(shards: u64) -> Self {
        Self::at(Off::from_raw(shards))
    }

    fn at(shards: Off) -> Self {
        Self { shards, lately: Box::new(std::array::from_fn(|_| Lately::new())) }
    }

    /// Where the tables are in the arena.
    pub(crate) fn place(&self) -> u64 {
        self.shards.raw()
    }

    /// The view whose lock is at `lock`, if it is one's.
    pub(crate) fn view_of_lock<'a>(&self, arena: &'a Arena, lock: Off) -> Result<Option<View<'a>>> {
        // Of a lock of another kind these words are others, which name no view or another one.
        let Ok(view) = View::at(arena, lock) else { return Ok(None) };
        let found = self.find(arena, view.ino())?;
        Ok(found.filter(|found| found.off() == lock))
    }

    pub(crate) fn create(arena: &Arena) -> Result<Self> {
        Ok(Self::at(arena.alloc_table((SHARDS * SHARD_BYTES / 8).ilog2())?))
    }

    #[inline]
    fn shard(&self, ino: Ino) -> (Off, u64) {
        // 64 neighbours share a shard, so that their keys are neighbours in its tree.
        let (group, low) = (ino.get() / 64, ino.get() % 64);
        (self.shards.add(group % SHARDS * SHARD_BYTES), group / SHARDS * 64 + low)
    }

    /// The view of an inode, where there is one. It may be dropped from here on: readers ask it
    /// again whose it is while its counter is even, others after its lock.
    #[inline]
    pub(crate) fn find<'a>(&self, arena: &'a Arena, ino: Ino) -> Result<Option<View<'a>>> {
        match self.walk(arena.known(), ino) {
            Walked::Found(view) => Ok(Some(view)),
            Walked::Nowhere => Ok(None),
            Walked::Unknown => self.find_checked(arena, ino),
        }
    }

    #[cold]
    fn find_checked<'a>(&self, arena: &'a Arena, ino: Ino) -> Result<Option<View<'a>>> {
        let (shard, key) = self.shard(ino);
        let off = Radix::new(arena.word(shard.add(SHARD_ROOT_AT))?).get(arena, key)?;
        if off == 0 {
            return Ok(None);
        }
        let view = View::at(arena, Off::from_raw(off))?;
        Ok(view.is_of(ino).then_some(view))
    }

    /// As [`Views::find`], as far as this process knows the arena.
    #[inline]
    fn walk<'a>(&self, arena: Known<'a>, ino: Ino) -> Walked<'a> {
        let (shard, key) = self.shard(ino);
        let Some(shard) = arena.block::<SHARD_WORDS>(shard) else { return Walked::Unknown };
        let off = Radix::new(&shard[SHARD_ROOT]).known(arena, key);
        match off.map(Off::from_raw) {
            None => Walked::Unknown,
            Some(Off::NULL) => Walked::Nowhere,
            Some(off) => match arena.block(off) {
                None => Walked::Unknown,
                Some(words) => {
                    let view = View { words, off };
                    if view.is_of(ino) { Walked::Found(view) } else { Walked::Nowhere }
                }
            },
        }
    }

    /// The view of an inode for a reader, as it stands while the count given stays: without a walk where
    /// the caller has used it lately. None also where there may be one.
    #[inline]
    pub(crate) fn known<'a>(
        &self,
        arena: Known<'a>,
        ino: Ino,
        hint: u32,
    ) -> Option<(View<'a>, u64)> {
        let lately = &self.lately.get(hint as usize % LATELY)?.0;
        let word = lately.get(usize::try_from(ino.get()).ok()? % LATELY)?;
        let off = Off::from_raw(word.load(Ordering::Relaxed));
        if let Some(words) = arena.block(off) {
            let view = View { words, off };
            let begun = view.read_begin()?;
            // Whose it is counts after the count alone: before, it may have been another's.
            if view.get(INO) == ino.get() | TOUCHED {
                return Some((view, begun));
            }
        }
        let view = self.walk_far(arena, ino)?;
        word.store(view.off.raw(), Ordering::Relaxed);
        let begun = view.read_begin()?;
        (view.ino() == ino).then_some((view, begun))
    }

    #[inline(never)]
    fn walk_far<'a>(&self, arena: Known<'a>, ino: Ino) -> Option<View<'a>> {
        match self.walk(arena, ino) {
            Walked::Found(view) => Some(view),
            Walked::Nowhere | Walked::Unknown => None,
        }
    }

    /// The view of an inode, made where there is none: not loaded, numbered, unlocked.
    pub(crate) fn find_or_make<'a>(
        &self,
        arena: &'a Arena,
        op: &novale_arena::Op<'_>,
        ino: Ino,
    ) -> Result<View<'a>> {
        let (shard, key) = self.shard(ino);
        let _guard = op.lock(shard.add(SHARD_LOCK * 8))?;
        let root = Radix::new(arena.word(shard.add(SHARD_ROOT_AT))?);
        let off = root.get(arena, key)?;
        if off != 0 {
            let view = View::at(arena, Off::from_raw(off))?;
            if !view.is_of(ino) {
                // A client that made or dropped it died before it said whose it is.
                view.set(INO, ino.get());
            }
            return Ok(view);
        }
        // Not cleared: a client that still reads what the block was before must see its counter rise, and
        // a client that still waits for its lock must be able to take it.
        let off = arena.alloc_uncleared(VIEW_CLASS)?;
        let view = View::at(arena, off)?;
        view.publish(|| (INO..WORDS).for_each(|word| view.set(word, 0)));
        match root.set(arena, key, off.raw()) {
            Ok(_) => {
                view.set(INO, ino.get());
                Ok(view)
            }
            Err(error) => {
                arena.free(VIEW_CLASS, off);
                Err(Error::from(error))
            }
        }
    }

    /// Takes the view of an inode out, whose lock the caller has, and gives its block back.
    pub(crate) fn remove(
        &self,
        arena: &Arena,
        op: &novale_arena::Op<'_>,
        ino: Ino,
        view: &View<'_>,
    ) -> Result<()> {
        let (shard, key) = self.shard(ino);
        let _guard = op.lock(shard.add(SHARD_LOCK * 8))?;
        view.publish(|| view.set_nobodys());
        Radix::new(arena.word(shard.add(SHARD_ROOT_AT))?).vacate(arena, key)?;
        arena.free(VIEW_CLASS, view.off());
        Ok(())
    }

    /// Visits up to `count` views after the place where the last such visit ended, round and round,
    /// until `visit` says that it is enough. Others are at work: a view may go meanwhile.
    pub(crate) fn visit_some(
        &self,
        arena: &Arena,
        count: usize,
        visit: &mut dyn FnMut(View<'_>) -> bool,
    ) -> Result<()> {
        let hand = arena.word(self.shards.add(HAND * 8))?;
        let now = hand.load(Ordering::Relaxed);
        let (mut shard, mut key) = (now >> HAND_SHIFT, now & ((1 << HAND_SHIFT) - 1));
        let (mut visited, mut ended) = (0, 0);
        while visited < count && ended <= SHARDS {
            let root = self.shards.add(shard % SHARDS * SHARD_BYTES + SHARD_ROOT_AT);
            let Some((found, off)) = Radix::new(arena.word(root)?).next(arena, key)? else {
                (shard, key) = ((shard + 1) % SHARDS, 0);
                ended += 1;
                continue;
            };
            key = found + 1;
            visited += 1;
            if visit(View::at(arena, Off::from_raw(off))?) {
                break;
            }
        }
        hand.store(shard << HAND_SHIFT | key, Ordering::Relaxed);
        Ok(())
    }

    /// Visits every view; no other client is at work.
    pub(crate) fn for_each(
        &self,
        arena: &Arena,
        visit: &mut dyn FnMut(View<'_>) -> Result<()>,
    ) -> Result<()> {
        for shard in 0..SHARDS {
            let root = arena.word(self.shards.add(shard * SHARD_BYTES + SHARD_ROOT_AT))?;
            let mut result = Ok(());
            Radix::new(root).for_each(arena, &mut |_, off| {
                if result.is_ok() {
                    result = View::at(arena, Off::from_raw(off)).and_then(&mut *visit);
                }
            })?;
            result?;
        }
        Ok(())
    }
}

//! Bugs that the lab switches on, one at a time, to see that it finds them. Each is one of another file
//! system, found by others in published work, or a trap of this design; `novale-lab bugs` says which.
//!
//! Only the feature `seeded-bugs`, which nothing but the lab asks for, compiles them in. Without it
//! `is_on` is a constant, and what stands after it is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use novale_layout::{LINE, PmAddr};
use novale_pm::{Flushed, Pm, Purpose};

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Bug {
    /// Recovery reads as many lanes' journals as there are CPUs: one.
    LanesByCpus = 1,
    /// A new inode's identity line stays in the cache.
    IdentityNotFlushed,
    /// Recovery's certificate takes the log's tail from the line that it rejects.
    TailOfRejected,
    /// A rename to another directory deletes the old name in a commit of its own.
    RenameInTwo,
    /// A directory that is moved away still counts in its old parent.
    ParentKeepsCount,
    /// A further name raises the link count in the line that stands.
    LinkCountInPlace,
    /// An operation commits under the number of the one before.
    SameNumber,
    /// A truncated file's pages stay in its index.
    CutPagesStay,
    /// The last line of a streamed page stays in the cache.
    StreamTailCached,
    /// Of a name's dentry only the first line is stored past the cache.
    LongNamesCut,
    /// The slots' state lines and the pool's share a fence.
    StateLinesTogether,
    /// Slot 0's state line shares a fence with those of the other slots.
    FirstSlotWithOthers,
    /// Inode pages are named before their lines are fenced.
    PagesNamedEarly,
    /// New inode pages are zeroed, so that no line of them says that it was never written.
    PagesOfZeros,
    /// Settling gives pages back that the logs name.
    SettledPagesTwice,
    /// Recovery leaves a rejected line without a certificate.
    RejectedNotEnded,
    /// Rejected records are erased together with the certificates.
    RecordsErasedLate,
    /// The commit line does not wait for what it rests on.
    NoFenceBehindData,
    /// The first line that an unaligned write touches stays in the cache.
    EdgeNotFlushed,
    /// Of an inode's records the last lane's counts.
    LaneOrder,
    /// A write of more than a page is two commits.
    WriteInTwo,
    /// A commit is shown before it is durable.
    ShownEarly,
    /// A truncation gives its pages back before it commits.
    FreedEarly,
    /// A record's own lines are not written back before its space is used again.
    OwnLinesForgotten,
    /// A line beside a torn one is believed without its checksum.
    TornNotAsked,
    /// The data checksum does not cover the data.
    DataNotSummed,
    /// The operations of a used inode number are counted anew.
    NumbersAnew,
    /// A commit overwrites the line that stands.
    LineOverStanding,
    /// Recovery does not erase rejected records.
    RejectedRecordStays,
    /// Recovery does not write back what it accepts of a log.
    AcceptedNotFlushed,
    /// Recovery walks the logs of inodes that have ended.
    EndedLogWalked,
    /// A gap beyond the old end of a file is not zeroed.
    GapNotZeroed,
    /// State lines are always written to the same place.
    StateInPlace,
    /// Collection drops every delete.
    CollectionResurrects,
    /// A session begins without clearing the clean mark.
    CleanMarkStays,
    /// Removing takes no pages of the reserve.
    NoReserve,
    /// Collection skips a page without a certificate before.
    NoCertificate,
    /// A skipped log page is used again before the pointer past it is fenced.
    SkipNotFenced,
    /// Settling does not make durable what it accepts.
    SettledNotFlushed,
    /// Settling leaves the views of a dead client's inodes as they were.
    SettledViewStays,
    /// The session rises before recovery has stored what stands.
    SessionFirst,
    /// A line that ends an inode is summed with the generation of its log.
    EndedWithGeneration,
    /// A certificate takes the number of the line that it replaces.
    CertificateSameNumber,
    /// Pages that move to other offsets stay mapped where they were.
    MovedPagesStay,
    /// Collection takes the hole of a move for dead, since what it moved is mapped again.
    MoveUncovers,
    /// Collection takes what a move maps for cut by the move's own hole.
    MoveCutsItself,
    /// The pages of extended attributes share a fence with the line that names them.
    XattrsNotFenced,
    /// Recovery counts twice what directory trees use.
    TreesCountedTwice,
    /// Both copies of the superblock are stored after one fence.
    FeatureCopiesTogether,
    /// The first line of a zeroed range's first page stays in the cache.
    ZeroEdgeCached,
    /// A copy of more than a page is two commits.
    CopyInTwo,
    /// A file without a name has a link.
    UnnamedLinked,
    /// A close leaves the inode numbers that lanes hold in use.
    LaneNumbersStay,
    /// A repair does not fence its commit lines.
    RepairLineNotFenced,
    /// Settling gives the piece again that was in hand.
    GivenTwice,
    /// A file is mapped without a certificate before.
    MapNotCertified,
    /// A commit that maps pages of a mapped file has a data checksum.
    MappedPagesSummed,
    /// What a truncation cuts off a mapped file is freed.
    ParkedFreed,
    /// The first line that a write changes in place stays in the cache.
    InPlaceCached,
    /// Pages that were cut off come back in a commit that is seen.
    UnparkedSeen,
    /// Of pages that lie one after the other a flush leaves the last one in the cache.
    FlushRunShort,
    /// What is published is a commit for each place.
    PublishInTwo,
    /// An append stores in place in a page that the standing checksum covers whole.
    AppendOverSummed,
    /// The first line of what an append stores in place stays in the cache.
    AppendNotFlushed,
    /// What recovery and settling accept of the end of a file is not written back.
    AcceptedEndCached,
    /// Recovery does not erase torn records.
    TornRecordStays,
    /// Recovery does not write back the state lines that it believes.
    StateLinesCached,
    /// A write in place needs no certificate.
    InPlaceNotCertified,
    /// What a write by the log stores in place has no fence.
    RedoNotFenced,
    /// Settling redoes what a log has before it is durable that this counts.
    RedoTooEarly,
    /// Recovery and settling do not redo what a log has.
    RedoForgotten,
    /// A write in place under an undo log has none.
    UndoNotLogged,
    /// The log of a write's old bytes is collected before the write counts.
    UndoCollected,
    /// A write under an undo log leaves a line of the new bytes in the cache.
    UndoneCached,
    /// A torn line stays while recovery stores what the log owes.
    TornLineStays,
    /// The bytes that a log names elsewhere in the pool are not written back.
    SourceCached,
    /// Recovery and settling take what lies where a log names bytes for those, whatever it is by now.
    SourceNotAsked,
    /// A paired write stores over the lines that are current.
    PairInPlace,
    /// The first line that a paired write stores stays in the cache.
    PairLineCached,
    /// Recovery does not know of the second copies of pages.
    PartnerForgotten,
    /// What recovery and settling accept of paired pages is not written back.
    AcceptedPairCached,
    /// A page that is mapped anew keeps its pair when the log is read.
    PairOutlivesPage,
    /// The partner of a page that is mapped anew is not freed.
    PartnerLost,
    /// A write stores to a slot in which another page of the file has its current line.
    SlotTakenTwice,
    /// A write stores over the lines that are current in slots.
    SlotInPlace,
    /// The first line that a write stores to slots is not flushed.
    SlotCached,
    /// A page in whose slots no line is current any more is not freed.
    SlotPageLost,
    /// Collection drops an entry by which a page has no slots any more.
    EndedSlotsDropped,
    /// A record's own lines are written back by the client that stores them, and fenced by the one that
    /// has the lane next, which does not write them back again.
    OwnLinesByAnother,
    /// A lane's record takes the place of the last one where that is another client's.
    RecordOverAnothers,
    /// What a commit of one file replaces is given back before the fence.
    ReplacedFreedEarly,
    /// Names are shown before the record that adds them is durable.
    NamesShownEarly,
    /// A file's lock is free while its commit is made durable.
    UnlockedEarly,
    /// Collection stores its certificate over the line that stands.
    CertificateOverStanding,
    /// Settling does not carry out a buffered write that has happened.
    BufferedWriteLost,
    /// A flush is two commits.
    FlushInTwo,
    /// The first line that a flush stores of a page stays in the cache.
    FlushLineCached,
    /// A file that takes another one's name is not flushed before.
    RenameNotFlushed,
    /// A sync leaves what is buffered where it is.
    SyncNotFlushed,
    /// A change of attributes commits the length that buffered writes have given the file.
    BufferedSizeCommitted,
    /// A write that is made directly goes to the pool past what is buffered.
    DirectPastBuffered,
    /// A flush gives the buffer up before its commit is durable.
    FlushedEarly,
    /// Settling drops what the buffer has of a file that its client had locked.
    SettledBufferDropped,
    /// A buffered write changes the file's blocks before it has happened.
    BufferedInPart,
    /// An access time counts before it is stored: the one before it, which was replaced, comes back.
    AccessCountsEarly,
    /// Settling does not give back what a dead client's commit has freed.
    ReleasedLost,
    /// Settling gives that back though the client was giving it back itself.
    ReleasedTwice,
    /// Who settles does not note that it gives the operation's own pages back.
    OwnGivenTwice,
    /// The first line of a page that leaves a slot stays in the cache.
    EmptiedLineCached,
    /// A view says of what kind it is when its load is done.
    LoadMarkedLate,
    /// A data checksum covers the address of the log page that new entries open, and not where the page
    /// before it ends.
    PageEndUncovered,
    /// A page that leaves a slot is named where it goes to before it is durable there.
    MovedPageNamedEarly,
    /// A slot says that it is another before it has all that the other has.
    SlotNamedEarly,
    /// A log that leaves a slot counts before its new pages are durable.
    MovedLogNamedEarly,
    /// A slot is added before it says durably which session it is of.
    AddedBeforeItsState,
    /// A slot is erased that left the pool by what a process stored that died before its fence.
    ErasedUnconfirmed,
}

static SWITCH: AtomicU8 = AtomicU8::new(0);

/// Switches a bug on, and every other one off, in all of this process.
#[cfg(feature = "seeded-bugs")]
pub fn switch(bug: Option<Bug>) {
    SWITCH.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
}

/// Whether the bug is switched on.
pub(crate) fn is_on(bug: Bug) -> bool {
    cfg!(feature = "seeded-bugs") && SWITCH.load(Ordering::Relaxed) == bug as u8
}

/// Whether another client was here last, by its slot; `place` says where.
pub(crate) fn by_another(place: u16, client: u32) -> bool {
    static LAST: Mutex<BTreeMap<u16, u32>> = Mutex::new(BTreeMap::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.insert(place, client).is_some_and(|last| last != client)
}

/// Streams all of `bytes` but the line at byte `cached`, which is left in the cache.
pub(crate) fn stream_but_a_line(pm: &Pm, addr: PmAddr, bytes: &[u8], cached: usize) -> Flushed {
    let (before, rest) = bytes.split_at(cached.min(bytes.len()));
    let (line, behind) = rest.split_at(rest.len().min(64));
    let at = addr.add(before.len() as u64);
    drop(pm.store(at, line, Purpose::Data));
    let behind = pm.stream(at.add(LINE), behind, Purpose::Data);
    pm.stream(addr, before, Purpose::Data).and(behind)
}

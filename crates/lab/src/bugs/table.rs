//! The seeded bugs: a row each, in the order of where they come from.

use novale_core::seeded::Bug;

/// A bug, and what catches it.
#[derive(Debug, Clone, Copy)]
pub struct SeededBug {
    /// Its name on the command line, and of its sequence's file.
    pub name: &'static str,
    /// The switch.
    pub bug: Bug,
    /// The file system that had it, or the section of the design that warns of it.
    pub from: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// How it shows.
    pub by: By,
    /// The text of the file that catches it: a replay file's, but where a repair is cut.
    pub sequence: &'static str,
}

/// What is done to a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The power is cut at its fences.
    PowerCut,
    /// A client dies at each store of its last step, another settles, and the power is cut then.
    Death,
    /// A client dies at stores to the arena of its last step, and another settles.
    ArenaDeath,
    /// A client dies in its last step, one that settles for it at stores to the arena, and another settles.
    SettlerDeath,
    /// A damaged pool is repaired, and the power is cut at the fences of that: a line with `safe` or
    /// `salvage` and a recipe.
    Repair,
}

/// The bug of that name.
pub fn named(name: &str) -> Option<SeededBug> {
    BUGS.iter().find(|seeded| seeded.name == name).copied()
}

/// A row, with the sequence from the folder of sequences.
macro_rules! bug {
    ($name:literal, $bug:ident, $by:ident, $from:literal, $what:literal) => {
        SeededBug {
            name: $name,
            bug: Bug::$bug,
            from: $from,
            what: $what,
            by: By::$by,
            sequence: include_str!(concat!("../../bugs/", $name, ".txt")),
        }
    };
}

/// All seeded bugs. Those of other file systems are from the studies Chipmunk (`EuroSys` '23) and
/// Vinter (ATC '22).
#[rustfmt::skip]
pub const BUGS: &[SeededBug] = &[
    bug!("lanes-by-cpus", LanesByCpus, PowerCut, "NOVA", "recovery indexes by the number of CPUs: it reads one lane's journal"),
    bug!("identity-not-flushed", IdentityNotFlushed, PowerCut, "NOVA", "a missing line flush leaves a new inode invalid"),
    bug!("tail-of-rejected", TailOfRejected, PowerCut, "NOVA", "recovery takes head and tail of a log from different states"),
    bug!("rename-in-two", RenameInTwo, PowerCut, "NOVA", "rename deletes the old dentry before the new one commits"),
    bug!("parent-keeps-count", ParentKeepsCount, PowerCut, "NOVA", "rename across directories leaves the parent undeletable"),
    bug!("link-count-in-place", LinkCountInPlace, PowerCut, "NOVA", "a link count is updated in place"),
    bug!("same-number", SameNumber, PowerCut, "NOVA", "entries of two callers are committed without an order"),
    bug!("cut-pages-stay", CutPagesStay, PowerCut, "NOVA", "pages are wrong after truncate and allocate"),
    bug!("stream-tail-cached", StreamTailCached, PowerCut, "NOVA", "the tail of a streaming copy stays in the cache"),
    bug!("long-names-cut", LongNamesCut, PowerCut, "NOVA", "long names are inaccessible after a crash"),
    bug!("state-lines-together", StateLinesTogether, PowerCut, "NOVA-Fortis", "a fence is missing between what is kept twice: the session of slots and pool"),
    bug!("first-slot-with-others", FirstSlotWithOthers, PowerCut, "DESIGN 5", "a session begins in all slots at once: one may be in it that slot 0, which tells, is not"),
    bug!("pages-named-early", PagesNamedEarly, PowerCut, "NOVA-Fortis", "two things are not made atomically: inode pages and the word that names them"),
    bug!("pages-of-zeros", PagesOfZeros, PowerCut, "DESIGN 5", "a new page of inodes is of zeros: no line of it says that it was never written"),
    bug!("settled-pages-twice", SettledPagesTwice, Death, "NOVA-Fortis", "blocks are freed twice in recovery"),
    bug!("rejected-not-ended", RejectedNotEnded, PowerCut, "NOVA-Fortis", "a refused checksum is left for the next recovery"),
    bug!("records-erased-late", RecordsErasedLate, PowerCut, "PMFS", "recovery replays one list before it has looked at the other: certificates before records are erased"),
    bug!("no-fence-behind-data", NoFenceBehindData, PowerCut, "PMFS, WineFS", "a fence is missing after data"),
    bug!("edge-not-flushed", EdgeNotFlushed, PowerCut, "PMFS, WineFS", "an edge line of an unaligned write is not flushed"),
    bug!("lane-order", LaneOrder, PowerCut, "WineFS", "per-CPU journals are read in the wrong order"),
    bug!("write-in-two", WriteInTwo, PowerCut, "WineFS", "a write is not atomic in strict mode"),
    bug!("shown-early", ShownEarly, Death, "DESIGN 1", "readers see what is later rolled back"),
    bug!("freed-early", FreedEarly, Death, "DESIGN 1", "pages are freed before the commit that frees them"),
    bug!("settled-not-flushed", SettledNotFlushed, Death, "DESIGN 4", "settling does not make durable what it accepts"),
    bug!("settled-view-stays", SettledViewStays, Death, "DESIGN 1", "the view of a dead client's inode is believed"),
    bug!("own-lines-forgotten", OwnLinesForgotten, PowerCut, "DESIGN 3, 4", "a fence completes its own thread's write-backs only: a record's own lines are not written back again"),
    bug!("torn-not-asked", TornNotAsked, PowerCut, "DESIGN 4", "the newest line is not checked beside a torn one"),
    bug!("data-not-summed", DataNotSummed, PowerCut, "DESIGN 4", "the data checksum leaves out what the commit needs"),
    bug!("numbers-anew", NumbersAnew, PowerCut, "DESIGN 4", "op_seq starts anew when an inode is used again"),
    bug!("line-over-standing", LineOverStanding, PowerCut, "DESIGN 4", "the line that stands is overwritten"),
    bug!("rejected-record-stays", RejectedRecordStays, PowerCut, "DESIGN 4", "a rejected record is not erased"),
    bug!("certificate-same-number", CertificateSameNumber, PowerCut, "DESIGN 4", "a certificate has the number of what it replaces"),
    bug!("accepted-not-flushed", AcceptedNotFlushed, PowerCut, "DESIGN 4", "recovery does not write back what it accepts"),
    bug!("session-first", SessionFirst, PowerCut, "DESIGN 4", "the session rises before rejected op_seqs have ended"),
    bug!("ended-log-walked", EndedLogWalked, PowerCut, "DESIGN 4", "recovery walks the log of an inode that has ended"),
    bug!("ended-with-generation", EndedWithGeneration, PowerCut, "DESIGN 4", "a record that ends an inode is judged by its next generation"),
    bug!("gap-not-zeroed", GapNotZeroed, PowerCut, "DESIGN 4", "the one who raises the end does not zero the gap"),
    bug!("state-in-place", StateInPlace, PowerCut, "DESIGN 4", "session and slot state change in place"),
    bug!("collection-resurrects", CollectionResurrects, PowerCut, "DESIGN 6", "collection drops a delete before what it cancels"),
    bug!("no-certificate", NoCertificate, PowerCut, "DESIGN 4, 6", "bytes that a checksum covers change without a certificate: collection skips a page"),
    bug!("skip-not-fenced", SkipNotFenced, PowerCut, "DESIGN 4, 6", "a log page is recycled before the pointer past it is durable"),
    bug!("page-end-uncovered", PageEndUncovered, PowerCut, "DESIGN 4", "a checksum covers which log page comes next, and not where the page before it ends"),
    bug!("clean-mark-stays", CleanMarkStays, PowerCut, "DESIGN 6", "the clean mark is not cleared before the first store"),
    bug!("moved-pages-stay", MovedPagesStay, PowerCut, "DESIGN 4", "pages that a collapse moves stay mapped where they were"),
    bug!("move-uncovers", MoveUncovers, PowerCut, "DESIGN 4", "collection drops a hole that still cancels"),
    bug!("move-cuts-itself", MoveCutsItself, PowerCut, "DESIGN 4", "collection drops what a collapse maps after its own hole"),
    bug!("xattrs-not-fenced", XattrsNotFenced, PowerCut, "DESIGN 4", "pages of extended attributes share a fence with the line that names them"),
    bug!("trees-counted-twice", TreesCountedTwice, PowerCut, "DESIGN 5", "recovery counts twice what directory trees use"),
    bug!("feature-copies-together", FeatureCopiesTogether, PowerCut, "DESIGN 4", "the superblock's two copies share a fence"),
    bug!("zero-edge-cached", ZeroEdgeCached, PowerCut, "DESIGN 4", "a line at the edge of a zeroed range is not flushed"),
    bug!("copy-in-two", CopyInTwo, PowerCut, "DESIGN 4", "a copy between files is not atomic"),
    bug!("unnamed-linked", UnnamedLinked, PowerCut, "DESIGN 3", "a file without a name outlives its process"),
    bug!("lane-numbers-stay", LaneNumbersStay, PowerCut, "DESIGN 5", "inode numbers that a lane holds stay in use when the pool is closed"),
    bug!("repair-line-not-fenced", RepairLineNotFenced, Repair, "DESIGN 7", "a repair calls the pool clean before its lines are durable"),
    bug!("given-twice", GivenTwice, ArenaDeath, "DESIGN 5", "settling frees the piece again that a dead client was freeing"),
    bug!("append-over-summed", AppendOverSummed, PowerCut, "DESIGN 3", "bytes that a checksum covers change in place: an append to a page that was summed whole"),
    bug!("append-not-flushed", AppendNotFlushed, PowerCut, "DESIGN 3", "a line that an append stores in place is not flushed"),
    bug!("accepted-end-cached", AcceptedEndCached, Death, "DESIGN 3", "settling accepts an append in place and does not write it back"),
    bug!("no-reserve", NoReserve, PowerCut, "DESIGN 6", "deletes fail on a full pool"),
    bug!("map-not-certified", MapNotCertified, PowerCut, "DESIGN 10", "a file is mapped whose last commit has a data checksum, over what changes then"),
    bug!("mapped-pages-summed", MappedPagesSummed, PowerCut, "DESIGN 10", "a commit that maps pages of a mapped file has a data checksum"),
    bug!("parked-freed", ParkedFreed, PowerCut, "DESIGN 10", "what a truncation cuts off a mapped file is freed"),
    bug!("in-place-cached", InPlaceCached, PowerCut, "DESIGN 10", "the first line that a write changes in place is not flushed"),
    bug!("in-place-not-certified", InPlaceNotCertified, PowerCut, "DESIGN 3", "bytes that a checksum covers change in place: by a write of the in-place method"),
    bug!("redo-not-fenced", RedoNotFenced, PowerCut, "DESIGN 3", "a write by the log does not fence what it stores in place"),
    bug!("redo-too-early", RedoTooEarly, Death, "DESIGN 3", "settling redoes what a log has before the line that it goes by is durable"),
    bug!("undo-not-logged", UndoNotLogged, PowerCut, "DESIGN 6", "a write in place has no log of the old bytes"),
    bug!("undo-collected", UndoCollected, PowerCut, "DESIGN 6", "the log of a write's old bytes is collected before the write counts"),
    bug!("undone-cached", UndoneCached, PowerCut, "DESIGN 6", "a write under an undo log leaves a line of its bytes in the cache"),
    bug!("torn-line-stays", TornLineStays, PowerCut, "DESIGN 6", "a torn line stays while what it says is undone, and the certificate over it completes it"),
    bug!("source-cached", SourceCached, PowerCut, "DESIGN 6", "the bytes that a log names elsewhere in the pool are not written back"),
    bug!("source-not-asked", SourceNotAsked, PowerCut, "DESIGN 6", "recovery takes for a write's bytes what lies where they lay"),
    bug!("redo-forgotten", RedoForgotten, PowerCut, "DESIGN 3", "recovery does not carry out what the log of a file has"),
    bug!("pair-in-place", PairInPlace, PowerCut, "DESIGN 3", "a paired write stores over the lines that are current"),
    bug!("pair-line-cached", PairLineCached, PowerCut, "DESIGN 3", "the first line that a paired write stores is not flushed"),
    bug!("partner-forgotten", PartnerForgotten, PowerCut, "DESIGN 3", "recovery does not know that second copies of pages are in use"),
    bug!("accepted-pair-cached", AcceptedPairCached, Death, "DESIGN 3", "settling accepts a paired write and does not write its lines back"),
    bug!("pair-outlives-page", PairOutlivesPage, PowerCut, "DESIGN 3", "a page that was mapped anew keeps its pair when the log is read"),
    bug!("partner-lost", PartnerLost, PowerCut, "DESIGN 3", "the second copy of a page that is mapped anew is not freed"),
    bug!("slot-taken-twice", SlotTakenTwice, PowerCut, "DESIGN 3", "a write stores to a slot in which another page has its current line"),
    bug!("slot-in-place", SlotInPlace, PowerCut, "DESIGN 3", "a write stores over the lines that are current in slots"),
    bug!("slot-cached", SlotCached, PowerCut, "DESIGN 3", "the first line that a write stores to slots is not flushed"),
    bug!("slot-page-lost", SlotPageLost, PowerCut, "DESIGN 3", "a page of slots that has no line any more is not freed"),
    bug!("ended-slots-dropped", EndedSlotsDropped, PowerCut, "DESIGN 3", "collection drops the entry by which a page has no slots any more"),
    bug!("unparked-seen", UnparkedSeen, PowerCut, "DESIGN 10", "pages that were cut off come back in a commit that changes the ctime"),
    bug!("flush-run-short", FlushRunShort, PowerCut, "DESIGN 10", "a flush leaves the last page of a run in the cache"),
    bug!("publish-in-two", PublishInTwo, PowerCut, "DESIGN 10", "what an atomic mapping publishes is a commit for each place"),
    bug!("state-lines-cached", StateLinesCached, PowerCut, "DESIGN 7", "recovery does not write back the state lines that it believes"),
    bug!("torn-record-stays", TornRecordStays, PowerCut, "DESIGN 3", "recovery leaves a torn record, which the next one in its place completes"),
    bug!("own-lines-by-another", OwnLinesByAnother, PowerCut, "DESIGN 3", "a record relies on the pending write-back of another client's own lines"),
    bug!("record-over-anothers", RecordOverAnothers, PowerCut, "DESIGN 3", "a record takes the place of another client's whose own lines are not durable"),
    bug!("replaced-freed-early", ReplacedFreedEarly, PowerCut, "DESIGN 1", "pages that a commit replaces are another client's before its fence"),
    bug!("names-shown-early", NamesShownEarly, PowerCut, "DESIGN 6", "other clients see names that are not durable"),
    bug!("unlocked-early", UnlockedEarly, PowerCut, "DESIGN 3", "an inode's lock is free before its commit is durable: another client's line goes over the standing one"),
    bug!("certificate-over-standing", CertificateOverStanding, PowerCut, "DESIGN 4, 6", "collection's certificate overwrites the line that stands: what others have read is taken back"),
    bug!("buffered-write-lost", BufferedWriteLost, ArenaDeath, "DESIGN 3, HiNFS", "settling leaves a buffered write half done"),
    bug!("flush-in-two", FlushInTwo, PowerCut, "DESIGN 3, HiNFS", "a flush is two commits: writes that came after others are there without them"),
    bug!("flush-line-cached", FlushLineCached, PowerCut, "DESIGN 3, HiNFS", "a flush leaves the first line of a page in the cache"),
    bug!("rename-not-flushed", RenameNotFlushed, PowerCut, "DESIGN 3, HiNFS", "a file takes another one's name with its bytes in the buffer alone"),
    bug!("sync-not-flushed", SyncNotFlushed, PowerCut, "DESIGN 3, HiNFS", "a sync leaves what is buffered where it is"),
    bug!("buffered-size-committed", BufferedSizeCommitted, PowerCut, "DESIGN 3, HiNFS", "a change of attributes commits a length whose bytes are buffered"),
    bug!("direct-past-buffered", DirectPastBuffered, PowerCut, "DESIGN 3, HiNFS", "a change that is made directly goes past what is buffered"),
    bug!("flushed-early", FlushedEarly, Death, "DESIGN 3, HiNFS", "a flush gives the buffer up before its commit is durable"),
    bug!("settled-buffer-dropped", SettledBufferDropped, Death, "DESIGN 3, HiNFS", "settling drops what the buffer has of a dead client's file"),
    bug!("buffered-in-part", BufferedInPart, ArenaDeath, "DESIGN 3, HiNFS", "a buffered write changes the file's blocks before it has happened"),
    bug!("access-counts-early", AccessCountsEarly, PowerCut, "SPEC, access time", "an access time counts before it is stored: one that was replaced comes back"),
    bug!("released-lost", ReleasedLost, Death, "DESIGN 5", "settling does not give back what a dead client's commit has freed"),
    bug!("own-given-twice", OwnGivenTwice, SettlerDeath, "DESIGN 5", "settling frees the pages again that a settler who died had freed"),
    bug!("released-twice", ReleasedTwice, ArenaDeath, "DESIGN 5", "settling gives back what a dead client's commit has freed, though the client had begun to"),
    bug!("emptied-line-cached", EmptiedLineCached, PowerCut, "DESIGN 5", "the first line of a page that leaves a slot is not flushed"),
    bug!("load-marked-late", LoadMarkedLate, ArenaDeath, "DESIGN 5", "names that a load has entered stay where its client dies, and are entered again"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::run::Subject;
    use super::*;

    #[test]
    fn each_switch_has_a_row_with_a_name_and_a_sequence() {
        let switches: BTreeSet<usize> = BUGS.iter().map(|seeded| seeded.bug as usize).collect();
        assert!(switches.into_iter().eq(1..=BUGS.len()));
        let names: BTreeSet<_> = BUGS.iter().map(|seeded| seeded.name).collect();
        assert_eq!(names.len(), BUGS.len());
        for seeded in BUGS {
            let parsed = Subject::parse(seeded.by, seeded.sequence);
            assert!(parsed.is_ok(), "{}: {parsed:?}", seeded.name);
        }
    }
}

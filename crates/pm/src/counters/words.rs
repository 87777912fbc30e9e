//! The words that a thread's counts are in, and what they say: other processes may read them.
//!
//! A store that a fence waits for costs about 2 ns more for each counter changed before the fence,
//! so the common calls change one each: whole lines are counted as lines, their bytes follow. A word
//! has one writer, so that counting takes no locked instruction.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::{ASKED_KINDS, Asked, Counters, SLOTS_MAX};
use crate::{LINE, Purpose, lines_touched};

/// A cache line of words.
pub(super) type Line = [AtomicU64; LINE_WORDS];
/// The lines of a slot: one for each purpose.
pub(super) type Row = [Line; Purpose::ALL.len()];

pub(super) const LINE_WORDS: usize = 8;
/// Lines before the rows: one of fences, five of what was asked for.
pub(super) const HEAD_LINES: usize = 6;

// Words of the first line.
/// Twice the fences that had something pending; the lowest bit: something is pending now.
const FENCES_WITH_PENDING: usize = 0;
const FENCES_WITHOUT: usize = 1;
const FENCES_BEFORE_COMMITS: usize = 2;
/// 1 where what is stored reaches the slot.
const IS_EADR: usize = 3;

/// In the other lines of the head, for each kind: how often, and how many bytes.
const ASKED_WORDS: usize = 2;
const _: () = assert!((HEAD_LINES - 1) * LINE_WORDS == ASKED_KINDS * ASKED_WORDS);

/// The word of a row's line after those of plain stores and of streaming ones, three each: whole lines,
/// and of other stores the lines and the bytes.
const WRITE_BACKS: usize = 6;

/// Lines for a pool of so many slots.
pub(super) const fn lines_for(slots: usize) -> usize {
    HEAD_LINES + slots * Purpose::ALL.len()
}

/// Not an atomic addition: there is one writer.
#[inline(always)]
fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed) + n, Relaxed);
}

/// One thread's counts for one pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shard<'a> {
    pub(super) head: &'a [Line; HEAD_LINES],
    /// By slot.
    pub(super) rows: &'a [Row],
}

impl Shard<'_> {
    /// The counts of `slot` and `purpose`; there are always some, as the access was checked.
    #[inline(always)]
    fn line(&self, slot: u8, purpose: Purpose) -> Option<&Line> {
        self.rows.get(usize::from(slot))?.get(purpose as usize)
    }

    /// A plain store of `len` bytes from byte `byte` of `slot`.
    #[inline(always)]
    pub(crate) fn stored(&self, purpose: Purpose, slot: u8, byte: u64, len: u64) {
        if let Some(line) = self.line(slot, purpose) {
            let [whole_lines, part_lines, part_bytes, ..] = line;
            add_store([whole_lines, part_lines, part_bytes], byte, len);
        }
    }

    /// A streaming store of `len` bytes from byte `byte` of `slot`.
    #[inline(always)]
    pub(crate) fn streamed(&self, purpose: Purpose, slot: u8, byte: u64, len: u64) {
        if let Some(line) = self.line(slot, purpose) {
            let [_, _, _, whole_lines, part_lines, part_bytes, ..] = line;
            add_store([whole_lines, part_lines, part_bytes], byte, len);
        }
        self.pend();
    }

    /// `lines` lines of `slot` are written back.
    #[inline(always)]
    pub(crate) fn written_back(&self, purpose: Purpose, slot: u8, lines: u64) {
        if let Some(line) = self.line(slot, purpose) {
            add(&line[WRITE_BACKS], lines);
        }
        self.pend();
    }

    #[inline(always)]
    fn pend(&self) {
        let word = &self.head[0][FENCES_WITH_PENDING];
        word.store(word.load(Relaxed) | 1, Relaxed);
    }

    /// A fence.
    #[inline(always)]
    pub(crate) fn fenced(&self) {
        let [line, ..] = self.head;
        if line[FENCES_WITH_PENDING].load(Relaxed) & 1 == 1 {
            // Clears the bit and carries one fence.
            add(&line[FENCES_WITH_PENDING], 1);
        } else {
            add(&line[FENCES_WITHOUT], 1);
        }
    }

    /// The last fence was one that a commit waited for before it stores its line.
    #[inline(always)]
    pub(crate) fn fenced_before_commit(&self) {
        add(&self.head[0][FENCES_BEFORE_COMMITS], 1);
    }

    /// Somebody has asked `times` for `bytes` to be stored, all together.
    #[inline(always)]
    pub(crate) fn asked(&self, kind: usize, times: u64, bytes: u64) {
        let words = self.head.as_flattened();
        let at = LINE_WORDS + kind % ASKED_KINDS * ASKED_WORDS;
        if let Some([count, sum]) = words.get(at..at + ASKED_WORDS) {
            add(count, times);
            add(sum, bytes);
        }
    }

    /// A thread begins to count: nothing is pending.
    pub(super) fn begin(&self, eadr: bool) {
        let [line, ..] = self.head;
        let fences = &line[FENCES_WITH_PENDING];
        fences.store(fences.load(Relaxed) & !1, Relaxed);
        line[IS_EADR].store(eadr.into(), Relaxed);
    }

    /// Adds what was counted elsewhere, word by word, but for how it was.
    pub(super) fn add_all(&self, words: &[u64]) {
        let own = self.head.as_flattened().iter().chain(self.rows.as_flattened().as_flattened());
        for (index, (word, more)) in own.zip(words).enumerate() {
            match index {
                IS_EADR => {}
                FENCES_WITH_PENDING => add(word, more & !1),
                _ => add(word, *more),
            }
        }
    }

    /// The words as they are.
    pub(super) fn snapshot(&self) -> Box<[u64]> {
        let own = self.head.as_flattened().iter().chain(self.rows.as_flattened().as_flattened());
        own.map(|word| word.load(Relaxed)).collect()
    }
}

/// Counts a store in the three words of its manner.
#[inline(always)]
fn add_store([whole_lines, part_lines, part_bytes]: [&AtomicU64; 3], byte: u64, len: u64) {
    if (byte | len).is_multiple_of(LINE) {
        add(whole_lines, len / LINE);
    } else {
        add(part_lines, lines_touched(byte, len));
        add(part_bytes, len);
    }
}

/// What was counted between two snapshots of the same words, all but how it was.
pub(super) fn since(now: &[u64], then: &[u64]) -> Box<[u64]> {
    let mut left: Box<[u64]> = now.into();
    for (index, (word, then)) in left.iter_mut().zip(then).enumerate() {
        match index {
            IS_EADR => {}
            FENCES_WITH_PENDING => *word = (*word & !1).saturating_sub(then & !1),
            _ => *word = word.saturating_sub(*then),
        }
    }
    left
}

/// What a snapshot says; words that are not there are 0.
pub(super) fn counters(words: &[u64]) -> Counters {
    let word = |index: usize| words.get(index).copied().unwrap_or_default();
    let with_pending = word(FENCES_WITH_PENDING) / 2;
    let mut counters = Counters {
        fences: with_pending + word(FENCES_WITHOUT),
        fences_with_pending: with_pending,
        fences_before_commits: word(FENCES_BEFORE_COMMITS),
        ..Counters::default()
    };
    for (kind, asked) in counters.asked.iter_mut().enumerate() {
        let at = LINE_WORDS + kind * ASKED_WORDS;
        *asked = Asked { count: word(at), bytes: word(at + 1) };
    }
    let eadr = word(IS_EADR) != 0;
    let (lines, _) = words.as_chunks::<LINE_WORDS>();
    let (rows, _) = lines.get(HEAD_LINES..).unwrap_or_default().as_chunks();
    for (row, slot_lines) in rows.iter().take(SLOTS_MAX).zip(&mut counters.slot_lines) {
        add_row(row, eadr, &mut counters.purposes, slot_lines);
    }
    counters
}

/// Adds to each slot the lines that were sent to it.
pub(super) fn add_slot_lines(words: &[AtomicU64], sent: &mut [u64]) {
    let (lines, _) = words.as_chunks::<LINE_WORDS>();
    let Some((head, rows)) = lines.split_first_chunk::<HEAD_LINES>() else { return };
    let eadr = head[0][IS_EADR].load(Relaxed) != 0;
    let (rows, _) = rows.as_chunks::<{ Purpose::ALL.len() }>();
    for (row, sent) in rows.iter().zip(sent) {
        *sent += row
            .iter()
            .map(|line| line_sent(&line.each_ref().map(|word| word.load(Relaxed)), eadr))
            .sum::<u64>();
    }
}

/// Of the counts of a slot and purpose, the lines that were sent to the slot.
fn line_sent(
    [plain_whole, plain_part, _, whole, part, _, write_backs, _]: &[u64; LINE_WORDS],
    eadr: bool,
) -> u64 {
    whole + part + write_backs + if eadr { plain_whole + plain_part } else { 0 }
}

/// Adds the counts of a slot.
fn add_row(
    row: &[[u64; LINE_WORDS]; Purpose::ALL.len()],
    eadr: bool,
    purposes: &mut [super::PurposeCounters; Purpose::ALL.len()],
    slot_lines: &mut u64,
) {
    for (line, purpose) in row.iter().zip(purposes) {
        let [plain_whole, plain_part, plain_bytes, whole, part, bytes, write_backs, _] = *line;
        let (plain, streamed) = (plain_whole + plain_part, whole + part);
        purpose.lines += plain + streamed;
        purpose.lines_streamed += streamed;
        purpose.write_backs += write_backs;
        purpose.bytes += (plain_whole + whole) * LINE + plain_bytes + bytes;
        *slot_lines += line_sent(line, eadr);
    }
}

//! Writes to the buffer: bytes go to blocks of the arena, and to the pool when the file is flushed.
//!
//! The caller's bytes are copied to blocks that nothing leads to, before the file is locked or, of a small
//! write, under the lock from a copy. Under it the lines that the write covers in part are filled up from
//! what the file has, and [`View::put_write`](crate::inode::view::View) makes the write happen. Pages of the
//! pool are reserved for it then, so that flushing finds room.
//!
//! Where there is no room, in the buffer, the arena or the pool, the write is made directly. So are writes
//! to files that somebody has mapped, that count for a directory tree with limits, or that have file
//! capabilities to lose: they flush what is buffered first, as every change of the file's bytes does.

use std::mem::MaybeUninit;

use novale_arena::{Arena, Off};
use novale_layout::{Ino, LINE, PAGE, XattrPageHeader};
use novale_policy::Mode;

use crate::base::error::{Error, Result};
use crate::base::extent::pages_touched;
use crate::base::lines::{line_mask, line_runs};
use crate::fs::Fs;
use crate::inode::buffer::{AfterWrite, Block, WRITE_BLOCKS_MAX, WriteBuffer};
use crate::inode::view::View;
use crate::op::call::Call;
use crate::op::counted::{Buffering, Written};
use crate::op::lock::Locked;
use crate::op::pages::{BUFFERING, RESERVING};
use crate::write::plan::{At, FILE_BYTES_MAX, FoundFile, page_pieces};
use crate::write::small::SMALL_BYTES_MAX;

/// Blocks of a file at most: flushing it holds its lock for the time that they take.
const FILE_BLOCKS_MAX: u64 = 4096;
/// The longest write that is buffered, in bytes.
const WRITE_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(WRITE_BYTES_MAX / 4096 < WRITE_BLOCKS_MAX, "a chain has room for each write");
/// Tries to guess where a file ends that others append to.
const TRIES: usize = 4;
/// Pages of its log that flushing a file may take beside one for so many blocks.
const LOG_PAGES: u64 = 4;
const BLOCKS_A_LOG_PAGE: u64 = 32;
const LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

/// Which way a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the pool, as the file or this client says.
    Strict,
    /// To the buffer.
    Lazy,
    /// To the pool, since it is likely to be synced before it is written again.
    Eager,
}

/// What came of a write that was to be buffered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffered {
    /// It is buffered, at this offset.
    Done(u64),
    /// The buffer has no room for it.
    Full,
    /// It is to be made directly.
    Direct,
}

/// A write in blocks that nothing leads to yet; dropped, they go back.
struct Staged<'a> {
    fs: &'a Fs,
    call: &'a Call<'a>,
    offset: u64,
    end: u64,
    blocks: Vec<Off>,
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        self.call.op.note_word(BUFFERING, 0);
        for block in &self.blocks {
            // What fails here is the arena, and the next operation says so.
            let _damage = self.fs.buffer.give(self.fs.arena(), *block);
        }
    }
}

/// Pages of the pool that are reserved for so many blocks of a file.
fn pages_for(blocks: u64) -> u64 {
    blocks + blocks.div_ceil(BLOCKS_A_LOG_PAGE) + LOG_PAGES
}

impl Fs {
    /// Whether writes to the file may be buffered, as far as it says itself and this client says otherwise.
    #[inline]
    fn is_lazy(&self, view: &View<'_>) -> bool {
        self.mode.is_some_and(|mode| view.mode().unwrap_or(mode) == Mode::Buffered)
    }

    /// Which way a write to the file goes.
    #[inline]
    pub(crate) fn way(&self, view: &View<'_>, now_ns: i64) -> Way {
        if !self.is_lazy(view) {
            Way::Strict
        } else if view.is_eager(now_ns, self.eager_ns()) {
            Way::Eager
        } else {
            Way::Lazy
        }
    }

    /// Puts a write into the buffer, where it is not to be made directly.
    #[inline(never)]
    pub(crate) fn write_buffered(
        &self,
        call: &Call<'_>,
        file: &FoundFile<'_>,
        at: At,
        data: &[u8],
    ) -> Result<Buffered> {
        if data.len() > WRITE_BYTES_MAX {
            return Ok(Buffered::Direct);
        }
        let written = if data.len() <= SMALL_BYTES_MAX {
            self.buffer_small(call, file, at, data)
        } else {
            self.buffer_large(call, file.ino, at, data)
        };
        match written {
            // The arena is full: it is not needed for a direct write.
            Err(Error::NoMemory) => Ok(Buffered::Direct),
            written => written,
        }
    }

    fn buffer_small(
        &self,
        call: &Call<'_>,
        file: &FoundFile<'_>,
        at: At,
        data: &[u8],
    ) -> Result<Buffered> {
        let mut room = [MaybeUninit::uninit(); SMALL_BYTES_MAX];
        let Some(data) = novale_crc::copy(data, &mut room, data.len(), &mut []) else {
            return Err(Error::TooLarge);
        };
        let locked = self.lock_found(call, file.ino, file.view)?;
        let offset = offset_of(&locked.view, at);
        if Self::has_too_much(&locked.view, pages_touched(offset, data.len() as u64)) {
            self.flush(call, &locked)?;
        }
        let Some(staged) = self.stage(call, offset, data)? else { return Ok(Buffered::Full) };
        self.put(call, &locked, staged)
    }

    fn buffer_large(&self, call: &Call<'_>, ino: Ino, at: At, data: &[u8]) -> Result<Buffered> {
        for _ in 0..TRIES {
            let offset = self.read_view(call, ino, |view, _| Ok(offset_of(view, at)))?;
            let Some(staged) = self.stage(call, offset, data)? else { return Ok(Buffered::Full) };
            let locked = self.lock(call, ino)?;
            if Self::has_too_much(&locked.view, staged.blocks.len() as u64) {
                // Its commit forgets what the operation has noted.
                drop(staged);
                self.flush(call, &locked)?;
            } else if offset_of(&locked.view, at) == offset {
                return self.put(call, &locked, staged);
            }
        }
        Ok(Buffered::Direct)
    }

    /// Whether a file has so much in the buffer that a write of so many blocks waits for a flush.
    fn has_too_much(view: &View<'_>, more: u64) -> bool {
        view.buffer_counts().0 + more > FILE_BLOCKS_MAX
    }

    /// Copies a write to new blocks; none where the buffer has no room for it.
    fn stage<'a>(
        &'a self,
        call: &'a Call<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<Staged<'a>>> {
        let end = offset.saturating_add(data.len() as u64);
        if end > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let (arena, buffer): (&Arena, WriteBuffer) = (self.arena(), self.buffer);
        if !buffer.has_room(arena, pages_touched(offset, end - offset))? {
            return Ok(None);
        }
        let mut staged = Staged { fs: self, call, offset, end, blocks: Vec::new() };
        let mut last: Option<Block<'_>> = None;
        for piece in page_pieces(offset, data) {
            let block = buffer.take(arena, piece.file_page)?;
            staged.blocks.push(block.off());
            match last.replace(block) {
                Some(before) => before.set_next(block.off()),
                // Whoever settles for this client gives them back, from the first one on.
                None => call.op.note_word(BUFFERING, block.off().raw()),
            }
            block.put(piece.from, piece.bytes)?;
            block.add_lines(line_mask(&(piece.from..piece.from + piece.bytes.len() as u64)));
        }
        Ok(Some(staged))
    }

    /// Makes a write happen that is in blocks, under the lock of its file; not where it is to be made
    /// directly.
    fn put(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        mut staged: Staged<'_>,
    ) -> Result<Buffered> {
        let view = &locked.view;
        self.check_data(view, locked.kind)?;
        if !self.may_buffer(view) {
            return Ok(Buffered::Direct);
        }
        let (arena, count) = (self.arena(), staged.blocks.len() as u64);
        if view.has_old_blocks() {
            self.give_buffer(view)?;
        }
        let first = staged.offset / PAGE;
        // What flushing needs of the arena is there from now on.
        self.room_in_index(view, first, count)?;
        view.reserve_blocks(arena, first..first + count)?;
        self.fill_up(view, &staged)?;
        // Of a slot that fails while it is read there are zeros, which are not to be taken for the file's bytes.
        self.check_slots(call)?;
        let Some(after) = self.reserve_room(view, &staged, call.now_ns)? else {
            return Ok(Buffered::Direct);
        };
        let blocks = std::mem::take(&mut staged.blocks);
        view.put_write(arena, self.buffer, &blocks, after, || {
            call.op.note_word(RESERVING, 0);
            call.op.note_word(BUFFERING, 0);
        })?;
        let bytes = staged.end - staged.offset;
        view.add_to_tally(staged.end.div_ceil(LINE) - staged.offset / LINE, 0);
        self.count_written(Written::Buffered, bytes);
        self.tell_if_low()?;
        Ok(Buffered::Done(staged.offset))
    }

    /// Whether a file is such that its writes may be buffered.
    fn may_buffer(&self, view: &View<'_>) -> bool {
        self.is_lazy(view)
            && !view.is_dax()
            && !view.is_kernels()
            && view.project() == 0
            && !view.has_xattr(XattrPageHeader::HAS_CAPABILITY)
    }

    /// Fills the lines up that the write covers in part.
    fn fill_up(&self, view: &View<'_>, staged: &Staged<'_>) -> Result<()> {
        let Staged { offset, end, .. } = *staged;
        let arena = self.arena();
        let ends = [(offset / LINE * LINE..offset, 0), (end..end.next_multiple_of(LINE), 1)];
        let fetched = ends.iter().filter(|(bytes, _)| !bytes.is_empty()).count() as u64;
        if fetched > 0 {
            self.count_buffering(Buffering::Fetched, [1, fetched]);
        }
        for (bytes, which) in ends {
            if bytes.is_empty() {
                continue;
            }
            let block = if which == 0 { staged.blocks.first() } else { staged.blocks.last() };
            let Some(block) = block else { continue };
            let mut line = [0; LINE_BYTES];
            let len = usize::try_from(bytes.end - bytes.start).unwrap_or(0);
            let line = line.get_mut(..len).unwrap_or_default();
            self.copy_out(view, bytes.start, line)?;
            WriteBuffer::block(arena, *block)?.put(bytes.start % PAGE, line)?;
        }
        if self.buffer.rules.by_lines { Ok(()) } else { self.fill_whole(view, staged) }
    }

    /// Fills blocks up that the write begins, as a cache of pages does.
    #[cold]
    fn fill_whole(&self, view: &View<'_>, staged: &Staged<'_>) -> Result<()> {
        let arena = self.arena();
        for block in &staged.blocks {
            let block = WriteBuffer::block(arena, *block)?;
            if block.mask() == u64::MAX || view.block(arena, block.page())?.is_some() {
                continue;
            }
            let mut page = [0; PAGE_BYTES];
            self.load_page(view, block.page(), &mut page)?;
            for run in line_runs(!block.mask(), 0..PAGE).filter(|run| run.in_partner) {
                let [from, to] =
                    [run.bytes.start, run.bytes.end].map(|at| usize::try_from(at).unwrap_or(0));
                block.put(run.bytes.start, page.get(from..to).unwrap_or_default())?;
            }
            self.count_buffering(Buffering::Fetched, [1, u64::from(block.mask().count_zeros())]);
            block.add_lines(u64::MAX);
        }
        Ok(())
    }

    /// Reserves pages of the pool for what the file has in the buffer after the write; none where there are
    /// not so many.
    fn reserve_room(
        &self,
        view: &View<'_>,
        staged: &Staged<'_>,
        now_ns: i64,
    ) -> Result<Option<AfterWrite>> {
        let arena = self.arena();
        let (mut blocks, reserved_before) = view.buffer_counts();
        let mut hits = [0, 0];
        for new in &staged.blocks {
            let new = WriteBuffer::block(arena, *new)?;
            if let Some(block) = view.block(arena, new.page())? {
                let again = u64::from((block.mask() & new.mask()).count_ones());
                hits = [hits[0] + 1, hits[1] + again];
            } else {
                blocks += 1;
            }
        }
        if hits[0] > 0 {
            self.count_buffering(Buffering::Hit, hits);
        }
        let reserved = pages_for(blocks);
        let more = reserved.saturating_sub(reserved_before);
        if more > 0 {
            if !self.allocator.reserve_pages(arena, more)? {
                return Ok(None);
            }
            staged.call.op.note_word(RESERVING, more);
        }
        let size = view.seen_size().max(staged.end);
        Ok(Some(AfterWrite { size, now_ns, blocks, reserved: reserved.max(reserved_before) }))
    }
}

/// Where a write goes, of a file that is so just now.
fn offset_of(view: &View<'_>, at: At) -> u64 {
    match at {
        At::Offset(offset) => offset,
        At::End => view.seen_size(),
    }
}

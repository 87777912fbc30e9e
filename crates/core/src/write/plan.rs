//! The way in of a write, and how it is made: the plan, from what the policy says of the write's shape.
//! It is made once without the lock, to know what can be prepared, and again under it; what writes then
//! asks no more. Where the file is as it was, the plan stands.
//!
//! A method is a file of this room, an arm where methods are told apart, here and in [`Fs::write_small`], and its place
//! in the policy.

use novale_layout::{FileKind, Ino, PAGE, RoFeature};
use novale_policy::{Method, WriteShape};

use crate::base::error::{Error, Result};
use crate::base::extent::pages_touched;
use crate::base::types::{Ctx, SourceRun};
use crate::fs::Fs;
use crate::inode::view::View;
use crate::log::FILE_PAGES_MAX;
use crate::op::call::{Call, OpKind};
use crate::op::lock::regular;
use crate::seeded::{self, Bug};
use crate::space::Need;
use crate::write::buffered::{Buffered, Way};
use crate::write::small::SMALL_BYTES_MAX;

/// Greatest length of a file, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = FILE_PAGES_MAX * PAGE;
/// Largest write that is checked for being an overwrite, in pages.
const OVERWRITE_PAGES_MAX: u64 = 512;
const PAGE_BYTES: usize = 4096;

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// To this byte.
    Offset(u64),
    /// To the end of the file.
    End,
}

/// What is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteBytes<'a> {
    pub(crate) data: &'a [u8],
    /// Where the bytes lie in the pool, as far as the writer knows; empty: they do not.
    pub(crate) source: &'a [SourceRun],
    /// It is to be durable before the call returns, whatever mode the file is in.
    pub(crate) is_durable: bool,
}

impl<'a> WriteBytes<'a> {
    fn of(data: &'a [u8]) -> Self {
        Self { data, source: &[], is_durable: false }
    }
}

/// How a write is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WritePlan {
    pub(crate) method: Method,
    /// The first byte written.
    pub(crate) offset: u64,
    /// The byte after the last one.
    pub(crate) end: u64,
    /// Whether the commit takes the single-fence form.
    pub(crate) is_single: bool,
    /// What it was made of.
    shape: WriteShape,
}

impl WritePlan {
    /// The first page of the file that it touches.
    pub(crate) fn first_page(&self) -> u64 {
        self.offset / PAGE
    }

    /// How many pages it touches.
    pub(crate) fn pages(&self) -> u64 {
        pages_touched(self.offset, self.end - self.offset)
    }
}

/// What a write has for one page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PagePiece<'d> {
    pub(crate) file_page: u64,
    /// The first byte of the page that it writes.
    pub(crate) from: u64,
    pub(crate) bytes: &'d [u8],
}

impl PagePiece<'_> {
    /// Where it begins in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.file_page * PAGE + self.from
    }
}

/// What a write at `offset` has for each page that it touches.
pub(crate) fn page_pieces(mut offset: u64, mut data: &[u8]) -> impl Iterator<Item = PagePiece<'_>> {
    std::iter::from_fn(move || {
        let (file_page, from) = (offset / PAGE, offset % PAGE);
        let room = usize::try_from(PAGE - from).unwrap_or(0);
        let (bytes, later) = data.split_at(data.len().min(room));
        (offset, data) = (offset + bytes.len() as u64, later);
        (!bytes.is_empty()).then_some(PagePiece { file_page, from, bytes })
    })
}

/// A file that is to be written, and its view where that was found without a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundFile<'a> {
    pub(crate) ino: Ino,
    pub(crate) view: Option<View<'a>>,
}

/// The feature of the superblock that a method uses beside the log's own entries; what appends need
/// [`Fs::may_append`] sees to.
fn feature(method: Method) -> Option<RoFeature> {
    match method {
        Method::FineLog | Method::Undo => Some(RoFeature::Redo),
        Method::Paired => Some(RoFeature::Pairs),
        Method::Source => Some(RoFeature::Sources),
        Method::Lawn => Some(RoFeature::Slots),
        Method::CopyOnWrite | Method::Append | Method::InPlace => None,
    }
}

/// What a policy is to see of a write to a file that is so just now.
#[inline]
fn shape(view: &View<'_>, at: At, len: u64, has_source: bool) -> WriteShape {
    // What is buffered is flushed before a write that is planned by this.
    let size = view.seen_size();
    let offset = match at {
        At::Offset(offset) => offset,
        At::End => size,
    };
    WriteShape { offset, len, size, is_mapped: view.is_dax(), own: view.policy(), has_source }
}

impl Fs {
    /// Writes `data` at `offset`; holes before it read as zeros. All of it or nothing, but where the
    /// policy says in place.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoMemory`] and [`Error::TooLarge`] before anything changed;
    /// [`Error::Invalid`] and [`Error::IsDirectory`] for what is no regular file.
    pub fn write(&self, ctx: &Ctx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        if let Some((first, rest)) = data.split_at_checked(PAGE_BYTES)
            && !rest.is_empty()
            && seeded::is_on(Bug::WriteInTwo)
        {
            let written = self.write(ctx, ino, offset, first)?;
            return Ok(written + self.write(ctx, ino, offset + PAGE, rest)?);
        }
        self.write_at(ctx, ino, At::Offset(offset), &WriteBytes::of(data))?;
        Ok(data.len())
    }

    /// As [`Fs::write`], of bytes that lie in this pool: `source` says where, one run after the other, and
    /// `data` is what the caller sees there. They lie in pages of files that somebody holds to be mapped
    /// ([`Fs::map_hold`]) until this returns. Where the file's policy is
    /// [`UpdatePolicy::Zcl`](novale_policy::UpdatePolicy::Zcl) they are the redo log of the write.
    ///
    /// # Errors
    /// As [`Fs::write`].
    pub fn write_from(
        &self,
        ctx: &Ctx,
        ino: Ino,
        offset: u64,
        data: &[u8],
        source: &[SourceRun],
    ) -> Result<usize> {
        let written = WriteBytes { source, ..WriteBytes::of(data) };
        self.write_at(ctx, ino, At::Offset(offset), &written)?;
        Ok(data.len())
    }

    /// Writes `data` at the end of the file, wherever that is by then; returns that offset.
    ///
    /// # Errors
    /// As [`Fs::write`].
    pub fn append(&self, ctx: &Ctx, ino: Ino, data: &[u8]) -> Result<u64> {
        self.write_at(ctx, ino, At::End, &WriteBytes::of(data))
    }

    /// As [`Fs::write`], or [`Fs::append`] without an offset, durable when it returns in any mode, with all
    /// that was written to the file before (`O_DSYNC`); returns where that was.
    ///
    /// # Errors
    /// As [`Fs::write`].
    pub fn write_durable(
        &self,
        ctx: &Ctx,
        ino: Ino,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<u64> {
        let at = offset.map_or(At::End, At::Offset);
        let written = WriteBytes { is_durable: true, ..WriteBytes::of(data) };
        self.write_at(ctx, ino, at, &written)
    }

    /// Writes, and returns where that was.
    fn write_at(&self, ctx: &Ctx, ino: Ino, at: At, written: &WriteBytes<'_>) -> Result<u64> {
        self.with_memory(|| self.write_once(ctx, ino, at, written))
    }

    fn write_once(&self, ctx: &Ctx, ino: Ino, at: At, written: &WriteBytes<'_>) -> Result<u64> {
        let data = written.data;
        self.may_append(ctx, data.len())?;
        let mut has_made_room = false;
        loop {
            let call = self.begin(OpKind::Write, ctx)?;
            let (file, shape, way) = self.find_file(&call, ino, at, written)?;
            if data.is_empty() {
                return Ok(shape.offset);
            }
            if way == Way::Eager && !written.is_durable {
                self.note_eager(&file, &shape)?;
            }
            if way == Way::Lazy && !written.is_durable {
                if !self.is_used(RoFeature::Pairs) {
                    drop(call);
                    self.use_feature(ctx, RoFeature::Pairs)?;
                    continue;
                }
                match self.write_buffered(&call, &file, at, data)? {
                    Buffered::Done(offset) => return Ok(offset),
                    Buffered::Full if self.outgrows_buffer(&shape)? => {
                        self.go_past_buffer(ino, call.now_ns)?;
                    }
                    Buffered::Full if !has_made_room => {
                        drop(call);
                        self.make_room_in_buffer(ctx, pages_touched(shape.offset, shape.len))?;
                        has_made_room = true;
                        continue;
                    }
                    Buffered::Full | Buffered::Direct => {}
                }
            }
            let plan = self.plan(shape)?;
            if let Some(feature) = feature(plan.method).filter(|feature| !self.is_used(*feature)) {
                // Before the operation has any lock, so in one of its own.
                drop(call);
                self.use_feature(ctx, feature)?;
                continue;
            }
            return if data.len() <= SMALL_BYTES_MAX {
                self.write_small(&call, file, at, &plan, written)
            } else {
                self.write_large(&call, ino, at, plan, data)
            };
        }
    }

    /// A regular file, the shape of a write to it just now, and which way it goes.
    fn find_file(
        &self,
        call: &Call<'_>,
        ino: Ino,
        at: At,
        written: &WriteBytes<'_>,
    ) -> Result<(FoundFile<'_>, WriteShape, Way)> {
        let (len, has_source) = (written.data.len() as u64, !written.source.is_empty());
        let mut shape_of = |view: &View<'_>, kind: FileKind| {
            regular(kind).map(|()| (shape(view, at, len, has_source), self.way(view, call.now_ns)))
        };
        let view = self.views.find(self.arena(), ino)?;
        if let Some(view) = view
            && let Some((shape, way)) = self.read_of(&view, ino, &mut shape_of)?
        {
            return Ok((FoundFile { ino, view: Some(view) }, shape, way));
        }
        let (shape, way) = self.read_view(call, ino, shape_of)?;
        Ok((FoundFile { ino, view: None }, shape, way))
    }

    /// How a write of that shape is made.
    #[inline]
    pub(crate) fn plan(&self, shape: WriteShape) -> Result<WritePlan> {
        self.plan_by(self.update.method(&shape), shape)
    }

    #[inline]
    fn plan_by(&self, method: Method, shape: WriteShape) -> Result<WritePlan> {
        let WriteShape { offset, len, .. } = shape;
        let end = offset.saturating_add(len);
        if end > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let mut plan = WritePlan { method, offset, end, is_single: false, shape };
        plan.is_single = len <= SMALL_BYTES_MAX as u64
            && match method {
                Method::CopyOnWrite => self.is_single(plan.pages() * PAGE),
                Method::Append | Method::FineLog | Method::Paired | Method::Lawn | Method::Undo => {
                    self.is_single(len)
                }
                Method::InPlace | Method::Source => false,
            };
        Ok(plan)
    }

    /// The same write by copies of its pages.
    pub(crate) fn as_copy(&self, plan: &WritePlan) -> Result<WritePlan> {
        self.plan_by(Method::CopyOnWrite, plan.shape)
    }

    /// How a write is made, now that its file is locked; none where that is as `expected` before.
    #[inline]
    pub(crate) fn plan_again(
        &self,
        view: &View<'_>,
        at: At,
        expected: &WritePlan,
    ) -> Result<Option<WritePlan>> {
        let shape = shape(view, at, expected.shape.len, expected.shape.has_source);
        let stands = match expected.method {
            Method::FineLog | Method::Undo | Method::Source => false,
            Method::InPlace => !view.has_pairs(),
            Method::CopyOnWrite | Method::Append | Method::Paired | Method::Lawn => true,
        };
        if shape == expected.shape && stands {
            return Ok(None);
        }
        self.plan_anew(view, shape).map(Some)
    }

    #[cold]
    fn plan_anew(&self, view: &View<'_>, shape: WriteShape) -> Result<WritePlan> {
        let plan = self.plan(shape)?;
        let (first, pages) = (plan.first_page(), plan.pages());
        let is_copied = match plan.method {
            // A hole has no bytes to go over.
            Method::FineLog | Method::Source => {
                !self.is_whole(view, first, pages)? || self.is_paired(view, first, pages)?
            }
            Method::InPlace | Method::Undo => self.is_paired(view, first, pages)?,
            Method::CopyOnWrite | Method::Append | Method::Paired | Method::Lawn => false,
        };
        // The file may have got another policy since the superblock was asked.
        let is_unsaid = feature(plan.method).is_some_and(|feature| !self.is_used(feature));
        if is_copied || is_unsaid { self.plan_by(Method::CopyOnWrite, shape) } else { Ok(plan) }
    }

    /// Whether any of these pages of a file has two copies.
    fn is_paired(&self, view: &View<'_>, first: u64, pages: u64) -> Result<bool> {
        if !view.has_pairs() {
            return Ok(false);
        }
        let next = view.next_pair(self.arena(), first)?;
        Ok(next.is_some_and(|page| page < first + pages))
    }

    /// What new pages for so many of a file are wanted for. Overwrites may use the reserve: they give
    /// back as much as they take.
    pub(crate) fn need_of(&self, view: &View<'_>, first: u64, pages: u64) -> Result<Need> {
        let is_growth = pages > OVERWRITE_PAGES_MAX
            || self.allocator.is_roomy(self.arena())?
            || !self.is_whole(view, first, pages)?;
        Ok(if is_growth { Need::Growth } else { Need::Release })
    }

    /// Whether none of these pages of a file is a hole.
    fn is_whole(&self, view: &View<'_>, first: u64, pages: u64) -> Result<bool> {
        for page in first..first + pages {
            if view.index().get(self.arena(), page)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

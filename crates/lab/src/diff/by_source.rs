//! A copy by a write from where the bytes lie: what a program does that writes from a mapping of a file.

use novale_core::{Ctx, FileKind, Fs, Place, Result, Seek, SourceRun, UpdatePolicy};
use novale_layout::PAGE;

use super::mapping::map;

/// Bytes that are written so, at most.
const BYTES_MAX: u64 = 8192;

/// Copies so where the pool's writes are logged by their sources, and the range has no hole, which a
/// mapping would fill; none: as others do.
pub(super) fn copy(fs: &Fs, ctx: &Ctx, from: Place, to: Place, len: u64) -> Option<Result<u64>> {
    let attr = fs.getattr(from.ino).ok().filter(|attr| attr.kind == FileKind::File)?;
    let len = len.min(attr.size.checked_sub(from.offset)?);
    let end = from.offset + len;
    let is_tried = fs.update_policy() == UpdatePolicy::Zcl && from.ino != to.ino;
    if !is_tried || !(1..=BYTES_MAX).contains(&len) {
        return None;
    }
    let hole = fs.seek(from.ino, from.offset, Seek::Hole).ok()?;
    (hole >= end).then(|| write(fs, ctx, from, to, len))
}

fn write(fs: &Fs, ctx: &Ctx, from: Place, to: Place, len: u64) -> Result<u64> {
    let hold = map(fs, ctx, from.ino)?.hold();
    let end = from.offset + len;
    let first = from.offset / PAGE;
    let runs = fs.map_pages(ctx, hold, first, end.div_ceil(PAGE) - first)?;
    let source: Vec<SourceRun> = runs.iter().map(|run| run.bytes(&(from.offset..end))).collect();
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    fs.read(ctx, from.ino, from.offset, &mut bytes)?;
    let written = fs.write_from(ctx, to.ino, to.offset, &bytes, &source);
    fs.open_release(ctx, hold)?;
    written.map(|count| count as u64)
}

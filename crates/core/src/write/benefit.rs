//! Which files' writes go past the buffer (`HiNFS`' Buffer Benefit Model).
//!
//! Each sync says whether buffering what was written since the one before took less time than writing it
//! directly would have, or would have taken less; writes after it go by that, until no sync has come for so
//! long. A new file begins as the files did that were made in its directory before it. What goes past the
//! buffer is written as in strict mode, by a method of its own, so that a wrong guess costs time alone.

use novale_layout::{Ino, PAGE};
use novale_policy::{BufferCosts, Tally, WriteShape};

use crate::base::error::Result;
use crate::fs::Fs;
use crate::inode::benefit::Verdict;
use crate::inode::view::View;
use crate::op::counted::Buffering;
use crate::write::plan::FoundFile;

impl Fs {
    /// For how long a verdict holds that writes are to go past the buffer; none does without the model.
    #[inline]
    pub(crate) fn eager_ns(&self) -> i64 {
        let rules = self.buffer.rules;
        if rules.has_model { i64::from(rules.eager_ms) * 1_000_000 } else { 0 }
    }

    /// What the pool's memory takes.
    fn buffer_costs(&self) -> BufferCosts {
        let own = BufferCosts::OWN;
        let line_ns = self.pm.device().and_then(|device| device.write_ns);
        let fence_ns = self.options.costs.map(|costs| u64::from(costs.fence_ns));
        BufferCosts {
            line_ns: line_ns.unwrap_or(0).max(own.line_ns),
            fence_ns: fence_ns.unwrap_or(own.fence_ns),
        }
    }

    /// A write goes past the buffer.
    pub(crate) fn note_eager(&self, file: &FoundFile<'_>, shape: &WriteShape) -> Result<()> {
        let Some(view) = &file.view else { return Ok(()) };
        let (lines, new) =
            self.buffer.ghost.note_write(self.arena(), view, shape.offset, shape.len)?;
        view.add_to_tally(lines, new);
        self.count_buffering(Buffering::Eager, [1, lines]);
        Ok(())
    }

    /// Whether a write makes a file longer which the whole buffer would not hold. Such a file is written back while
    /// it grows, so that the buffer puts its bytes off and saves none of them.
    #[cold]
    pub(crate) fn outgrows_buffer(&self, shape: &WriteShape) -> Result<bool> {
        let (_, blocks_max) = self.buffer.usage(self.arena())?;
        let grows = shape.offset >= shape.size && shape.size >= blocks_max * PAGE;
        Ok(grows && self.buffer.rules.has_model)
    }

    /// The file's next writes go past the buffer.
    #[cold]
    pub(crate) fn go_past_buffer(&self, ino: Ino, now_ns: i64) -> Result<()> {
        if let Some(view) = self.views.find(self.arena(), ino)? {
            view.set_verdict(Verdict::Synced { is_eager: true, at_ns: now_ns });
        }
        Ok(())
    }

    /// Says, at a sync that has flushed so many lines, which way the file's next writes go.
    pub(crate) fn judge(&self, view: &View<'_>, flushed: u64, now_ns: i64) -> Result<()> {
        let tally = view.tally();
        if tally.writes == 0 || !self.buffer.rules.has_model {
            return Ok(());
        }
        let tally = Tally { lines_flushed: tally.lines_flushed + flushed, ..tally };
        let is_eager = !self.buffer_costs().favours_buffering(tally);
        let said = view.verdict();
        view.set_verdict(Verdict::Synced { is_eager, at_ns: now_ns });
        let is_right = said.is_eager() == is_eager;
        self.count_buffering(Buffering::Foretold, [1, is_right.into()]);
        if matches!(said, Verdict::New { .. }) {
            self.count_buffering(Buffering::FirstForetold, [1, is_right.into()]);
        }
        self.count_buffering(Buffering::Verdict, [(!is_eager).into(), is_eager.into()]);
        if let Verdict::New { directory, .. } = said
            && is_eager
            && let Some(directory) = self.views.find(self.arena(), directory)?
            && directory.was_directory()
        {
            let (score, _) = directory.synced_soon();
            directory.set_synced_soon(score.synced(), now_ns);
        }
        Ok(())
    }

    /// A file was made in a directory: it begins as those before it did.
    pub(crate) fn expect_as_before(&self, directory: &View<'_>, file: &View<'_>, now_ns: i64) {
        if self.mode.is_none() || !self.buffer.rules.has_model {
            return;
        }
        let (score, at_ns) = directory.synced_soon();
        let score = score.made();
        directory.set_synced_soon(score, at_ns);
        let is_eager = score.is_likely() && now_ns.saturating_sub(at_ns) < self.eager_ns();
        file.set_verdict(Verdict::New { is_eager, directory: directory.ino() });
    }
}

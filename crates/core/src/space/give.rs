//! Pages that come back: to the operation's record, to a lane's batch, to the bitmap.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, Op};
use novale_layout::PmAddr;

use crate::base::error::Result;
use crate::base::extent::{Extent, Extents};
use crate::space::lane::Lane;
use crate::space::{Allocator, kept};

impl Allocator {
    /// Gives back one extent at once, past the batch.
    pub(crate) fn give_extent(&self, arena: &Arena, op: &Op<'_>, extent: Extent) -> Result<()> {
        if extent.pages > 0 {
            self.ranges.give(arena, op, extent)?;
            self.free_word(arena)?.fetch_add(extent.pages, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives pages back: into the lane's batch, which goes to the bitmap when it is full. The first one
    /// stays with the operation's record, where it is a single page, except in a pool that is nearly full.
    pub(crate) fn give(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        hint: u32,
        extents: &Extents,
    ) -> Result<()> {
        self.give_each(arena, op, hint, extents, |_| ())
    }

    /// Gives pages back, with a word before each extent.
    pub(crate) fn give_each(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        hint: u32,
        extents: &Extents,
        before: impl Fn(u64),
    ) -> Result<()> {
        // What the operation had taken has its place by now, or goes back here.
        op.forget_taken();
        if extents.is_empty() {
            return Ok(());
        }
        let mut first = 0;
        if let Some(page) = self.to_keep(arena, op, extents)? {
            before(0);
            kept::put(op, page);
            if extents.len() == 1 {
                return Ok(());
            }
            // Before a lane is locked: of what was noted last a settler asks the lane that is.
            before(1);
            first = 1;
        }
        let lane = self.lane_to_give(arena, op, hint)?;
        let has_gathered = |extent| lane.as_ref().is_some_and(|lane| lane.gather(extent));
        for (index, extent) in (0..).zip(extents.iter()).skip(first) {
            before(index);
            if has_gathered(extent) {
                continue;
            }
            if let Some(lane) = &lane {
                self.flush_batch(arena, op, lane)?;
            }
            if !has_gathered(extent) {
                self.give_extent(arena, op, extent)?;
            }
        }
        Ok(())
    }

    /// A lane to gather in; none for who settles where all that are tried are locked. Their owners may wait for this
    /// very settling, or be dead themselves: the pages go to the bitmap then. Of the extent in hand no lane knows: who
    /// dies with it has lost it.
    fn lane_to_give<'a>(
        &self,
        arena: &'a Arena,
        op: &'a Op<'_>,
        hint: u32,
    ) -> Result<Option<Lane<'a>>> {
        if op.has_settler() {
            self.lane(arena, op, hint).map(Some)
        } else {
            self.free_lane(arena, op, hint)
        }
    }

    /// Keeps a single page with the operation's record, where that has none and the pool is far from
    /// full; says whether.
    #[inline]
    pub(crate) fn keep(&self, arena: &Arena, op: &Op<'_>, page: &Extents) -> Result<bool> {
        let page = self.to_keep(arena, op, page)?;
        page.inspect(|page| kept::put(op, *page));
        Ok(page.is_some())
    }

    /// The first of these pages, where it is a single one that the operation's record is to keep.
    #[inline]
    fn to_keep(&self, arena: &Arena, op: &Op<'_>, extents: &Extents) -> Result<Option<PmAddr>> {
        match extents.first_page() {
            // One that would not be given out again would keep the place for ever.
            Some(page) => {
                let is_to_stay =
                    kept::has_room(op) && self.is_roomy(arena)? && self.is_reusable(arena, page)?;
                Ok(is_to_stay.then_some(page))
            }
            None => Ok(None),
        }
    }

    pub(super) fn flush_batch(&self, arena: &Arena, op: &Op<'_>, lane: &Lane<'_>) -> Result<()> {
        while let Some(extent) = lane.ungather() {
            self.give_extent(arena, op, extent)?;
        }
        Ok(())
    }

    /// Gives everything that the lanes hold back to the bitmap.
    pub(crate) fn drain(&self, arena: &Arena, op: &Op<'_>) -> Result<()> {
        for index in 0..self.lane_count {
            let lane = self.lock_lane(arena, op, index)?;
            self.flush_batch(arena, op, &lane)?;
            let rest = lane.replace_extent(Extent { addr: PmAddr::NULL, pages: 0 }, lane.cursor());
            self.give_extent(arena, op, rest)?;
        }
        Ok(())
    }

    /// Gives the pages that operation records keep back to the bitmap; nobody else is at work.
    pub(crate) fn drain_kept(&self, arena: &Arena, op: &Op<'_>) -> Result<()> {
        kept::drain(arena)?
            .into_iter()
            .try_for_each(|addr| self.give_extent(arena, op, Extent { addr, pages: 1 }))
    }
}

#[cfg(test)]
mod tests {
    use novale_arena::PidInfo;

    use super::*;
    use crate::fixture::{CTX, empty, with_file};
    use crate::op::call::OpKind;
    use crate::space::{Need, Wanted, lane};

    /// Who settled waited for a lane: of a thread that waited for it in turn, or of another dead client, and then
    /// the pages were lost until the pool was opened again.
    #[test]
    fn who_settles_gives_pages_though_all_lanes_are_locked() {
        let fs = empty(2);
        let arena = fs.arena();
        let call = fs.call(OpKind::Manage, &CTX);
        let extents = fs.take_pages(&call, Wanted::again(3), Need::Growth).unwrap();
        call.op.forget_taken();
        drop(call);
        let dead = arena.attach(PidInfo { start_time: 1 << 60, ..PidInfo::current() }).unwrap();
        let others = dead.op(OpKind::Manage as u32, 0);
        let lock = |lane| others.lock(fs.allocator.lane_at(lane).1).unwrap();
        let lanes: Vec<_> = (0..fs.allocator.lane_count()).map(lock).collect();
        let before = fs.allocator.pages_free(arena).unwrap();
        let freeing = fs.client.freeing_op(OpKind::Release as u32).unwrap();
        fs.allocator.give(arena, &freeing, 0, &extents).unwrap();
        assert_eq!(fs.allocator.pages_free(arena).unwrap(), before + 3);
        drop(lanes);
    }

    /// Two pages go when one with two copies is overwritten: both went to the lane, and the next operation
    /// locked it to take one.
    #[test]
    fn the_first_of_several_freed_pages_stays_with_the_record() {
        let (fs, ino) = with_file();
        fs.write(&CTX, ino, 0, &[1; 4096]).unwrap();
        fs.write(&CTX, ino, 100, &[2; 100]).unwrap();
        let of_lane = || lane::held_pages(fs.arena(), fs.allocator.lane_at(0).1).unwrap();
        let kept = || kept::count(fs.arena()).unwrap();
        let before = (of_lane(), fs.allocator.pages_free(fs.arena()).unwrap());
        assert_eq!(kept(), 0);
        fs.write(&CTX, ino, 0, &[3; 4096]).unwrap();
        // One of the extent's was taken, and two were freed.
        assert_eq!((kept(), of_lane()), (1, before.0));
        assert_eq!(fs.allocator.pages_free(fs.arena()).unwrap(), before.1 + 1);
        fs.write(&CTX, ino, 0, &[4; 4096]).unwrap();
        assert_eq!((kept(), of_lane()), (1, before.0), "no lane is needed");
    }
}

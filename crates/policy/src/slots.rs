//! Which slot new pages come from.

/// What an allocation policy sees of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLoad {
    /// Pages in all.
    pub pages: u64,
    /// Free pages.
    pub pages_free: u64,
}

/// Orders slots for an allocation.
pub trait SlotPolicy: Send + Sync {
    /// The slot to try first for the `turn`th extent that a lane takes; the caller goes on
    /// with the following slots, round robin, when that one has no pages.
    fn first(&self, slots: &[SlotLoad], turn: u64) -> usize;
}

/// Spreads extents over the slots in proportion to their free pages, so that neither data nor
/// metadata gathers in one of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spread;

impl SlotPolicy for Spread {
    fn first(&self, slots: &[SlotLoad], turn: u64) -> usize {
        let free: u64 = slots.iter().map(|slot| slot.pages_free).sum();
        if free == 0 {
            return 0;
        }
        // A golden-ratio step visits the line of all free pages evenly without a generator.
        let mut point = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % free;
        for (index, slot) in slots.iter().enumerate() {
            if point < slot.pages_free {
                return index;
            }
            point -= slot.pages_free;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_follows_the_free_pages() {
        let slots = [
            SlotLoad { pages: 1000, pages_free: 750 },
            SlotLoad { pages: 1000, pages_free: 0 },
            SlotLoad { pages: 1000, pages_free: 250 },
        ];
        let mut taken = [0; 3];
        for turn in 0..10_000 {
            taken[Spread.first(&slots, turn)] += 1;
        }
        assert!((7_000..8_000).contains(&taken[0]), "{taken:?}");
        assert_eq!(taken[1], 0);
        assert_eq!(Spread.first(&[SlotLoad { pages: 1, pages_free: 0 }], 7), 0);
    }
}

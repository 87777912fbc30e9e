//! Which slot new pages come from.

/// What an allocation policy sees of a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotLoad {
    /// Pages in all.
    pub pages: u64,
    /// Free pages.
    pub pages_free: u64,
    /// How far it is worn: writes to its cells as a share of those that they endure, or of any other
    /// measure that is the same for all slots ([`wear`]).
    pub wear: f64,
}

/// How far a slot is worn, of which so many lines were written, of so many pages. `endurance` is how
/// many writes a cell stands, or the same number for all slots where nobody knows: 0 is taken for 1. It
/// is assumed that the memory spreads what it gets over its cells (WASA, II.B and equation 2).
#[must_use]
pub fn wear(lines: u64, pages: u64, endurance: u64) -> f64 {
    wear_of_all(lines, [(pages, endurance)])
}

/// As [`wear`], of slots of so many pages and that endurance each, were they one.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a share, of which 53 bits are enough")]
pub fn wear_of_all(lines: u64, slots: impl IntoIterator<Item = (u64, u64)>) -> f64 {
    const LINES_PER_PAGE: f64 = 64.0;
    let writes =
        |(pages, endurance): (u64, u64)| pages as f64 * LINES_PER_PAGE * endurance.max(1) as f64;
    lines as f64 / slots.into_iter().map(writes).sum::<f64>().max(1.0)
}

/// Orders slots for an allocation.
pub trait SlotPolicy: Send + Sync {
    /// The slot to try first for the `turn`th extent that lane number `lane` of `lanes` takes; the caller
    /// goes on with the following slots, round robin, when that one has no pages.
    fn first(&self, slots: &[SlotLoad], lane: Turn) -> usize;
}

/// Who asks for an extent, and for which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The number of the lane.
    pub lane: u32,
    /// Lanes of the pool.
    pub lanes: u32,
    /// Extents that the lane has taken.
    pub turn: u64,
}

/// How the slots of a pool are used; names are those of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Each extent from the slot that is worn least (WASA, III.C), what was freed as well.
    #[default]
    Wasa,
    /// Extents over all slots, in proportion to their free pages.
    Spread,
    /// The first slot that has room, as one list of free pages gives them (PMFS).
    Single,
    /// Each lane from slots of its own, as lists of free pages for each CPU give them (NOVA).
    Lanes,
}

impl Placement {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::Wasa, Self::Spread, Self::Single, Self::Lanes];

    /// What the command line calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wasa => "wasa",
            Self::Spread => "spread",
            Self::Single => "single",
            Self::Lanes => "lanes",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|placement| placement.name() == name)
    }

    /// The one of that number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether it goes by how far slots are worn.
    #[must_use]
    pub const fn is_wear_aware(self) -> bool {
        matches!(self, Self::Wasa)
    }
}

impl SlotPolicy for Placement {
    fn first(&self, slots: &[SlotLoad], turn: Turn) -> usize {
        let found = match self {
            Self::Wasa => least_worn(slots),
            Self::Spread => spread(slots, turn),
            Self::Single => slots.iter().position(|slot| slot.pages_free > 0),
            Self::Lanes => Some(of_lane(slots.len(), turn)),
        };
        found.unwrap_or(0)
    }
}

/// The slot that is worn least of those with free pages.
fn least_worn(slots: &[SlotLoad]) -> Option<usize> {
    let free = slots.iter().enumerate().filter(|(_, slot)| slot.pages_free > 0);
    Some(free.min_by(|(_, a), (_, b)| a.wear.total_cmp(&b.wear))?.0)
}

/// Visits the line of all free pages evenly, by golden-ratio steps without a generator, so that neither
/// data nor metadata gathers in one slot.
fn spread(slots: &[SlotLoad], turn: Turn) -> Option<usize> {
    let free: u64 = slots.iter().map(|slot| slot.pages_free).sum();
    let mut point = turn.turn.wrapping_mul(0x9e37_79b9_7f4a_7c15).checked_rem(free)?;
    slots.iter().position(|slot| {
        let is_here = point < slot.pages_free;
        point = point.saturating_sub(slot.pages_free);
        is_here
    })
}

/// Of several slots for a lane one after the other.
fn of_lane(slots: usize, Turn { lane, lanes, turn }: Turn) -> usize {
    let (slots, lane, lanes) = (slots as u64, u64::from(lane), u64::from(lanes.max(1)));
    let first = lane * slots / lanes;
    let count = ((lane + 1) * slots / lanes).saturating_sub(first).max(1);
    usize::try_from(first + turn % count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Turn = Turn { lane: 0, lanes: 4, turn: 0 };

    fn slot(pages_free: u64, wear: f64) -> SlotLoad {
        SlotLoad { pages: 1000, pages_free, wear }
    }

    #[test]
    fn spread_follows_the_free_pages() {
        let slots = [slot(750, 0.0), slot(0, 0.0), slot(250, 0.0)];
        let mut taken = [0; 3];
        for turn in 0..10_000 {
            taken[Placement::Spread.first(&slots, Turn { turn, ..TURN })] += 1;
        }
        assert!((7_000..8_000).contains(&taken[0]), "{taken:?}");
        assert_eq!(taken[1], 0);
        assert_eq!(Placement::Spread.first(&[slot(0, 0.0)], Turn { turn: 7, ..TURN }), 0);
    }

    #[test]
    fn wasa_takes_the_least_worn_slot_with_room() {
        let slots = [slot(5, 0.5), slot(0, 0.1), slot(5, 0.3), slot(5, 0.4)];
        assert_eq!(Placement::Wasa.first(&slots, TURN), 2);
        assert_eq!(Placement::Wasa.first(&[slot(0, 0.5), slot(0, 0.1)], TURN), 0);
    }

    #[test]
    fn wear_counts_by_size_and_endurance() {
        assert!(
            wear(100, 10, 1) > wear(100, 20, 1),
            "a larger slot is worn less by the same lines"
        );
        assert!(wear(100, 10, 1000) < wear(100, 10, 10), "so is one that endures more");
        assert!((wear(640, 10, 1) - 1.0).abs() < 1e-9);
        let both = wear_of_all(640, [(10, 1), (10, 3)]);
        assert!((both - 0.25).abs() < 1e-9, "{both}: what one endures more counts for both");
    }

    #[test]
    fn lanes_have_slots_of_their_own() {
        let slots = [slot(5, 0.0); 8];
        let of = |lane, turn| Placement::Lanes.first(&slots, Turn { lane, lanes: 4, turn });
        assert_eq!([of(0, 0), of(0, 1), of(0, 2), of(3, 0), of(3, 1)], [0, 1, 0, 6, 7]);
        let of = |lane| Placement::Lanes.first(&slots[..2], Turn { lane, lanes: 4, turn: 9 });
        assert_eq!([of(0), of(1), of(2), of(3)], [0, 0, 1, 1]);
    }

    #[test]
    fn names_and_numbers_lead_back() {
        for (number, placement) in (0..).zip(Placement::ALL) {
            assert_eq!(Placement::named(placement.name()), Some(placement));
            assert_eq!(Placement::numbered(number), Some(placement));
        }
    }
}

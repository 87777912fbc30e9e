//! Which slots the lines of small overwrites take (LAWN 4.1): where they fit, when a sub-zone grows, and
//! when slots are written back.
//!
//! A sub-zone is what 64 pages of a file share: pages of 64 slots of a line. The second copies of a page's
//! lines lie in one of these, all moved round by the same number of slots, its *shift*.

/// Slots of a page.
const SLOTS: u32 = 64;
/// Pages of a sub-zone before it counts as grown: 3 % of the 64 that share it.
const PAGES_FIRST: u32 = 2;
/// Pages of a sub-zone of which half is left free, as long as that can be: a page of the file whose further
/// lines find their places taken moves.
const PAGES_HALF_FREE: u32 = 8;
/// Pages of a sub-zone at most.
const PAGES_MAX: u32 = 32;
/// Of a hundred slots so many are to be free.
const FREE_PERCENT: u32 = 10;

/// The longest write that goes to slots, in bytes.
pub const LAWN_BYTES_MAX: u64 = 8192;

/// How many lines a slot has that is written as one: 1, 2, 4, 8 or 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLines(u32);

impl Default for SlotLines {
    fn default() -> Self {
        Self(1)
    }
}

impl SlotLines {
    /// All of them.
    pub const ALL: [Self; 5] = [Self(1), Self(2), Self(4), Self(8), Self(16)];

    /// Slots of so many bytes, if there are such.
    #[must_use]
    pub fn of_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|lines| lines.bytes() == bytes)
    }

    /// The one that a number stands for ([`SlotLines::number`]).
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Its place in [`SlotLines::ALL`], as the power of two.
    #[must_use]
    pub fn number(self) -> u8 {
        u8::try_from(self.0.trailing_zeros()).unwrap_or(0)
    }

    /// The bytes of a slot.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0 * 64
    }

    /// The lines of all slots of which `lines` has any.
    #[must_use]
    pub fn whole(self, lines: u64) -> u64 {
        let one = u64::MAX >> (u64::BITS - self.0);
        let firsts = (0..SLOTS).step_by(self.0 as usize).map(|first| one << first);
        firsts.filter(|slot| slot & lines != 0).fold(0, |whole, slot| whole | slot)
    }

    /// The shift by which `lines` of a page of the file are in slots that are free; none where there is no
    /// such.
    #[must_use]
    pub fn shift(self, used: u64, lines: u64) -> Option<u32> {
        let mut shifts = u64::MAX / (u64::MAX >> (u64::BITS - self.0));
        if used.count_zeros() < lines.count_ones() {
            return None;
        }
        // A shift is left if it takes each of the lines to a free slot: up to 64 turns.
        let mut rest = lines;
        while rest != 0 && shifts != 0 {
            shifts &= (!used).rotate_right(rest.trailing_zeros());
            rest &= rest - 1;
        }
        (shifts != 0).then(|| shifts.trailing_zeros())
    }
}

/// How full a sub-zone is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneUse {
    /// Pages.
    pub pages: u32,
    /// Slots that have lines which are current.
    pub used: u32,
}

impl ZoneUse {
    /// Whether a page with so many slots in use takes further ones before the sub-zone grows.
    #[must_use]
    pub const fn is_roomy(self, used: u32) -> bool {
        used <= SLOTS / 2 || self.pages >= PAGES_HALF_FREE
    }

    /// Whether it may grow, where lines fit nowhere.
    #[must_use]
    pub const fn may_grow(self) -> bool {
        self.pages < PAGES_MAX
    }

    /// Whether a write to it is to write the slots back that are least recently written: few are free, and
    /// it may not grow.
    #[must_use]
    pub const fn is_short(self) -> bool {
        !self.may_grow() && self.has_few()
    }

    /// Whether slots of it are to be written back in the background: it has grown.
    #[must_use]
    pub const fn is_grown(self) -> bool {
        self.pages > PAGES_FIRST
    }

    const fn has_few(self) -> bool {
        let slots = self.pages * SLOTS;
        slots.saturating_sub(self.used) * 100 < slots * FREE_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_as_a_whole() {
        let [one, .., sixteen] = SlotLines::ALL;
        assert_eq!(one.whole(0b101), 0b101);
        assert_eq!(SlotLines(2).whole(0b100_1010), 0b1100_1111);
        assert_eq!(sixteen.whole(1 << 20), 0xffff_0000);
        assert_eq!(sixteen.whole(u64::MAX), u64::MAX);
        let bytes = SlotLines::ALL.map(SlotLines::bytes);
        assert_eq!(bytes, [64, 128, 256, 512, 1024]);
        assert!(bytes.into_iter().all(|of| SlotLines::of_bytes(of).unwrap().bytes() == of));
        assert_eq!(
            [0, 1, 4].map(|number| SlotLines::numbered(number).unwrap().number()),
            [0, 1, 4]
        );
        assert_eq!(SlotLines::numbered(5), None);
        assert_eq!([0, 63, 192, 2048].map(SlotLines::of_bytes), [None; 4]);
    }

    #[test]
    fn lines_fit_where_slots_are_free() {
        let [one, two, ..] = SlotLines::ALL;
        assert_eq!(one.shift(0, 1 << 63), Some(0));
        assert_eq!(one.shift(0b1011, 1), Some(2));
        // Round the end of the page.
        assert_eq!(one.shift(u64::MAX >> 1 & !1, 0b11), Some(63));
        assert_eq!(two.shift(0b1011, 0b11), Some(4));
        assert_eq!(one.shift(u64::MAX >> 1, 0b11), None);
        assert_eq!(one.shift(u64::MAX, 1), None);
        // Two are free, and not beside each other.
        assert_eq!(one.shift(!0b101, 0b11), None);
        assert_eq!(one.shift(!0b101, 0b101), Some(0));
    }

    #[test]
    fn a_zone_grows_to_half_and_is_short_with_less_than_a_tenth_free() {
        let zone = |pages, used| ZoneUse { pages, used };
        assert!(zone(0, 0).may_grow() && zone(31, 31 * 64).may_grow());
        assert!(!zone(32, 0).may_grow());
        assert!(!zone(31, 31 * 64).is_short());
        // 204.8 are a tenth.
        assert!(!zone(32, 2048 - 205).is_short());
        assert!(zone(32, 2048 - 204).is_short());
        let of = |pages, used| zone(pages, 0).is_roomy(used);
        assert_eq!([of(7, 32), of(7, 33), of(8, 33)], [true, false, true]);
        assert_eq!([2, 3].map(|pages| zone(pages, 0).is_grown()), [false, true]);
    }
}

//! One flipped bit, a torn store or too few bytes never pass for a structure.

use novale_layout::{
    COMMIT_OFFSETS, CommitLine, Entry, IDENTITY_OFFSET, INODE_SIZE, IdentityLine, Ino, LayoutError,
    LogPageHeader, PairLine, PoolState, Seed, SlotState, VOLATILE_OFFSET, never_written_inodes,
};
use proptest::prelude::*;

use crate::structures::{
    Home, Logged, Part, Structure, for_each_structure, home, housed, pair_housed,
};

const NOWHERE: Home =
    Home { pool: [0; 16], ino: Ino::ROOT, generation: 0, addr: novale_layout::PmAddr::NULL };

macro_rules! every_bit_flip {
    ($name:ident, $type:ty) => {
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(24))]

                #[test]
                fn detects_each_flipped_bit((home, value) in housed::<$type>()) {
                    let mut bytes = Structure::encode(&value, &home);
                    for index in (0..bytes.len()).filter(|index| !<$type>::OPEN.contains(index)) {
                        for bit in 0..8 {
                            bytes[index] ^= 1 << bit;
                            let decoded = <$type as Structure>::decode(&bytes, &home);
                            prop_assert!(decoded.is_err(), "byte {} bit {}", index, bit);
                            bytes[index] ^= 1 << bit;
                        }
                    }
                }
            }

            /// But for a line of an inode, where zeros are something else that lies in its place.
            #[test]
            fn calls_zeros_blank() {
                let home = NOWHERE;
                let bytes = match stringify!($name) {
                    "superblock" => 1024,
                    "slot_header" => 128,
                    _ => 64,
                };
                let decoded = <$type as Structure>::decode(&vec![0; bytes], &home);
                if matches!(stringify!($name), "identity_line" | "commit_line") {
                    let is_refused = matches!(decoded, Err(LayoutError::Checksum { .. }));
                    assert!(is_refused, "{decoded:?}");
                } else {
                    assert_eq!(decoded, Err(LayoutError::Blank));
                }
            }
        }
    };
}

for_each_structure!(every_bit_flip);

/// A line stored as a whole leaves, after a crash, any mix of its old and new 8-byte words.
fn torn<T: Structure>(home: &Home, old: &[u8], new: &[u8]) {
    for kept in 0..=u8::MAX {
        let mut mixed = old.to_vec();
        for word in (0..8).filter(|word| kept >> word & 1 == 1) {
            mixed[word * 8..][..8].copy_from_slice(&new[word * 8..][..8]);
        }
        if mixed != old && mixed != new {
            assert!(T::decode(&mixed, home).is_err(), "words {kept:#010b} of the new line");
        }
    }
}

/// The line of an inode that was never written.
trait NeverWritten: Structure {
    fn never_written(seed: Seed) -> [u8; 64];
}

impl NeverWritten for CommitLine {
    fn never_written(seed: Seed) -> [u8; 64] {
        Self::never_written(seed)
    }
}

impl NeverWritten for IdentityLine {
    fn never_written(seed: Seed) -> [u8; 64] {
        Self::never_written(seed)
    }
}

fn never_written<T: NeverWritten>(home: &Home) -> [u8; 64] {
    <T as NeverWritten>::never_written(home.seed(T::SEED))
}

/// Whatever generation the number's next use has.
fn says_so<T: NeverWritten>(home: &Home) {
    let mut line = never_written::<T>(home);
    for home in [*home, home.elsewhere(Part::Generation), home.elsewhere(Part::Addr)] {
        assert_eq!(T::decode(&line, &home), Err(LayoutError::Blank));
    }
    for part in [Part::Pool, Part::Ino] {
        let decoded = T::decode(&line, &home.elsewhere(part));
        assert!(matches!(decoded, Err(LayoutError::Checksum { .. })), "{part:?}: {decoded:?}");
    }
    for bit in 0..512 {
        line[bit / 8] ^= 1 << (bit % 8);
        let decoded = T::decode(&line, home);
        assert!(matches!(decoded, Err(LayoutError::Checksum { .. })), "bit {bit}: {decoded:?}");
        line[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn no_inode_of_a_new_page_was_written() {
    let seed = |index| Seed::pool(&NOWHERE.pool).ino(Ino::new(32 + index));
    let page = never_written_inodes(seed);
    let at = |index: u64, offset| usize::try_from(index * INODE_SIZE + offset).unwrap();
    for index in 0..16 {
        let line = |offset| page[at(index, offset)..][..64].try_into().unwrap();
        let identity = IdentityLine::decode(line(IDENTITY_OFFSET), seed(index));
        assert_eq!(identity, Err(LayoutError::Blank));
        for offset in COMMIT_OFFSETS {
            let commit = CommitLine::decode(line(offset), seed(index));
            assert_eq!(commit, Err(LayoutError::Blank));
        }
        assert_eq!(*line(VOLATILE_OFFSET), [0; 64]);
    }
}

proptest! {
    #[test]
    fn a_torn_commit_line_is_no_third_state((home, old, new) in pair_housed::<CommitLine>()) {
        let bytes = [&old, &new].map(|line| Structure::encode(line, &home));
        torn::<CommitLine>(&home, &bytes[0], &bytes[1]);
    }

    /// The first line of an inode, and one that is taken away.
    #[test]
    fn a_torn_line_over_one_never_written_is_no_third_state(
        (home, line) in housed::<CommitLine>(), (at, identity) in housed::<IdentityLine>(),
    ) {
        let (line, never) = (Structure::encode(&line, &home), never_written::<CommitLine>(&home));
        torn::<CommitLine>(&home, &never, &line);
        torn::<CommitLine>(&home, &line, &never);
        let identity = Structure::encode(&identity, &at);
        torn::<IdentityLine>(&at, &never_written::<IdentityLine>(&at), &identity);
    }

    #[test]
    fn a_line_that_was_never_written_says_so_and_is_its_inodes(home in home()) {
        says_so::<CommitLine>(&home);
        says_so::<IdentityLine>(&home);
    }

    #[test]
    fn a_torn_repeat_is_no_third_state((home, old) in housed::<CommitLine>()) {
        // A certificate differs from the line before in few words: the hardest case.
        let next = CommitLine { op_seq: old.op_seq.wrapping_add(1).max(1), flags: 0, ..old };
        let bytes = [&old, &next].map(|line| Structure::encode(line, &home));
        torn::<CommitLine>(&home, &bytes[0], &bytes[1]);
    }

    #[test]
    fn a_torn_pair_line_is_no_third_state((home, old, new) in pair_housed::<PairLine>()) {
        let bytes = [&old, &new].map(|line| Structure::encode(line, &home));
        torn::<PairLine>(&home, &bytes[0], &bytes[1]);
    }

    #[test]
    fn a_torn_identity_line_is_no_third_state((home, old, new) in pair_housed::<IdentityLine>()) {
        let bytes = [&old, &new].map(|line| Structure::encode(line, &home));
        torn::<IdentityLine>(&home, &bytes[0], &bytes[1]);
    }

    #[test]
    fn a_torn_state_line_is_no_third_state(
        (home, old, new) in pair_housed::<PoolState>(),
        (slot_home, slot_old, slot_new) in pair_housed::<SlotState>(),
    ) {
        let bytes = [&old, &new].map(|line| Structure::encode(line, &home));
        torn::<PoolState>(&home, &bytes[0], &bytes[1]);
        let bytes = [&slot_old, &slot_new].map(|line| Structure::encode(line, &slot_home));
        torn::<SlotState>(&slot_home, &bytes[0], &bytes[1]);
    }

    #[test]
    fn a_next_pointer_that_is_no_page_is_refused(
        (home, header) in housed::<LogPageHeader>(), bit in prop_oneof![0u32..12, 48u32..56],
    ) {
        // The pointer is outside the checksum; what no address has is still refused.
        let mut bytes = Structure::encode(&header, &home);
        let word = u64::from_le_bytes(bytes[24..32].try_into().unwrap()) ^ 1 << bit;
        bytes[24..32].copy_from_slice(&word.to_le_bytes());
        let decoded = <LogPageHeader as Structure>::decode(&bytes, &home);
        let refused = matches!(decoded, Err(LayoutError::Field { field: "next", .. }));
        prop_assert!(refused, "{:?}", decoded);
    }

    #[test]
    fn an_entry_cut_short_is_refused((home, logged) in housed::<Logged>(), cut in 1usize..320) {
        let bytes = Structure::encode(&logged, &home);
        let left = bytes.len().saturating_sub(cut);
        let decoded = Entry::decode(&bytes[..left], home.seed(Logged::SEED));
        prop_assert!(matches!(decoded, Err(LayoutError::Field { .. })), "{:?}", decoded);
    }
}

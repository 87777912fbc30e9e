//! One flipped bit, a torn store or too few bytes never pass for a structure.

use novale_layout::{
    CommitLine, Entry, IdentityLine, LayoutError, LogPageHeader, PairLine, PoolState, SlotState,
};
use proptest::prelude::*;

use crate::structures::{Logged, Structure, for_each_structure, housed, pair_housed};

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

            #[test]
            fn calls_zeros_blank() {
                let home = crate::structures::Home {
                    pool: [0; 16],
                    ino: novale_layout::Ino::ROOT,
                    generation: 0,
                    addr: novale_layout::PmAddr::NULL,
                };
                let bytes = match stringify!($name) {
                    "superblock" => 1024,
                    "slot_header" => 128,
                    _ => 64,
                };
                let decoded = <$type as Structure>::decode(&vec![0; bytes], &home);
                assert_eq!(decoded, Err(LayoutError::Blank));
            }
        }
    };
}

for_each_structure!(every_bit_flip);

/// A line stored as a whole leaves, after a crash, any mix of its old and new 8-byte words.
fn torn<T: Structure>(home: &crate::structures::Home, old: &[u8], new: &[u8]) {
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

proptest! {
    #[test]
    fn a_torn_commit_line_is_no_third_state((home, old, new) in pair_housed::<CommitLine>()) {
        let bytes = [&old, &new].map(|line| Structure::encode(line, &home));
        torn::<CommitLine>(&home, &bytes[0], &bytes[1]);
        torn::<CommitLine>(&home, &[0; 64], &bytes[1]);
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

//! Any bytes decode to a value or an error, those with a right checksum included.

use novale_layout::{
    CommitLine, DentryRef, Entry, EntryHeader, JournalRecord, PairLine, Seed, known_signature,
};
use proptest::prelude::*;

use crate::structures::{Structure, documented_crc, for_each_structure, housed};

/// Bytes that a crafted or decayed image may hold, biased to values at the edge of ranges.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    let byte = prop_oneof![Just(0), Just(1), Just(0x7f), Just(0xff), any::<u8>()];
    prop::collection::vec((any::<prop::sample::Index>(), byte), 1..24)
}

macro_rules! garbage {
    ($name:ident, $type:ty) => {
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(1024))]

                /// A value that was accepted from strange bytes is one that can be stored again.
                #[test]
                fn under_a_right_checksum((home, value) in housed::<$type>(), edits in edits()) {
                    let mut bytes = Structure::encode(&value, &home);
                    for (index, byte) in edits {
                        let index = index.index(bytes.len());
                        bytes[index] = byte;
                    }
                    let crc = documented_crc::<$type>(&bytes, &home);
                    bytes[<$type>::CRC].copy_from_slice(&crc.to_le_bytes());
                    if let Ok(decoded) = <$type as Structure>::decode(&bytes, &home) {
                        let again = Structure::encode(&decoded, &home);
                        let redecoded = <$type as Structure>::decode(&again, &home);
                        prop_assert_eq!(redecoded, Ok(decoded));
                    }
                }

                #[test]
                fn in_random_bytes((home, value) in housed::<$type>(), seed: [u8; 32]) {
                    let bytes = Structure::encode(&value, &home);
                    let noise: Vec<u8> = seed.iter().copied().cycle().take(bytes.len()).collect();
                    prop_assert!(<$type as Structure>::decode(&noise, &home).is_err());
                }
            }
        }
    };
}

for_each_structure!(garbage);

proptest! {
    #[test]
    fn in_views_without_a_checksum(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut line = [0; 64];
        for (to, from) in line.iter_mut().zip(&bytes) {
            *to = *from;
        }
        line[4] = 4;
        let peeked = EntryHeader::peek(&line);
        prop_assert!(peeked.is_err() || (1..=5).contains(&line[5]));
        prop_assert!(DentryRef::peek(&line).is_err() || line[37] != 0);
        prop_assert!(PairLine::peek_ino(&line).get() < novale_layout::INO_LIMIT);
        let mut dentry = line.to_vec();
        dentry.extend(&bytes);
        if let Ok(dentry) = DentryRef::decode(&dentry) {
            prop_assert!((1..=255).contains(&dentry.name().len()));
        }
    }

    #[test]
    fn in_any_length(bytes in prop::collection::vec(any::<u8>(), 0..400), uuid: [u8; 16]) {
        let seed = Seed::pool(&uuid);
        prop_assert!(Entry::decode(&bytes, seed).is_err());
        prop_assert!(known_signature(&bytes).is_none_or(|name| !name.is_empty()));
    }
}

/// Lines of a record are decoded after its own checksum; each must be judged by its own as well.
#[test]
fn a_record_with_a_bad_line_is_refused() {
    let home = crate::structures::Home {
        pool: *b"a pool of sorts.",
        ino: novale_layout::Ino::ROOT,
        generation: 1,
        addr: novale_layout::PmAddr::NULL,
    };
    let mut lines = novale_layout::JournalLines::new();
    lines.push(home.ino, CommitLine { op_seq: 5, nlink: 2, ..CommitLine::default() }).unwrap();
    let record = JournalRecord {
        lane_seq: 1,
        session: 1,
        lane: 0,
        kind: novale_layout::JournalKind::Link,
        data_crc: None,
        identity_mask: 1,
        lines,
    };
    let mut bytes = Structure::encode(&record, &home);
    bytes[64] ^= 1;
    let crc = documented_crc::<JournalRecord>(&bytes, &home);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    let error = <JournalRecord as Structure>::decode(&bytes, &home).unwrap_err();
    assert!(error.to_string().starts_with("commit line: checksum"), "{error}");
}

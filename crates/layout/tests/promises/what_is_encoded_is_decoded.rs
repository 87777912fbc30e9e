//! Every value comes back from its bytes, under the checksum that the document gives.

use novale_layout::{
    DentryRef, Entry, EntryHeader, EntryKind, Ino, Name, PairLine, QuotaLimit, VolatileLine,
};
use proptest::prelude::*;

use crate::structures::{
    Logged, Structure, cookie, documented_crc, for_each_structure, home, housed, ino, name,
};

macro_rules! round_trip {
    ($name:ident, $type:ty) => {
        mod $name {
            use super::*;

            proptest! {
                #[test]
                fn comes_back((home, value) in housed::<$type>()) {
                    let bytes = Structure::encode(&value, &home);
                    let decoded = <$type as Structure>::decode(&bytes, &home);
                    prop_assert_eq!(decoded.as_ref(), Ok(&value));
                }

                #[test]
                fn has_the_documented_checksum((home, value) in housed::<$type>()) {
                    let bytes = Structure::encode(&value, &home);
                    let stored = bytes[<$type>::CRC].try_into().unwrap();
                    let documented = documented_crc::<$type>(&bytes, &home);
                    prop_assert_eq!(u32::from_le_bytes(stored), documented);
                }
            }
        }
    };
}

for_each_structure!(round_trip);

#[test]
fn quotas_come_back_and_others_are_refused() {
    let limit = |project| QuotaLimit { project, pages_max: 7, inodes_max: 9 };
    let all = [limit(1), limit(5), limit(u32::MAX)];
    assert_eq!(QuotaLimit::decode_all(&QuotaLimit::encode_all(&all)).unwrap(), all);
    assert_eq!(QuotaLimit::decode_all(&[]).unwrap(), []);
    for wrong in [&[limit(0)][..], &[limit(5), limit(5)], &[limit(5), limit(1)]] {
        assert!(QuotaLimit::decode_all(&QuotaLimit::encode_all(wrong)).is_err());
    }
    let bytes = QuotaLimit::encode_all(&all);
    assert!(QuotaLimit::decode_all(&bytes[..bytes.len() - 1]).is_err());
}

proptest! {
    #[test]
    fn volatile_line_comes_back(atime_ns: i64, atime_seq: u64, generation: u32, parent: u64) {
        let line = VolatileLine { atime_ns, atime_seq, generation, parent: Ino::new(parent) };
        prop_assert_eq!(VolatileLine::decode(&line.encode()), line);
    }

    #[test]
    fn a_pair_line_says_whose_it_is((home, line) in housed::<PairLine>()) {
        let bytes = Structure::encode(&line, &home);
        prop_assert_eq!(PairLine::peek_ino(bytes[..].try_into().unwrap()), home.ino);
    }

    #[test]
    fn a_peek_agrees_with_the_whole_entry((home, logged) in housed::<Logged>()) {
        let bytes = Structure::encode(&logged, &home);
        let peeked = EntryHeader::peek(bytes.first_chunk().unwrap()).unwrap();
        prop_assert_eq!(peeked.op_seq, logged.0);
        prop_assert_eq!(peeked.kind, logged.1.kind());
        prop_assert_eq!(peeked.bytes(), bytes.len());
    }

    #[test]
    fn a_dentry_is_read_in_place(
        home in home(), ino in ino(), name in name(), cookie in cookie(), generation: u32,
        op_seq: u64,
    ) {
        let kind = novale_layout::FileKind::Fifo;
        let logged = Logged(op_seq, Entry::DentryAdd { ino, cookie, generation, kind, name });
        let bytes = Structure::encode(&logged, &home);
        let (lines, length) = DentryRef::peek(bytes.first_chunk().unwrap()).unwrap();
        prop_assert_eq!(usize::from(lines) * 64, bytes.len());
        prop_assert_eq!(usize::from(length), name.as_bytes().len());
        let dentry = DentryRef::decode(&bytes).unwrap();
        prop_assert_eq!(dentry.name(), name.as_bytes());
        prop_assert_eq!((dentry.ino(), dentry.cookie()), (ino, cookie));
        prop_assert_eq!((dentry.generation(), dentry.kind()), (generation, kind));
        prop_assert_eq!(dentry.op_seq(), op_seq);
    }
}

#[test]
fn names_of_24_bytes_fit_one_line_and_of_255_five() {
    let lines = |length: usize| {
        let name = Name::new(&vec![b'n'; length]).unwrap();
        let (ino, kind) = (novale_layout::Ino::ROOT, novale_layout::FileKind::File);
        Entry::DentryAdd { ino, cookie: 16, generation: 0, kind, name }.lines()
    };
    let bounds = [(1, 1), (24, 1), (25, 2), (88, 2), (89, 3), (152, 3), (153, 4), (216, 4)];
    for (length, expected) in bounds.into_iter().chain([(217, 5), (255, 5)]) {
        assert_eq!(lines(length), expected, "a name of {length} bytes");
    }
}

#[test]
fn kinds_have_one_number_each() {
    for number in 0..=u8::MAX {
        let kind = EntryKind::from_u8(number);
        assert_eq!(kind.map(EntryKind::to_u8), (1..=7).contains(&number).then_some(number));
    }
}

//! The data checksum changes with everything that a single-fence commit needs.

use novale_layout::{DataCrc, PmAddr, Seed};
use proptest::prelude::*;

use crate::structures::{Home, Part, crc32c, home, ino, page};

/// The checksum of one inode's commit, from the document's words.
fn documented(home: &Home, op_seq: u64, page: PmAddr, entry: &[u8], data: &[u8]) -> u32 {
    let mut bytes = home.names(&[Part::Pool, Part::Ino]);
    bytes.extend(op_seq.to_le_bytes());
    bytes.extend(page.raw().to_le_bytes());
    bytes.extend(entry);
    bytes.extend(data);
    crc32c(&bytes)
}

proptest! {
    #[test]
    fn of_one_inode(
        home in home(), op_seq: u64, page in page(), entry: [u8; 32],
        data in prop::collection::vec(any::<u8>(), 0..5000), cut in any::<prop::sample::Index>(),
    ) {
        let mut crc = DataCrc::new(home.seed(&[Part::Pool, Part::Ino]), op_seq);
        crc.page(page);
        crc.bytes(&entry);
        // Data may arrive in pieces of any size.
        let (first, second) = data.split_at(cut.index(data.len() + 1));
        crc.bytes(first);
        crc.bytes(second);
        prop_assert_eq!(crc.finish(), documented(&home, op_seq, page, &entry, &data));
    }

    #[test]
    fn of_a_record(
        home in home(), other in ino(), op_seqs: [u64; 2], page in page(), entry: [u8; 32],
        identity: [u8; 32],
    ) {
        let mut crc = DataCrc::record(home.seed(&[Part::Pool]));
        crc.line(home.ino, op_seqs[0]);
        crc.page(page);
        crc.bytes(&entry);
        let alone = crc.finish();
        crc.line(other, op_seqs[1]);
        crc.bytes(&identity);

        prop_assert_eq!(alone, documented(&home, op_seqs[0], page, &entry, &[]));
        let mut bytes = home.names(&[Part::Pool, Part::Ino]);
        bytes.extend(op_seqs[0].to_le_bytes());
        bytes.extend(page.raw().to_le_bytes());
        bytes.extend(entry);
        bytes.extend(other.get().to_le_bytes());
        bytes.extend(op_seqs[1].to_le_bytes());
        bytes.extend(identity);
        prop_assert_eq!(crc.finish(), crc32c(&bytes));
    }
}

#[test]
fn a_part_counts_as_the_bytes_of_its_checksum() {
    let seed = Seed::pool(&[3; 16]);
    let mut crc = DataCrc::new(seed, 1);
    crc.part(crc32c(b"a page"));
    let mut bytes = vec![3; 16];
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(crc32c(b"a page").to_le_bytes());
    assert_eq!(crc.finish(), crc32c(&bytes));
}

#[test]
fn crc32c_is_castagnoli() {
    // The check value of the polynomial, and the vectors of RFC 3720, B.4.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    let mut crc = novale_layout::Crc32c::new();
    crc.update(&[0xff; 20]);
    crc.update(&[0xff; 12]);
    assert_eq!(crc.finish(), 0x62a8_ab43);
    assert_eq!(
        novale_layout::Crc32c::seeded(Seed::pool(&[0; 16])).finish(),
        crc32c(&[0; 16])
    );
}

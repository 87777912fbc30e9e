//! The data checksum is the one that the document describes.

use novale_layout::{Crc32c, DataCrc, LogLink, Seed};
use proptest::prelude::*;

use crate::structures::{Home, Part, crc32c, home, ino, link};

const SEED: &[Part] = &[Part::Pool, Part::Ino, Part::Generation];

/// The checksum of one inode's commit of an entry that opens the page of `link`, from the document's words.
fn documented(home: &Home, op_seq: u64, link: LogLink, entry: &[u8], data: &[[u8; 64]]) -> u32 {
    let mut bytes = home.names(SEED);
    bytes.extend(op_seq.to_le_bytes());
    bytes.extend(link.raw().to_le_bytes());
    bytes.extend(entry);
    for page in data {
        bytes.extend(crc32c(&page.repeat(64)).to_le_bytes());
    }
    crc32c(&bytes)
}

/// The checksum of a data page, taken in as the page is copied: in pieces.
fn page_crc(line: &[u8; 64]) -> u32 {
    let mut crc = Crc32c::new();
    for _ in 0..64 {
        crc.update(line);
    }
    crc.finish()
}

proptest! {
    #[test]
    fn of_one_inode(
        home in home(), op_seq: u64, link in link(), entry: [u8; 32],
        data in prop::collection::vec(prop::array::uniform(any::<u8>()), 0..3),
    ) {
        let mut crc = DataCrc::new(home.seed(SEED), op_seq);
        crc.link(link);
        crc.bytes(&entry);
        for line in &data {
            crc.crc(page_crc(line));
        }
        prop_assert_eq!(crc.finish(), documented(&home, op_seq, link, &entry, &data));
    }

    #[test]
    fn of_a_record(
        homes in [home(), home()], number in ino(), op_seqs: [u64; 2], link in link(),
        entry: [u8; 32], identity: [u8; 32],
    ) {
        let [first, mut second] = homes;
        second.pool = first.pool;
        second.ino = number;
        // The first inode has an entry, the second none, as one that loses its last name.
        let mut entries = DataCrc::new(first.seed(SEED), op_seqs[0]);
        entries.link(link);
        entries.bytes(&entry);
        let nothing = DataCrc::new(second.seed(SEED), op_seqs[1]);
        let mut crc = DataCrc::record(first.seed(&[Part::Pool]));
        crc.line(first.ino, op_seqs[0]);
        crc.crc(entries.finish());
        crc.line(second.ino, op_seqs[1]);
        crc.crc(nothing.finish());
        crc.bytes(&identity);

        let mut empty = second.names(SEED);
        empty.extend(op_seqs[1].to_le_bytes());
        let mut bytes = first.pool.to_vec();
        bytes.extend(first.ino.get().to_le_bytes());
        bytes.extend(op_seqs[0].to_le_bytes());
        bytes.extend(documented(&first, op_seqs[0], link, &entry, &[]).to_le_bytes());
        bytes.extend(second.ino.get().to_le_bytes());
        bytes.extend(op_seqs[1].to_le_bytes());
        bytes.extend(crc32c(&empty).to_le_bytes());
        bytes.extend(identity);
        prop_assert_eq!(crc.finish(), crc32c(&bytes));
    }
}

#[test]
fn crc32c_is_castagnoli() {
    // The check value of the polynomial, and the vectors of RFC 3720, B.4.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    let mut crc = Crc32c::new();
    crc.update(&[0xff; 20]);
    crc.update(&[0xff; 12]);
    assert_eq!(crc.finish(), 0x62a8_ab43);
    assert_eq!(Crc32c::seeded(Seed::pool(&[0; 16])).finish(), crc32c(&[0; 16]));
}

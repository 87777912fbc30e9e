//! Pages of extended attributes with a field or a record changed, and their checksums right.

use fastrand::Rng;
use novale_layout::{
    Crc32c, Entry, IDENTITY_OFFSET, IdentityLine, PmAddr, SEQ_LIMIT, XATTR_PAYLOAD_OFFSET,
    XattrPageHeader,
};

use super::structures::{Patient, Surgeon};
use super::values::{addr, number, short};

/// Patients asked for one that has attributes.
const TRIES: usize = 64;

impl Surgeon<'_> {
    /// A field of a chain's first or second page, or some bytes of its records.
    pub(super) fn xattrs(&self, random: &mut Rng) -> Option<String> {
        let (patient, root) = (0..TRIES).find_map(|_| {
            let patient = self.patient(random)?;
            let root = self.xattr_root(&patient, random)?;
            Some((patient, root))
        })?;
        let seed = |page| patient.seed.generation(patient.generation).addr(page);
        let decode =
            |page: PmAddr| XattrPageHeader::decode(&self.pm.load_line(page).ok()?, seed(page)).ok();
        let first = decode(root)?;
        let (page, mut header) = match decode(first.next) {
            Some(second) if random.bool() => (first.next, second),
            _ => (root, first),
        };
        let mut payload = vec![0; usize::try_from(header.payload_bytes).ok()?];
        self.pm.load(page.add(XATTR_PAYLOAD_OFFSET), &mut payload).ok()?;
        match random.u32(0..10) {
            0 => header.next = addr(random, header.next, self.pages).page(),
            1 => header.next = root,
            2 => header.page_index = short(random, header.page_index),
            3 => header.op_seq = number(random, header.op_seq) % SEQ_LIMIT,
            4 => header.pages = short(random, header.pages),
            5 => header.summary = short(random, header.summary) % 8,
            6 => payload.truncate(random.usize(1..=payload.len())),
            _ => {
                let at = random.usize(0..payload.len());
                let end = (at + random.usize(1..9)).min(payload.len());
                payload.get_mut(at..end)?.fill_with(|| random.u8(..));
            }
        }
        let mut crc = Crc32c::new();
        crc.update(&payload);
        header.payload_crc = crc.finish();
        header.payload_bytes = u32::try_from(payload.len()).ok()?;
        self.put(page.add(XATTR_PAYLOAD_OFFSET), &payload);
        self.put(page, &header.encode(seed(page)));
        Some(format!("attributes of inode {}: page {page}: {header:?}", patient.ino.get()))
    }

    /// The root that the inode's identity names, or an entry of its log.
    fn xattr_root(&self, patient: &Patient, random: &mut Rng) -> Option<PmAddr> {
        let line = self.pm.load_line(patient.at.add(IDENTITY_OFFSET)).ok()?;
        let born = IdentityLine::decode(&line, patient.seed).ok()?.xattr_root;
        let root = match self.entry_of(patient, random) {
            Some((_, _, _, Entry::Attributes(attributes))) => attributes.xattr_root,
            _ => born,
        };
        (!root.is_null()).then_some(root)
    }
}

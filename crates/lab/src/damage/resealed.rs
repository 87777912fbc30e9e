//! Any field of a line changed, known or not, and its checksum made right again: versions, kinds,
//! types, reserved bytes, and the bytes of names.

use fastrand::Rng;
use novale_layout::{
    COMMIT_OFFSETS, Crc32c, Entry, IDENTITY_OFFSET, POOL_STATE_OFFSETS, PmAddr, SLOT_STATE_OFFSETS,
    Seed,
};

use super::structures::{Patient, Surgeon};
use super::values::number;

/// Bytes of a checksum, which opens or ends what it is of.
const CRC_BYTES: usize = 4;

/// A structure in place: its bytes, whether its checksum stands in front, its seed.
struct Sealed {
    at: PmAddr,
    bytes: Vec<u8>,
    in_front: bool,
    seed: Seed,
}

impl Sealed {
    /// The bytes that the checksum is of.
    fn covered(&mut self) -> &mut [u8] {
        let end = self.bytes.len();
        let range = if self.in_front { CRC_BYTES..end } else { 0..end.saturating_sub(CRC_BYTES) };
        self.bytes.get_mut(range).unwrap_or_default()
    }

    fn seal(&mut self) {
        let mut crc = Crc32c::seeded(self.seed);
        crc.update(self.covered());
        let at = if self.in_front { 0 } else { self.bytes.len().saturating_sub(CRC_BYTES) };
        if let Some(place) = self.bytes.get_mut(at..at + CRC_BYTES) {
            place.copy_from_slice(&crc.finish().to_le_bytes());
        }
    }
}

impl Surgeon<'_> {
    /// Changes bits, bytes or words of a line that has a checksum over all of it.
    pub(super) fn resealed(&self, random: &mut Rng) -> Option<String> {
        let mut sealed = match random.u32(0..8) {
            0 => {
                let at = PmAddr::new(0, *random.choice(&POOL_STATE_OFFSETS)?);
                self.line_at(at, false, self.seed)?
            }
            1 => {
                let slot = random.u8(0..self.pm.slot_count());
                let at = PmAddr::new(slot, *random.choice(&SLOT_STATE_OFFSETS)?);
                self.line_at(at, false, self.seed.addr(PmAddr::new(slot, 0)))?
            }
            kind @ 2..5 => {
                let (patient, is_line) = (self.patient(random)?, kind < 4);
                let at = if is_line { *random.choice(&COMMIT_OFFSETS)? } else { IDENTITY_OFFSET };
                self.line_at(patient.at.add(at), !is_line, patient.seed)?
            }
            _ => self.sealed_entry(random)?.0,
        };
        let mut done = Vec::new();
        for _ in 0..random.u32(1..3) {
            done.push(change(sealed.covered(), random)?);
        }
        sealed.seal();
        self.put(sealed.at, &sealed.bytes);
        Some(format!("the line at {} with a right checksum: {}", sealed.at, done.join(", ")))
    }

    /// Puts bytes in a name that no name may have.
    pub(super) fn name(&self, random: &mut Rng) -> Option<String> {
        let (mut sealed, entry) = self.sealed_entry(random)?;
        let Entry::DentryAdd { name, .. } = entry else { return None };
        let name = name.as_bytes();
        let at = sealed.bytes.windows(name.len()).position(|bytes| bytes == name)?;
        let place = sealed.bytes.get_mut(at..at + name.len())?;
        match random.u32(0..4) {
            0 => place.fill(b'.'),
            1 => *place.first_mut()? = b'/',
            2 => *place.last_mut()? = 0,
            _ => place.fill(0xff),
        }
        let new = place.to_vec();
        sealed.seal();
        self.put(sealed.at, &sealed.bytes);
        Some(format!("the name at {} is {new:?}", sealed.at))
    }

    fn line_at(&self, at: PmAddr, in_front: bool, seed: Seed) -> Option<Sealed> {
        let bytes = self.pm.load_line(at).ok()?.to_vec();
        Some(Sealed { at, bytes, in_front, seed })
    }

    fn sealed_entry(&self, random: &mut Rng) -> Option<(Sealed, Entry)> {
        let patient: Patient = self.patient(random)?;
        let (at, _, bytes, entry) = self.entry_of(&patient, random)?;
        let seed = patient.seed.generation(patient.generation);
        Some((Sealed { at, bytes, in_front: true, seed }, entry))
    }
}

/// Changes a bit, a byte or a word; says where.
fn change(bytes: &mut [u8], random: &mut Rng) -> Option<String> {
    let at = random.usize(0..bytes.len());
    match random.u32(0..3) {
        0 => {
            let bit = random.u32(0..8);
            *bytes.get_mut(at)? ^= 1 << bit;
            Some(format!("bit {bit} of byte {at}"))
        }
        1 => {
            let new = *random.choice(&[0, 1, 2, 5, 7, 8, 0x7f, 0x80, 0xff])?;
            *bytes.get_mut(at)? = new;
            Some(format!("byte {at} is {new:#x}"))
        }
        _ => {
            let at = at / 4 * 4;
            let place = bytes.get_mut(at..at + 4)?.first_chunk_mut()?;
            let new = number(random, u64::from(u32::from_le_bytes(*place)));
            let new = u32::try_from(new & u64::from(u32::MAX)).ok()?;
            *place = new.to_le_bytes();
            Some(format!("bytes from {at} are {new:#x}"))
        }
    }
}

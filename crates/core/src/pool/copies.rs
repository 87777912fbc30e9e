//! What a pool keeps twice, the superblock and each slot's header: read from the copy that stands,
//! and the other one rewritten from it. So is the newer state line of a slot, by the older one.
//!
//! The first copy stands where it validates, else the replica. A replica that validates and differs
//! is one that was written just before a crash, the first copy being changed last: it is put back.

use std::fmt;

use novale_layout::{
    FORMAT_VERSION, LayoutError, PAGE, PmAddr, SLOT_HEADER_BYTES, SLOT_HEADER_OFFSET,
    SUPERBLOCK_BYTES, SlotHeader, Superblock,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};

const SUPERBLOCK: &str = "superblock";
const STATE_LINE: &str = "state line";

/// A copy that does not say what stands.
#[derive(Debug, Clone)]
pub(crate) struct BadCopy {
    /// Where it lies.
    pub(crate) at: PmAddr,
    what: &'static str,
    found: String,
    /// What it should say.
    bytes: Vec<u8>,
}

impl BadCopy {
    /// A slot's newer state line, of which the older one tells what it said.
    pub(crate) fn of_state(at: PmAddr, found: LayoutError, bytes: &[u8]) -> Self {
        Self { at, what: STATE_LINE, found: found.to_string(), bytes: bytes.to_vec() }
    }

    /// Whether it is the superblock's, whose features may change while the pool is in use.
    pub(crate) fn is_of_superblock(&self) -> bool {
        self.what == SUPERBLOCK
    }

    /// Whether it is a slot's state line: its place is fixed, and the next line goes over the older one.
    pub(crate) fn is_state_line(&self) -> bool {
        self.what == STATE_LINE
    }

    /// Writes what stands over it. The other copy stands meanwhile, so a crash loses nothing; before that
    /// one changes, this one is durable.
    pub(crate) fn rewrite(&self, pm: &Pm) -> Flushed {
        pm.stream(self.at, &self.bytes, Purpose::Other)
    }
}

impl fmt::Display for BadCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = if self.at.byte() < PAGE { "first copy" } else { "replica" };
        let (what, slot, found) = (self.what, self.at.slot(), &self.found);
        if self.is_state_line() {
            return write!(
                f,
                "slot {slot}: the newer {what} is damaged, the one of the session before stands: {found}"
            );
        }
        write!(f, "slot {slot}: the {copy} of the {what} is damaged, the other one stands: {found}")
    }
}

/// A slot's header, and its copy that is damaged.
pub(crate) fn slot_header(pm: &Pm, slot: u8) -> Result<(SlotHeader, Option<BadCopy>)> {
    let read = |page: u64| -> Result<Read<SlotHeader>> {
        let at = PmAddr::new(slot, page * PAGE + SLOT_HEADER_OFFSET);
        let mut bytes = [0; SLOT_HEADER_BYTES];
        pm.load(at, &mut bytes)?;
        Ok(Read { at, found: SlotHeader::decode(&bytes) })
    };
    let pages = pm.slot_len(slot) / PAGE;
    let first = read(0)?;
    // A slot may have grown since it was made. One that was cut off is refused by its length.
    let made = first.found.as_ref().map_or(pages, |header| header.pages);
    let replica = read(made.clamp(1, pages.max(1)) - 1)?;
    if let Ok(header) = first.found
        && header.pages > pages
    {
        return Ok((header, None));
    }
    choose("slot header", &first, &replica, |header| header.encode().to_vec()).map_err(|error| {
        let blank = first.found == Err(LayoutError::Blank);
        let magic = matches!(first.found, Err(LayoutError::Field { field: "magic", .. }));
        if blank || magic {
            return Error::BadPool(format!(
                "slot {slot} is no slot of a Novale pool ({error}): make one with mkfs"
            ));
        }
        Error::BadPool(format!("slot {slot}: {error}"))
    })
}

/// The superblock, and its copy that is damaged.
pub(crate) fn superblock(pm: &Pm, headers: &[SlotHeader]) -> Result<(Superblock, Option<BadCopy>)> {
    if headers.first().is_some_and(|header| header.index != 0) {
        return Err(Error::BadPool("the first slot given is not slot 0 of its pool".into()));
    }
    let read = |slot: u8, page: u64| -> Result<Read<Superblock>> {
        let at = PmAddr::new(slot, page * PAGE);
        let mut bytes = [0; SUPERBLOCK_BYTES];
        pm.load(at, &mut bytes)?;
        Ok(Read { at, found: Superblock::decode(&bytes) })
    };
    let first = match read(0, 0) {
        Err(Error::Lost(_)) => return replica_alone(pm, headers),
        first => first?,
    };
    // The replica is in the last slot, which is not there when too few slots were given.
    let count = usize::from(first.found.as_ref().map_or(0, |superblock| superblock.slot_count));
    if let Ok(superblock) = first.found
        && count != headers.len()
    {
        return Ok((superblock, None));
    }
    let Some(last) = (0..).zip(headers).last() else {
        return Err(Error::BadPool("a pool has at least one slot".into()));
    };
    if pm.is_absent(last.0) {
        let found = first.found.map_err(|error| {
            let first =
                format!("its first copy is damaged ({error}), and the replica is not there");
            Error::BadPool(format!(
                "the pool has no superblock: {first}: restore slot 0 from a copy"
            ))
        })?;
        return Ok((found, None));
    }
    let replica = read(last.0, last.1.pages.saturating_sub(1))?;
    choose(SUPERBLOCK, &first, &replica, |superblock| superblock.encode().to_vec())
        .map_err(|error| Error::BadPool(error.to_string()))
}

/// The superblock by its replica alone, where slot 0 is not there.
fn replica_alone(pm: &Pm, headers: &[SlotHeader]) -> Result<(Superblock, Option<BadCopy>)> {
    let Some((slot, last)) = (0..).zip(headers).last().filter(|(slot, _)| !pm.is_absent(*slot))
    else {
        return Err(Error::BadPool(
            "the pool has no superblock: it is in its first and its last slot, and neither is there".into(),
        ));
    };
    let mut bytes = [0; SUPERBLOCK_BYTES];
    pm.load(PmAddr::new(slot, last.pages.saturating_sub(1) * PAGE), &mut bytes)?;
    let found = Superblock::decode(&bytes);
    let refused = |error| {
        Error::BadPool(format!(
            "slot 0 is missing, and the superblock's replica is damaged: {error}"
        ))
    };
    Ok((found.map_err(refused)?, None))
}

/// The superblock by its first copy alone.
pub(crate) fn first_superblock(pm: &Pm) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    pm.load(PmAddr::new(0, 0), &mut bytes)?;
    Superblock::decode(&bytes).map_err(|error| {
        Error::BadPool(format!("the first copy of the superblock is damaged: {error}"))
    })
}

/// A copy as it was read.
struct Read<T> {
    at: PmAddr,
    found: std::result::Result<T, LayoutError>,
}

/// Why no copy stands.
#[derive(Debug, thiserror::Error)]
enum NoCopy {
    #[error(
        "the pool has format version {0}, this program knows version {FORMAT_VERSION}: use the \
         release that made it"
    )]
    Version(u64),
    #[error("its {what} is damaged ({first}), and so is the replica: restore the slot from a copy")]
    Damaged { what: &'static str, first: LayoutError },
    #[error(
        "its superblock is blank, and so is the replica: either mkfs was cut off (make one with mkfs), \
         or both were erased (restore the slot from a copy)"
    )]
    CutOff,
}

fn choose<T: Copy + PartialEq>(
    what: &'static str,
    first: &Read<T>,
    replica: &Read<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> std::result::Result<(T, Option<BadCopy>), NoCopy> {
    let bad = |copy: &Read<T>, found: String, stands: &T| {
        Some(BadCopy { at: copy.at, what, found, bytes: encode(stands) })
    };
    match (&first.found, &replica.found) {
        (Ok(stands), Ok(other)) if stands == other => Ok((*stands, None)),
        (Ok(stands), Ok(_)) => {
            Ok((*stands, bad(replica, "it says something else".to_owned(), stands)))
        }
        (Ok(stands), Err(error)) => Ok((*stands, bad(replica, error.to_string(), stands))),
        (Err(error), Ok(stands)) => Ok((*stands, bad(first, error.to_string(), stands))),
        (Err(first), Err(replica)) => Err(match (version(first), version(replica)) {
            (Some(one), Some(other)) if one == other => NoCopy::Version(one),
            _ if what == SUPERBLOCK
                && (first, replica) == (&LayoutError::Blank, &LayoutError::Blank) =>
            {
                NoCopy::CutOff
            }
            _ => NoCopy::Damaged { what, first: *first },
        }),
    }
}

/// The version that a structure is refused for.
fn version(error: &LayoutError) -> Option<u64> {
    if let LayoutError::Field { field: "version", found, .. } = error { Some(*found) } else { None }
}

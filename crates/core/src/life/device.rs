//! A memory that is emulated for all clients of a pool: who opens it measures the machine and says in the
//! arena what the delays are; who joins takes them over, and shares the memory's bandwidth.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, Off};
use novale_pm::{Device, DeviceError, MODEL_WORDS, Model, Pm};

use crate::base::error::Result;

/// Where in the arena the model's words are, in its root block.
const DEVICE: usize = 32;
/// Their number, as a power of two.
const WORDS_LOG2: u32 = MODEL_WORDS.ilog2();

/// Has `pm` emulate a device, and all who join the pool in `arena` from then on: before the pool is opened
/// in it, so that recovery and what is measured of the memory go by the device.
///
/// # Errors
/// [`DeviceError`]: the machine is slower than the device, for one.
pub fn emulate(
    pm: &mut Pm,
    arena: &Arena,
    device: &Device,
) -> std::result::Result<(), DeviceError> {
    if device.is_own() {
        return Ok(());
    }
    let off = arena.alloc_table(WORDS_LOG2).map_err(|_| DeviceError::NoMemory)?;
    let words = arena.shared_words(off, MODEL_WORDS).map_err(|_| DeviceError::NoMemory)?;
    pm.set_model(Model::start(device, Box::new(words))?)?;
    arena.root()[DEVICE].store(off.raw(), Ordering::Release);
    Ok(())
}

/// The model of those who have the pool open in `arena`.
fn model_of(arena: &Arena) -> Result<Option<Model>> {
    let off = Off::from_raw(arena.root()[DEVICE].load(Ordering::Acquire));
    if off.is_null() {
        return Ok(None);
    }
    Ok(Model::join(Box::new(arena.shared_words(off, MODEL_WORDS)?)))
}

/// The device that is emulated in the pool that is open in `arena`: what is measured of it is that one's,
/// and not the machine's.
///
/// # Errors
/// [`Error::BadArena`](crate::Error::BadArena) when the arena is damaged.
pub fn emulated(arena: &Arena) -> Result<Option<Device>> {
    Ok(model_of(arena)?.map(|model| *model.device()))
}

/// Has a client that joins emulate what the others do.
pub(crate) fn join(pm: &mut Pm, arena: &Arena) -> Result<()> {
    let Some(model) = model_of(arena)? else { return Ok(()) };
    let wrong = |error: DeviceError| crate::Error::BadArena(error.to_string());
    pm.set_model(model).map_err(wrong)
}

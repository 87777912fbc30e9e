//! What this machine's own memory takes, measured when a device is to be emulated.

use novale_layout::PmAddr;

use super::DeviceError;
use super::clock::{self, Rate};
use super::spec::{Bandwidth, Device, SECOND_NS};
use crate::{Flushed, LINE, Pm, PmOptions, Purpose};

/// Memory to measure loads in, beyond what caches hold; and stores.
const LOADS_BYTES: u64 = 128 << 20;
const STORES_BYTES: u64 = 8 << 20;
/// Loads, each of which needs the one before, in so many rounds, of which the quickest counts: others use
/// the machine too.
const LOADS: u64 = 2000;
const LOAD_ROUNDS: usize = 16;
/// Fences, of which the median counts.
const FENCES: usize = 201;
/// Bytes stored at once where bandwidth is measured, and how often; the least time counts.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: u64 = 8;

/// ns of this machine's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) rate: Rate,
    /// Of a load; 0 where nobody asked.
    pub(super) read_ns: u64,
    /// Of a fence after a line.
    barrier_ns: u64,
    /// Of a megabyte streamed by one thread.
    piece_ns: u64,
}

impl Own {
    pub(super) fn measured(device: &Device) -> Result<Self, DeviceError> {
        let rate = Rate::measured()?;
        let options = PmOptions { populate: true, hugepages: true, ..PmOptions::default() };
        let memory = |bytes| Pm::anonymous(&[bytes], &options).map_err(|_| DeviceError::NoMemory);
        let stores = memory(STORES_BYTES)?;
        let read_ns = match device.read_ns {
            Some(_) => rate.ns(loads(&memory(LOADS_BYTES)?)) / LOADS,
            None => 0,
        };
        let barrier_ns = rate.ns(fence(&stores));
        let piece_ns = rate.ns(piece(&stores)).max(1);
        Ok(Self { rate, read_ns, barrier_ns, piece_ns })
    }

    /// ns of a unit that one thread streams.
    pub(super) fn unit_ns(&self, device: &Device) -> u64 {
        self.piece_ns * device.unit_bytes / PIECE_BYTES
    }

    /// Bytes a second that the device takes in; none where it has no limit.
    pub(super) fn bandwidth(&self, device: &Device) -> Option<u64> {
        match device.bandwidth {
            Bandwidth::Own => None,
            Bandwidth::Bytes(rate) => Some(rate),
            Bandwidth::Part(part) => Some(PIECE_BYTES * SECOND_NS / self.piece_ns / part),
        }
    }

    /// Refuses a device that is faster than this machine.
    pub(super) fn check(&self, device: &Device) -> Result<(), DeviceError> {
        let each = [
            ("a load", self.read_ns, device.read_ns),
            ("a fence", self.barrier_ns, device.barrier_ns),
            ("a unit streamed", self.unit_ns(device), device.write_ns.filter(|ns| *ns > 0)),
        ];
        for (what, found_ns, wanted_ns) in each {
            if let Some(wanted_ns) = wanted_ns.filter(|wanted| found_ns > *wanted) {
                let device = device.name;
                return Err(DeviceError::TooSlow { device, what, found_ns, wanted_ns });
            }
        }
        Ok(())
    }
}

/// Ticks of [`LOADS`] loads of lines all over the memory.
fn loads(pm: &Pm) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut round = || {
        let begun = clock::now();
        for _ in 0..LOADS {
            // Xorshift, which defeats prefetchers.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = state % (LOADS_BYTES / LINE) * LINE;
            // It is 0, which only the load tells.
            state ^= pm.load_u64(PmAddr::new(0, at)).unwrap_or(0);
        }
        clock::now() - begun
    };
    (0..LOAD_ROUNDS).map(|_| round()).min().unwrap_or_default()
}

/// Ticks of a fence after a line that was streamed.
fn fence(pm: &Pm) -> u64 {
    let mut times = [0; FENCES];
    for (index, time) in (0..).zip(&mut times) {
        let stored =
            pm.stream_line(PmAddr::new(0, index * 4160 % STORES_BYTES), &[1; 64], Purpose::Other);
        let begun = clock::now();
        pm.fence(stored).end();
        *time = clock::now() - begun;
    }
    times.sort_unstable();
    times.get(FENCES / 2).copied().unwrap_or_default()
}

/// Ticks of [`PIECE_BYTES`] bytes streamed.
fn piece(pm: &Pm) -> u64 {
    let once = |index| {
        let begun = clock::now();
        let stored =
            pm.stream_zero(PmAddr::new(0, index * PIECE_BYTES), PIECE_BYTES, Purpose::Other);
        pm.fence(stored.and(Flushed::none())).end();
        clock::now() - begun
    };
    (0..PIECES).map(once).min().unwrap_or_default()
}

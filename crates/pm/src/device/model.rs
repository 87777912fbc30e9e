//! The delays of an emulated memory.
//!
//! Rules. *Writes* (`HiNFS` 5.1; ADL 6.5): each unit that a write-back or a streaming store touches takes its
//! time where the instruction stands, beside what the machine takes for it. *Bandwidth* (`HiNFS` 5.1): the
//! memory writes so many pieces at the same time as bandwidth times latency says; who comes then waits for
//! the first that is free, whichever client has it. *Fences* (NOVA, table 1) take their time from their
//! begin, whether anything is pending or not. *Reads*: whether a load finds its line in a cache can't be
//! seen, so each thread has a table of the lines that it loaded last, as a cache of 2 MB would have them;
//! the first line of a load that is not there takes its time beyond the machine's own, the others those of
//! the memory's read bandwidth. Loads that are no calls of this crate, those of mappings, take nothing.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;

use novale_layout::PmAddr;

use super::calibrate::Own;
use super::clock::{now, overrun, wait_until};
use super::spec::{Bandwidth, Device, DeviceError, SECOND_NS, WRITERS_MAX};
use crate::{
    CountWords, LINE, Observer, Purpose, StoreEvent, StoreKind, WriteBackKind, lines_touched,
    to_usize,
};

/// Words of a model that several clients share.
pub const MODEL_WORDS: usize = 32;

// The words: values, then a moment for each piece that is written at the same time.
const IN_USE: usize = 0;
const VALUES: usize = 1;
const DEVICE: usize = 8;
const FREE_AT: usize = 16;
const _: () = assert!(FREE_AT as u64 + WRITERS_MAX == MODEL_WORDS as u64);

/// Ticks are counted in so many parts where units are small.
const PARTS: u64 = 256;
/// How often a place is sought that another one takes at this moment.
const TRIES: usize = 64;
/// No wait is longer, whatever the shared words say: 2^31 ticks, about a second.
const WAIT_MAX: u64 = 1 << 31;
/// Lines of a thread's table: 2 MB.
const TABLE_LINES: usize = 1 << 15;

/// What the delays are, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Values {
    /// Of the first line of a load, beyond the machine's own.
    read: u64,
    /// Of each other line, in [`PARTS`].
    read_line: u64,
    /// Of a unit written, beyond the machine's own.
    write: u64,
    barrier: u64,
    /// How long a place is taken by a unit, in [`PARTS`]; 0 where there are as many as one likes.
    taken: u64,
    /// Places.
    writers: u64,
    /// By how much a wait is too long.
    overrun: u64,
}

/// A memory that is emulated.
pub struct Model {
    device: Device,
    values: Values,
    words: CountWords,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("device", &self.device)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}

thread_local! {
    /// When the thread's fence began.
    static FENCE_BEGAN: Cell<u64> = const { Cell::new(0) };
    /// The lines that it loaded last, each in its place.
    static LOADED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Model {
    /// Measures this machine's memory, for 10 to 100 ms, and makes the model; `words` ([`MODEL_WORDS`], all 0)
    /// are shared by those who share the memory.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn start(device: &Device, words: CountWords) -> Result<Self, DeviceError> {
        let own = Own::measured(device)?;
        own.check(device)?;
        let beyond = |wanted: Option<u64>, own_ns: u64| {
            own.rate.ticks(wanted.unwrap_or(0).saturating_sub(own_ns))
        };
        let of_rate = |bytes: u64, rate: u64| own.rate.ticks(bytes * SECOND_NS * PARTS / rate);
        let write = beyond(device.write_ns, own.unit_ns(device));
        let writers = device.writers.unwrap_or(1);
        let by_rate =
            own.bandwidth(device).map_or(0, |rate| of_rate(device.unit_bytes * writers, rate));
        let by_latency =
            device.writers.map_or(0, |_| own.rate.ticks(device.write_ns.unwrap_or(0) * PARTS));
        let values = Values {
            read: beyond(device.read_ns, own.read_ns),
            read_line: device.read_bandwidth.map_or(0, |rate| of_rate(LINE, rate)),
            write,
            barrier: own.rate.ticks(device.barrier_ns.unwrap_or(0)),
            taken: by_rate.max(by_latency),
            writers,
            overrun: overrun(),
        };
        let model = Self { device: *device, values, words };
        model.tell();
        Ok(model)
    }

    /// The model that another client started, of which these are the words; none where there is none.
    #[must_use]
    pub fn join(words: CountWords) -> Option<Self> {
        let word = |index: usize| {
            (*words).as_ref().get(index).map(|word| word.load(Relaxed)).unwrap_or_default()
        };
        let [read, read_line, write, barrier, taken, writers, overrun] =
            [0, 1, 2, 3, 4, 5, 6].map(|index| word(VALUES + index));
        if word(IN_USE) == 0 {
            return None;
        }
        let values = Values { read, read_line, write, barrier, taken, writers, overrun };
        let device = told([0, 1, 2, 3, 4, 5, 6, 7].map(|index| word(DEVICE + index)));
        Some(Self { device, values, words })
    }

    /// What is emulated.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether loads take longer than the machine's own.
    pub(crate) fn delays_loads(&self) -> bool {
        self.values.read > 0 || self.values.read_line > 0
    }

    /// Says in the shared words what it is.
    fn tell(&self) {
        let Values { read, read_line, write, barrier, taken, writers, overrun } = self.values;
        let values = [read, read_line, write, barrier, taken, writers, overrun];
        let device = [
            Device::PRESETS.iter().position(|p| p.name == self.device.name).map_or(0, |at| at + 1)
                as u64,
            self.device.read_ns.map_or(0, |ns| ns + 1),
            self.device.write_ns.map_or(0, |ns| ns + 1),
            self.device.barrier_ns.map_or(0, |ns| ns + 1),
            self.device.unit_bytes << 8 | self.device.writers.unwrap_or(0),
            match self.device.bandwidth {
                Bandwidth::Own => 0,
                Bandwidth::Bytes(rate) => rate << 1,
                Bandwidth::Part(part) => part << 1 | 1,
            },
            self.device.read_bandwidth.unwrap_or(0),
            FLUSHES.iter().position(|kind| Some(*kind) == self.device.flush).map_or(0, |at| at + 1)
                as u64,
        ];
        let words = (*self.words).as_ref().iter().skip(VALUES);
        words.zip(values).for_each(|(word, value)| word.store(value, Relaxed));
        let words = (*self.words).as_ref().iter().skip(DEVICE);
        words.zip(device).for_each(|(word, value)| word.store(value, Relaxed));
        if let Some(word) = (*self.words).as_ref().get(IN_USE) {
            word.store(1, Relaxed);
        }
    }

    /// `len` bytes from byte `byte` of a slot are written.
    fn written(&self, byte: u64, len: u64) {
        if len == 0 {
            return;
        }
        let unit = self.device.unit_bytes;
        let units = (byte + (len - 1)) / unit - byte / unit + 1;
        let begun = now();
        let mut end = begun + units * self.values.write;
        if self.values.taken > 0 {
            end = end.max(self.take_place(begun, units * self.values.taken / PARTS));
        }
        self.wait(begun, end);
    }

    /// Spins until a moment, and never long.
    fn wait(&self, begun: u64, end: u64) {
        wait_until(end.min(begun + WAIT_MAX).saturating_sub(self.values.overrun));
    }

    /// Takes the place that is free first, for so many ticks; returns when it is free again.
    fn take_place(&self, begun: u64, ticks: u64) -> u64 {
        let writers = to_usize(self.values.writers);
        let places = || (*self.words).as_ref().iter().skip(FREE_AT).take(writers);
        for _ in 0..TRIES {
            let first = places().map(|word| (word.load(Relaxed), word)).min_by_key(|(at, _)| *at);
            let Some((free_at, word)) = first else { break };
            let end = free_at.clamp(begun, begun + WAIT_MAX) + ticks;
            if word.compare_exchange(free_at, end, Relaxed, Relaxed).is_ok() {
                return end;
            }
        }
        begun + ticks
    }

    /// `len` bytes are loaded.
    pub(crate) fn loaded(&self, addr: PmAddr, len: u64) {
        let lines = lines_touched(addr.byte(), len);
        let first = addr.raw() / LINE;
        let begun = now();
        let missed = LOADED.try_with(|loaded| {
            let mut loaded = loaded.borrow_mut();
            loaded.resize(TABLE_LINES, 0);
            (first..first + lines).filter(|line| note(&mut loaded, *line)).count() as u64
        });
        let missed = missed.unwrap_or(0);
        if missed > 0 {
            let others = (missed - 1) * self.values.read_line / PARTS;
            self.wait(begun, begun + self.values.read + others);
        }
    }
}

/// Notes a line as loaded; says whether it was not there.
fn note(loaded: &mut [u64], line: u64) -> bool {
    // A line of 0 is one that is not there.
    let place = loaded.get_mut(to_usize(line) % TABLE_LINES);
    place.is_some_and(|place| std::mem::replace(place, line + 1) != line + 1)
}

/// Lines that are streamed are in no cache.
fn forget(first: u64, lines: u64) {
    let forgotten = LOADED.try_with(|loaded| {
        let mut loaded = loaded.borrow_mut();
        for line in first..first + lines {
            if let Some(place) = loaded.get_mut(to_usize(line) % TABLE_LINES) {
                *place = if *place == line + 1 { 0 } else { *place };
            }
        }
    });
    // A thread that ends has none.
    forgotten.unwrap_or_default();
}

const FLUSHES: [WriteBackKind; 3] =
    [WriteBackKind::Clwb, WriteBackKind::ClflushOpt, WriteBackKind::Clflush];

/// The device that words tell of.
fn told(words: [u64; FREE_AT - DEVICE]) -> Device {
    let [name, read, write, barrier, unit, bandwidth, read_bandwidth, flush] = words;
    let index = |number: u64| number.checked_sub(1).map(to_usize);
    let preset = index(name).and_then(|at| Device::PRESETS.get(at));
    Device {
        name: preset.map_or("own values", |preset| preset.name),
        read_ns: read.checked_sub(1),
        write_ns: write.checked_sub(1),
        barrier_ns: barrier.checked_sub(1),
        unit_bytes: (unit >> 8).max(LINE),
        bandwidth: match (bandwidth, bandwidth & 1) {
            (0, _) => Bandwidth::Own,
            (part, 1) => Bandwidth::Part(part >> 1),
            (rate, _) => Bandwidth::Bytes(rate >> 1),
        },
        read_bandwidth: Some(read_bandwidth).filter(|rate| *rate > 0),
        writers: Some(unit & 0xff).filter(|writers| *writers > 0),
        flush: index(flush).and_then(|at| FLUSHES.get(at)).copied(),
    }
}

impl Observer for Model {
    fn store(&self, event: StoreEvent<'_>) {
        if event.kind == StoreKind::Streaming {
            let len = event.bytes.len() as u64;
            forget(event.addr.raw() / LINE, lines_touched(event.addr.byte(), len));
            self.written(event.addr.byte(), len);
        }
    }

    fn write_back(&self, addr: PmAddr, len: u64, _: Purpose, _: &'static Location<'static>) {
        self.written(addr.byte(), len);
    }

    fn fence(&self, _: &'static Location<'static>) {
        FENCE_BEGAN.set(now());
    }

    fn fenced(&self) {
        let begun = FENCE_BEGAN.get();
        self.wait(begun, begun + self.values.barrier);
    }

    fn sees_bytes(&self) -> bool {
        false
    }
}

//! What an emulated memory takes.

use std::fmt;
use std::str::FromStr;

use crate::{LINE, WriteBackKind};

/// Bytes of a second that a memory takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bandwidth {
    /// What the machine's own does.
    #[default]
    Own,
    /// So many bytes a second.
    Bytes(u64),
    /// One of so many parts of what one thread streams to the machine's own.
    Part(u64),
}

/// A memory to be emulated: what is not said is the machine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The preset that it began with.
    pub name: &'static str,
    /// ns of a load that finds its line in no cache, all of them.
    pub read_ns: Option<u64>,
    /// ns of each unit that is written back or streamed, beside those of the processor.
    pub write_ns: Option<u64>,
    /// ns of a fence, all of them.
    pub barrier_ns: Option<u64>,
    /// Bytes of the memory's unit of writing, 64 or more.
    pub unit_bytes: u64,
    /// What it takes in, of all who write together.
    pub bandwidth: Bandwidth,
    /// What it gives out, to one who reads: bytes a second.
    pub read_bandwidth: Option<u64>,
    /// How many units it writes at the same time, at most.
    pub writers: Option<u64>,
    /// Bytes go through the caches, and are written back by this instruction: none are streamed.
    pub flush: Option<WriteBackKind>,
}

/// Of [`Device::writers`].
pub(super) const WRITERS_MAX: u64 = 16;
/// A second, in ns; and the most that anything may take.
pub(super) const SECOND_NS: u64 = 1_000_000_000;
const LATENCY_MAX_NS: u64 = SECOND_NS / 1000;
const UNIT_BYTES_MAX: u64 = 4096;
const GB: u64 = 1_000_000_000;
const KEYS: &str = "read, write, barrier (ns), bandwidth, read_bandwidth (bytes a second, with K, M, G; \
                    bandwidth also 1/8 of the machine's own), writers, unit (bytes), flush";

const DRAM: Device = Device {
    name: "dram",
    read_ns: None,
    write_ns: None,
    barrier_ns: None,
    unit_bytes: LINE,
    bandwidth: Bandwidth::Own,
    read_bandwidth: None,
    writers: None,
    flush: None,
};

/// Why a memory can't be emulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No such preset, key or value.
    #[error("{0}")]
    Spelling(String),
    /// The machine is slower than what it should emulate.
    #[error(
        "{device} can't be emulated here: {what} takes {found_ns} ns on this machine, and {wanted_ns} on the \
         device: take a slower one, or leave that value out"
    )]
    TooSlow {
        /// Its preset, or `own values`.
        device: &'static str,
        /// What takes so long.
        what: &'static str,
        /// Here.
        found_ns: u64,
        /// There.
        wanted_ns: u64,
    },
    /// The processor lacks the instruction.
    #[error("{0}")]
    NoFlush(String),
    /// There is not enough memory to measure it.
    #[error(
        "no memory can be emulated here: memory to measure this machine's own is missing, 128 MB"
    )]
    NoMemory,
    /// Nothing counts time with one rate.
    #[error("no memory can be emulated here: this processor has no counter of a steady rate")]
    NoClock,
}

impl Device {
    /// Those that have a name.
    pub const PRESETS: [Self; 6] = [
        DRAM,
        // NOVA, table 1, which has reads and bandwidth as those of DRAM.
        Self { name: "stt-ram", write_ns: Some(40), barrier_ns: Some(200), ..DRAM },
        // NOVA, table 1.
        Self {
            name: "pcm",
            read_ns: Some(300),
            write_ns: Some(40),
            barrier_ns: Some(500),
            bandwidth: Bandwidth::Part(8),
            ..DRAM
        },
        // HiNFS, 5.1: 200 ns of 64 bytes at 1 GB/s are 3 writers.
        Self {
            name: "hinfs",
            write_ns: Some(200),
            bandwidth: Bandwidth::Bytes(GB),
            writers: Some(3),
            ..DRAM
        },
        // As measured by others, of one module.
        Self {
            name: "optane",
            read_ns: Some(305),
            write_ns: Some(94),
            unit_bytes: 256,
            bandwidth: Bandwidth::Bytes(2_300_000_000),
            read_bandwidth: Some(6_600_000_000),
            writers: Some(4),
            ..DRAM
        },
        Self {
            name: "cxl",
            read_ns: Some(200),
            barrier_ns: Some(200),
            bandwidth: Bandwidth::Bytes(32 * GB),
            ..DRAM
        },
    ];

    /// Whether there is nothing to emulate.
    #[must_use]
    pub fn is_own(&self) -> bool {
        Self { name: DRAM.name, ..*self } == DRAM
    }

    /// The text that it is read from, with colons: the preset's name, and what differs from that.
    #[must_use]
    pub fn spelled(&self) -> String {
        let preset = Self::PRESETS.into_iter().find(|preset| preset.name == self.name);
        let base = preset.unwrap_or(DRAM);
        let number = |key, own: Option<u64>, base: Option<u64>| {
            own.filter(|_| own != base).map(|value| format!("{key}={value}"))
        };
        let bandwidth = match self.bandwidth {
            _ if self.bandwidth == base.bandwidth => None,
            Bandwidth::Own => None,
            Bandwidth::Bytes(rate) => Some(format!("bandwidth={rate}")),
            Bandwidth::Part(part) => Some(format!("bandwidth=1/{part}")),
        };
        let flush = self.flush.map(|kind| format!("flush={}", instruction(kind)));
        let words = [
            preset.map(|preset| preset.name.to_owned()),
            number("read", self.read_ns, base.read_ns),
            number("write", self.write_ns, base.write_ns),
            number("barrier", self.barrier_ns, base.barrier_ns),
            number("unit", Some(self.unit_bytes), Some(base.unit_bytes)),
            bandwidth,
            number("read_bandwidth", self.read_bandwidth, base.read_bandwidth),
            number("writers", self.writers, base.writers),
            flush,
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(":")
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), DeviceError> {
        let wrong = |wanted: &str| {
            DeviceError::Spelling(format!("device: '{key}={value}': it is {wanted}"))
        };
        let number = |least: u64, most: u64| {
            let found = size(value).filter(|number| (least..=most).contains(number));
            found.ok_or_else(|| wrong(&format!("a number, {least} to {most}")))
        };
        match key {
            "read" => self.read_ns = Some(number(1, LATENCY_MAX_NS)?),
            "write" => self.write_ns = Some(number(0, LATENCY_MAX_NS)?),
            "barrier" => self.barrier_ns = Some(number(1, LATENCY_MAX_NS)?),
            "bandwidth" => {
                self.bandwidth = match value.strip_prefix("1/") {
                    Some(part) => Bandwidth::Part(
                        size(part)
                            .filter(|part| (1..=1024).contains(part))
                            .ok_or_else(|| wrong("one part of 1 to 1024"))?,
                    ),
                    None => Bandwidth::Bytes(number(1_000_000, 1024 * GB).map_err(|_| {
                        wrong("bytes a second, 1M to 1024G, or a part of the machine's own as 1/8")
                    })?),
                }
            }
            "read_bandwidth" => self.read_bandwidth = Some(number(1_000_000, 1024 * GB)?),
            "writers" => self.writers = Some(number(1, WRITERS_MAX)?),
            "unit" => {
                let unit = number(LINE, UNIT_BYTES_MAX).ok().filter(|unit| unit.is_power_of_two());
                self.unit_bytes = unit.ok_or_else(|| wrong("a power of two, 64 to 4096"))?;
            }
            "flush" => {
                self.flush = Some(match value {
                    "clflush" => WriteBackKind::Clflush,
                    "clflushopt" => WriteBackKind::ClflushOpt,
                    "clwb" => WriteBackKind::Clwb,
                    _ => return Err(wrong("clflush, clflushopt or clwb")),
                });
            }
            _ => {
                let text = format!("device: '{key}' is none of its values, which are {KEYS}");
                return Err(DeviceError::Spelling(text));
            }
        }
        Ok(())
    }
}

/// What the instruction that writes a line back is called.
fn instruction(kind: WriteBackKind) -> String {
    format!("{kind:?}").to_ascii_lowercase()
}

/// A number with K, M or G behind it, thousands, millions and milliards.
fn size(text: &str) -> Option<u64> {
    let units = [("K", 1000), ("M", 1_000_000), ("G", GB)];
    let upper = text.to_ascii_uppercase();
    let unit = units.iter().find_map(|(unit, times)| Some((upper.strip_suffix(unit)?, *times)));
    let (digits, times) = unit.unwrap_or((&upper, 1));
    digits.parse::<u64>().ok()?.checked_mul(times)
}

/// A preset's name, values after it, or values alone: `pcm`, `pcm,flush=clflush`,
/// `read=300,write=40`. They are separated by commas or, inside of mount options, by colons.
impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let mut words = text.split([',', ':']).peekable();
        let mut device = Self { name: "own values", ..DRAM };
        if let Some(name) = words.next_if(|word| !word.contains('=')) {
            let known = Self::PRESETS.into_iter().find(|preset| preset.name == name);
            device = known.ok_or_else(|| {
                let names = Self::PRESETS.map(|preset| preset.name).join(", ");
                DeviceError::Spelling(format!("device '{name}': it is one of {names}, or values"))
            })?;
        }
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            device.set(key, value)?;
        }
        Ok(device)
    }
}

/// All that it takes, in words.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "emulated {}:", self.name)?;
        match self.read_ns {
            Some(ns) => write!(f, " read {ns} ns")?,
            None => write!(f, " reads as DRAM's")?,
        }
        if let Some(rate) = self.read_bandwidth {
            write!(f, " at {} MB/s", rate / 1_000_000)?;
        }
        let (unit, write_ns) = (self.unit_bytes, self.write_ns.unwrap_or(0));
        write!(f, ", write {write_ns} ns a unit of {unit} bytes")?;
        match self.bandwidth {
            Bandwidth::Own => write!(f, " at DRAM's bandwidth")?,
            Bandwidth::Bytes(rate) => write!(f, " at {} MB/s", rate / 1_000_000)?,
            Bandwidth::Part(part) => write!(f, " at 1/{part} of DRAM's bandwidth")?,
        }
        if let Some(writers) = self.writers {
            write!(f, " by {writers} at once")?;
        }
        match self.barrier_ns {
            Some(ns) => write!(f, ", barrier {ns} ns")?,
            None => write!(f, ", barrier as DRAM's")?,
        }
        match self.flush {
            Some(kind) => write!(f, ", stores through the caches and {}", instruction(kind)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> Device {
        text.parse().unwrap()
    }

    #[test]
    fn presets_have_the_papers_values() {
        let [dram, stt, pcm, hinfs, ..] = Device::PRESETS;
        assert!(dram.is_own() && !stt.is_own());
        assert_eq!((stt.write_ns, stt.barrier_ns), (Some(40), Some(200)));
        assert_eq!((pcm.read_ns, pcm.write_ns, pcm.barrier_ns), (Some(300), Some(40), Some(500)));
        assert_eq!(pcm.bandwidth, Bandwidth::Part(8));
        // Bandwidth by latency.
        let at_once = hinfs.write_ns.zip(hinfs.writers).unwrap();
        assert_eq!((GB * at_once.0 / SECOND_NS) / LINE, at_once.1);
        for preset in Device::PRESETS {
            assert_eq!(device(preset.name), preset);
            assert_eq!(preset.spelled(), preset.name);
        }
    }

    #[test]
    fn values_go_over_those_of_a_preset() {
        let pcm = device("pcm");
        let flush = Some(WriteBackKind::Clflush);
        assert_eq!(device("pcm,flush=clflush"), Device { flush, ..pcm });
        assert!(device("pcm,flush=clflush").to_string().ends_with("caches and clflush"));
        let own = device("read=300:write=40:bandwidth=2G:writers=2:unit=256");
        assert_eq!((own.read_ns, own.write_ns, own.barrier_ns), (Some(300), Some(40), None));
        assert_eq!(own.bandwidth, Bandwidth::Bytes(2 * GB));
        assert_eq!((own.writers, own.unit_bytes), (Some(2), 256));
        assert_eq!(own.spelled(), "read=300:write=40:unit=256:bandwidth=2000000000:writers=2");
        for text in
            ["pcm:bandwidth=1/3:flush=clflush", "barrier=7", "hinfs:write=300", "dram:flush=clwb"]
        {
            assert_eq!(
                (device(text).spelled(), device(&device(text).spelled())),
                (text.into(), device(text))
            );
        }
        let shown = own.to_string();
        for words in ["emulated", "own values", "read 300 ns", "2000 MB/s by 2", "as DRAM's"] {
            assert!(shown.contains(words), "{shown}");
        }
    }

    #[test]
    fn what_is_no_device_is_said() {
        for (text, words) in [
            ("tape", "one of dram, stt-ram"),
            ("pcm,speed=3", "'speed'"),
            ("write=fast", "'write=fast'"),
            ("unit=100", "a power of two"),
            ("unit=7", "a power of two, 64 to 4096"),
            ("writers=17", "1 to 16"),
            ("bandwidth=1/0", "one part"),
            ("bandwidth=0", "1/8"),
            ("flush=sync", "clflush"),
            ("pcm,", "''"),
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}

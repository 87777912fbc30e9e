//! Promise: an emulated memory takes the time that it is said to take, of all who share it together, and
//! what is faster than this machine is refused.
//!
//! What is asked here is mostly that things take no less; a busy machine makes everything take longer.
#![allow(clippy::unwrap_used, reason = "a test")]
#![cfg(target_arch = "x86_64")]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use novale_layout::PmAddr;
use novale_pm::{CountWords, DeviceError, Flushed, MODEL_WORDS, Model, Pm, PmOptions, Purpose};

#[derive(Clone, Default)]
struct Words(Arc<[AtomicU64; MODEL_WORDS]>);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0[..]
    }
}

fn shared(words: &Words) -> CountWords {
    Box::new(words.clone())
}

fn memory() -> Pm {
    let options = PmOptions { populate: true, ..PmOptions::default() };
    Pm::anonymous(&[4 << 20], &options).unwrap()
}

/// A memory, and a second client of the same one.
fn two(device: &str) -> [Pm; 2] {
    let (words, mut pms) = (Words::default(), [memory(), memory()]);
    assert!(Model::join(shared(&words)).is_none());
    let model = Model::start(&device.parse().unwrap(), shared(&words)).unwrap();
    let [first, second] = &mut pms;
    first.set_model(model).unwrap();
    second.set_model(Model::join(shared(&words)).unwrap()).unwrap();
    assert_eq!(first.device(), second.device());
    assert_eq!(first.device().copied(), device.parse().ok());
    pms
}

fn took(done: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    done();
    begun.elapsed()
}

/// The least of several times, to ask that something does not take long.
fn least(mut done: impl FnMut()) -> Duration {
    (0..20).map(|_| took(&mut done)).min().unwrap()
}

fn at(line: u64) -> PmAddr {
    PmAddr::new(0, line * 64)
}

const US: Duration = Duration::from_micros(1);

#[test]
fn writes_and_fences_take_their_time() {
    for pm in two("write=20000,barrier=100000") {
        let streamed = || drop(pm.stream(at(0), &[1; 640], Purpose::Data));
        // Ten lines, less what the machine takes by itself.
        assert!(least(streamed) >= 199 * US);
        let zeros = || drop(pm.stream_zero(at(3), 64, Purpose::Data));
        assert!(least(zeros) >= 19 * US);
        let copied = || drop(pm.stream_copy(at(100), at(0), 128, Purpose::Data).unwrap());
        assert!(least(copied) >= 39 * US);
        // An edge is stored plainly and written back; a plain store is in the cache alone.
        let edge = || drop(pm.stream(at(5).add(1), &[1; 3], Purpose::Data));
        assert!(least(edge) >= 19 * US && least(edge) < 39 * US);
        let plain = || drop(pm.store(at(9), &[1; 64], Purpose::Data));
        assert!(least(plain) < 19 * US);
        let back = || drop(pm.write_back_range(at(9), 128, Purpose::Data));
        assert!(least(back) >= 39 * US);
        assert!(least(|| pm.fence(Flushed::none()).end()) >= 99 * US);
        let mut line = [0; 64];
        pm.load(at(0), &mut line).unwrap();
        assert_eq!(line, [1; 64]);
    }
}

#[test]
fn units_are_what_the_memory_writes_at_once() {
    let [pm, _] = two("write=20000,unit=256");
    let lines = |first, count: usize| {
        least(|| drop(pm.stream(at(first), &vec![1; 64 * count], Purpose::Data)))
    };
    assert!(lines(0, 4) >= 19 * US && lines(0, 4) < 39 * US);
    assert!(lines(3, 2) >= 39 * US);
}

#[test]
fn a_load_takes_its_time_where_its_line_was_not_loaded_before() {
    let [pm, other] = two("read=100000,read_bandwidth=1M");
    let mut bytes = [0; 256];
    let mut line = 0;
    let mut first = || {
        line += 8;
        pm.load(at(line), &mut bytes).unwrap();
    };
    // 100 us, less the machine's own, and 3 lines of 64 us.
    assert!(least(&mut first) >= 285 * US);
    assert!(least(|| pm.load(at(8), &mut [0; 256]).unwrap()) < 90 * US);
    // What goes past the caches is in none.
    let again = || {
        drop(pm.stream_line(at(8), &[2; 64], Purpose::Data));
        assert_eq!(pm.load_line(at(8)).unwrap(), [2; 64]);
        pm.load_in_page(PmAddr::new(0, 0), 512, &mut [0; 8]).unwrap();
    };
    assert!(least(again) >= 95 * US);
    // Each way of loading, and what is outside.
    let mut line = 10_000;
    let mut next = || {
        line += 70;
        at(line)
    };
    assert!(least(|| assert_eq!(pm.load_u64(next()), Ok(0))) >= 95 * US);
    assert!(least(|| assert_eq!(pm.load_line(next()), Ok([0; 64]))) >= 95 * US);
    let page =
        |pm: &Pm, page: u64, from| pm.load_in_page(PmAddr::new(0, page * 4096), from, &mut [0; 8]);
    assert!(took(|| page(&pm, 900, 100).unwrap()) >= 95 * US);
    assert!(pm.load(PmAddr::new(0, 4 << 20), &mut [0; 1]).is_err());
    assert!(pm.load_u64(PmAddr::new(1, 0)).is_err() && page(&pm, 1024, 0).is_err());
    assert!(pm.contains(at(0), 4 << 20) && !pm.contains(at(1), 4 << 20));
    assert!(took(|| assert_eq!(other.load_u64(at(50_000)), Ok(0))) >= 95 * US);
}

/// Writes a megabyte by each of four threads, two of each client; how long it takes.
fn four_megabytes([first, second]: &[Pm; 2]) -> Duration {
    took(|| {
        std::thread::scope(|scope| {
            for pm in [first, first, second, second] {
                scope.spawn(move || {
                    for piece in 0..256 {
                        pm.fence(pm.stream(at(piece * 64), &[1; 4096], Purpose::Data)).end();
                    }
                });
            }
        });
    })
}

#[test]
fn all_who_write_share_the_bandwidth() {
    // 4 MiB at 100 MB/s are 41.9 ms; of two that write at once each has half.
    for device in ["bandwidth=100M", "bandwidth=100M,writers=2", "pcm,bandwidth=100M"] {
        let device = device.replace("pcm", "pcm,read=100000,barrier=1000000");
        let pms = two(&device);
        assert!(four_megabytes(&pms) >= Duration::from_millis(41), "{device}");
    }
    // Latency and how many there are at once say the bandwidth, too: 64 lines of 10 us, three at a time.
    let pms = two("write=10000,writers=3");
    assert!(four_megabytes(&pms) >= 218 * 1000 * US);
}

#[test]
fn what_is_faster_than_this_machine_is_refused() {
    let start = |device: &str| Model::start(&device.parse().unwrap(), shared(&Words::default()));
    for (device, what) in [("read=1", "a load"), ("barrier=1", "a fence")] {
        let error = start(device).unwrap_err();
        assert!(matches!(error, DeviceError::TooSlow { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains("take a slower one"), "{text}");
    }
}

#[test]
fn the_papers_flush_streams_nothing() {
    let [pm, _] = two("dram,flush=clflush");
    pm.fence(pm.stream(at(1).add(9), &[7; 1000], Purpose::Data)).end();
    pm.fence(pm.stream_line(at(40), &[7; 64], Purpose::Log)).end();
    let counted = pm.counters();
    let (lines, streamed) = (counted.lines(), counted.total().lines_streamed);
    assert_eq!((lines, streamed, counted.write_backs(), counted.bytes()), (17, 0, 17, 1064));
    let mut bytes = [0; 1002];
    pm.load(at(1).add(8), &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[1], bytes[1000], bytes[1001]), (0, 7, 7, 0));
}

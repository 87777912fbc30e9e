//! Prints what a durable random write through `Pm` costs, beside a bare loop of the instructions.
//!
//! `cargo run --release -p novale-pm --example limit [MEGABYTES]`; nanoseconds a write, p50 of
//! groups of 32, on private memory faulted in (2 MB pages where the kernel gives them). The bare
//! loop has no bounds, counters or observer: `Pm` should be within a few nanoseconds of it.
#![allow(unsafe_code, reason = "the bare loop stores without this crate's help")]
#![allow(clippy::print_stdout, reason = "a program that reports")]
#![allow(clippy::cast_precision_loss, reason = "nanoseconds and small counts")]

use std::hint::black_box;
use std::time::Instant;

use novale_layout::PmAddr;
use novale_pm::{Flushed, Pm, PmError, PmOptions, Purpose};

/// Writes timed as one.
const GROUP: usize = 32;
/// Groups of each measurement.
const GROUPS: usize = 4000;
/// Repetitions of the whole table's columns; the least p50 is shown.
const ROUNDS: usize = 5;

/// Random places for writes of `len` bytes, aligned to `align`.
fn places(pool: u64, len: u64, align: u64, seed: u64) -> Vec<u64> {
    let mut state = seed;
    (0..GROUP * GROUPS)
        .map(|_| {
            // Xorshift64*, enough to defeat the prefetchers.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let random = state.wrapping_mul(0x2545_F491_4F6C_DD1D);
            (random % (pool - len)) / align * align
        })
        .collect()
}

/// The median over the groups of the mean cost of `write`, ns.
fn p50(places: &[u64], mut write: impl FnMut(u64)) -> f64 {
    let mut costs: Vec<f64> = places
        .chunks(GROUP)
        .map(|group| {
            let start = Instant::now();
            for &at in group {
                write(at);
            }
            start.elapsed().as_secs_f64() * 1e9 / GROUP as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied().unwrap_or_default()
}

#[cfg(target_arch = "x86_64")]
mod bare {
    //! The instructions alone.

    use std::arch::asm;
    use std::arch::x86_64::_mm_sfence;

    /// Streams whole lines, then fences.
    ///
    /// # Safety
    /// `dst` is valid for `src.len()` bytes, a multiple of 64, and aligned to 64; the CPU has
    /// AVX-512.
    #[target_feature(enable = "sse2")]
    pub(super) unsafe fn stream(dst: *mut u8, src: &[u8]) {
        for offset in (0..src.len()).step_by(64) {
            let from = src.as_ptr().wrapping_add(offset);
            let to = dst.wrapping_add(offset);
            // SAFETY: 64 bytes of both ranges.
            unsafe {
                asm!(
                    "vmovdqu64 zmm16, [{s}]",
                    "vmovntdq [{d}], zmm16",
                    s = in(reg) from,
                    d = in(reg) to,
                    out("xmm16") _,
                    options(nostack, preserves_flags)
                );
            }
        }
        _mm_sfence();
    }

    /// Copies, writes back by `clwb`, fences.
    ///
    /// # Safety
    /// As `stream`.
    #[target_feature(enable = "sse2")]
    pub(super) unsafe fn store(dst: *mut u8, src: &[u8]) {
        // SAFETY: the contract.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst, src.len()) };
        for offset in (0..src.len()).step_by(64) {
            let line = dst.wrapping_add(offset);
            // SAFETY: within the range of the contract.
            unsafe { asm!("clwb [{}]", in(reg) line, options(nostack)) };
        }
        _mm_sfence();
    }
}

/// The bare loops' p50, ns: streaming, storing; `None` where the CPU lacks the instructions.
#[cfg(target_arch = "x86_64")]
fn bare_p50(memory: &mut [u8], places: &[u64], src: &[u8]) -> Option<(f64, f64)> {
    if !is_x86_feature_detected!("avx512f") {
        return None;
    }
    let base = memory.as_mut_ptr();
    let base = base.wrapping_add(base.align_offset(64));
    let to = |at: u64| base.wrapping_add(usize::try_from(at).unwrap_or(0));
    // SAFETY: `places` leaves room for `src` below the pool's length, and `memory` has 64 bytes
    // more than that; the CPU has AVX-512.
    let stream = p50(places, |at| unsafe { bare::stream(to(at), src) });
    // SAFETY: as above.
    let store = p50(places, |at| unsafe { bare::store(to(at), src) });
    Some((stream, store))
}

#[cfg(not(target_arch = "x86_64"))]
fn bare_p50(_memory: &mut [u8], _places: &[u64], _src: &[u8]) -> Option<(f64, f64)> {
    None
}

/// Gives the bare loops the pages that the pool has.
fn advise_huge(memory: &[u8]) {
    let skip = memory.as_ptr().align_offset(2 << 20);
    let len = memory.len().saturating_sub(skip);
    let at = memory.as_ptr().wrapping_add(skip).cast_mut().cast();
    // SAFETY: within `memory`; the advice keeps its contents. A refusal costs speed only.
    unsafe { libc::madvise(at, len, libc::MADV_HUGEPAGE) };
}

/// The p50 of one size, ns.
#[derive(Debug, Clone, Copy)]
struct Row {
    bare_stream: f64,
    pm_stream: f64,
    bare_store: f64,
    pm_store: f64,
    bare_load: f64,
    pm_load: f64,
}

fn measure(pm: &Pm, memory: &mut [u8], len: usize, seed: u64) -> Row {
    let src = vec![0x5a; len];
    let align = 64.min(len as u64);
    let places = places(pm.slot_len(0), len as u64, align, seed);
    let bare = bare_p50(memory, &places, &src);
    let pm_stream = p50(&places, |at| {
        let flushed = pm.stream(PmAddr::new(0, at), &src, Purpose::Data);
        pm.fence(flushed).end();
    });
    let pm_store = p50(&places, |at| {
        let flushed = pm.write_back(pm.store(PmAddr::new(0, at), &src, Purpose::Data));
        pm.fence(flushed).end();
    });
    let mut into = vec![0; len];
    let pm_load = p50(&places, |at| {
        pm.load(PmAddr::new(0, at), black_box(&mut into)).unwrap_or_default();
    });
    let bare_load = p50(&places, |at| {
        let from = usize::try_from(at).unwrap_or(0);
        black_box(&mut into).copy_from_slice(memory.get(from..from + len).unwrap_or(&[]));
    });
    let (bare_stream, bare_store) = bare.unwrap_or((f64::NAN, f64::NAN));
    Row { bare_stream, pm_stream, bare_store, pm_store, bare_load, pm_load }
}

/// The cost of calls that hit the cache, ns: what the checks and counters add.
fn measure_hot(pm: &Pm) -> [(&'static str, f64); 5] {
    let hot = vec![4096; GROUP * GROUPS];
    let line = [7; 64];
    let mut into = [0; 128];
    [
        (
            "load_u64",
            p50(&hot, |at| {
                black_box(pm.load_u64(PmAddr::new(0, at)).unwrap_or_default());
            }),
        ),
        (
            "load_line",
            p50(&hot, |at| {
                black_box(pm.load_line(PmAddr::new(0, at)).unwrap_or([0; 64]));
            }),
        ),
        (
            "load 128",
            p50(&hot, |at| {
                pm.load(PmAddr::new(0, at), black_box(&mut into)).unwrap_or_default();
            }),
        ),
        (
            "store_line",
            p50(&hot, |at| {
                black_box(&pm.store_line(PmAddr::new(0, at), black_box(&line), Purpose::Commit));
            }),
        ),
        ("fence of nothing", p50(&hot, |_| pm.fence(Flushed::none()).end())),
    ]
}

fn main() -> Result<(), PmError> {
    let megabytes = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(512_u64);
    let len = megabytes << 20;
    let options = PmOptions { populate: true, hugepages: true, ..PmOptions::default() };
    let pm = Pm::anonymous(&[len], &options)?;
    let mut memory = vec![0; usize::try_from(len).unwrap_or(0) + 64];
    advise_huge(&memory);
    memory.fill(1);
    println!("{:?}, {megabytes} MB, ns a durable write, p50", pm.write_back_kind());
    println!("   bytes  stream (bare)  store+wb (bare)  load (bare)");
    for size in [64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536] {
        let rows: Vec<Row> = (0..ROUNDS)
            .map(|round| measure(&pm, &mut memory, size, 0x9e37_79b9 + round as u64))
            .collect();
        let least = |field: fn(&Row) -> f64| rows.iter().map(field).fold(f64::NAN, f64::min);
        println!(
            "{size:>8} {:>7.0} {:>6.0} {:>9.0} {:>6.0} {:>5.0} {:>6.0}",
            least(|r| r.pm_stream),
            least(|r| r.bare_stream),
            least(|r| r.pm_store),
            least(|r| r.bare_store),
            least(|r| r.pm_load),
            least(|r| r.bare_load),
        );
    }
    println!("calls that hit the cache:");
    for (name, ns) in measure_hot(&pm) {
        println!("{name:>18} {ns:>6.1}");
    }
    Ok(())
}

//! Prints what the arena's primitives cost, in nanoseconds a call: medians of repeated runs.
//!
//! `cargo run --release -p novale-arena --example arena_bench`
#![allow(clippy::print_stdout, reason = "a program that reports on standard output")]
#![allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]

use std::hint::black_box;
use std::time::Instant;

use novale_arena::{
    Arena, ArenaError, AtomicU64, Class, Client, NameTable, Off, PidInfo, Radix, SeqCount,
};

const RUNS: usize = 9;
const BLOCK: Class = Class::new(1, 16);

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arena = Arena::anonymous(4 << 30)?;
    let client = arena.attach(PidInfo::current())?;
    blocks(&arena)?;
    operations(&arena, &client)?;
    for keys in [1, 1_000, 1_000_000] {
        radix(&arena, keys)?;
    }
    for names in [10, 10_000, 1_000_000] {
        table(&arena, names)?;
    }
    contended(&arena, &client)
}

/// Runs `call` often, several times over, and prints the median.
fn measure(what: &str, calls: u64, mut call: impl FnMut(u64) -> Result<(), ArenaError>) -> Outcome {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        for index in 0..calls {
            call(index)?;
        }
        runs.push(nanoseconds(start) / calls as f64);
    }
    runs.sort_by(f64::total_cmp);
    println!("{what:<40} {:8.1} ns", runs.get(RUNS / 2).unwrap_or(&0.0));
    Ok(())
}

fn nanoseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9
}

/// Well mixed bits from a counter (the finaliser of splitmix64).
fn mix(index: u64) -> u64 {
    let a = (index ^ index >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ b >> 31
}

fn blocks(arena: &Arena) -> Outcome {
    measure("alloc + free, 128 bytes", 1_000_000, |_| {
        let off = arena.alloc(BLOCK)?;
        arena.free(BLOCK, black_box(off));
        Ok(())
    })?;
    let off = arena.alloc(BLOCK)?;
    measure("block, checked", 10_000_000, |_| {
        black_box(arena.block::<16>(black_box(off))?);
        Ok(())
    })
}

fn operations(arena: &Arena, client: &Client) -> Outcome {
    let off = arena.alloc(BLOCK)?;
    measure("operation: claim + end", 1_000_000, |_| {
        drop(black_box(client.op(1, 1)));
        Ok(())
    })?;
    let op = client.op(1, 1);
    measure("lock + unlock", 1_000_000, |_| {
        drop(black_box(op.lock(off).ok()));
        Ok(())
    })?;
    measure("note_commit + 2 extents + clear", 1_000_000, |index| {
        op.note_commit(index, index, 0);
        op.note_taken(index, 1)?;
        op.note_free(index, 1)?;
        op.clear_notes();
        Ok(())
    })?;
    let word = AtomicU64::new(0);
    let seq = SeqCount::new(&word);
    measure("sequence counter: begin + valid", 10_000_000, |_| {
        black_box(seq.read_begin().is_some_and(|start| seq.read_valid(start)));
        Ok(())
    })?;
    measure("sequence counter: write begin + end", 10_000_000, |_| {
        seq.write_begin();
        seq.write_end();
        Ok(())
    })
}

fn radix(arena: &Arena, keys: u64) -> Outcome {
    let root = AtomicU64::new(0);
    let radix = Radix::new(&root);
    let start = Instant::now();
    for key in 0..keys {
        radix.set(arena, key, key + 1)?;
    }
    let set = nanoseconds(start) / keys as f64;
    println!("{:<40} {set:8.1} ns", format!("radix set, {keys} keys, ascending"));
    measure(&format!("radix get, {keys} keys, random"), 1_000_000, |index| {
        black_box(radix.get(arena, mix(index) % keys)?);
        Ok(())
    })?;
    measure(&format!("radix next, {keys} keys, random"), 1_000_000, |index| {
        black_box(radix.next(arena, mix(index) % keys)?);
        Ok(())
    })?;
    Ok(radix.clear(arena)?)
}

fn table(arena: &Arena, names: u64) -> Outcome {
    let words = [AtomicU64::new(0), AtomicU64::new(0)];
    let table = NameTable::new(&words);
    let start = Instant::now();
    for name in 1..=names {
        table.insert(arena, mix(name), name, &mut mix)?;
    }
    let insert = nanoseconds(start) / names as f64;
    println!("{:<40} {insert:8.1} ns", format!("table insert, up to {names} names"));
    measure(&format!("table find, {names} names, present"), 1_000_000, |index| {
        let name = 1 + mix(index) % names;
        black_box(table.find(arena, mix(name), |value| value == name)?);
        Ok(())
    })?;
    measure(&format!("table find, {names} names, absent"), 1_000_000, |index| {
        let name = names + 1 + index;
        black_box(table.find(arena, mix(name), |value| value == name)?);
        Ok(())
    })?;
    measure(&format!("table insert + remove, {names} names"), 1_000_000, |index| {
        let name = names + 1 + index % 1_000_000;
        table.insert(arena, mix(name), name, &mut mix)?;
        table.remove(arena, mix(name), name)?;
        Ok(())
    })?;
    println!("{:<40} {:8.1} MB", "  arena in use", arena.used_bytes() as f64 / 1e6);
    Ok(table.clear(arena)?)
}

/// Four threads on one lock, and each on its own operation record and blocks.
fn contended(arena: &Arena, client: &Client) -> Outcome {
    const THREADS: u32 = 4;
    const CALLS: u32 = 200_000;
    let off = arena.alloc(BLOCK)?;
    let others = [arena.alloc(BLOCK)?, arena.alloc(BLOCK)?, arena.alloc(BLOCK)?];
    for (what, locks) in [
        ("4 threads, one lock", [off; 4]),
        ("4 threads, a lock each", [off, others[0], others[1], others[2]]),
    ] {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for (hint, lock) in (0..THREADS).zip(locks) {
                scope.spawn(move || lock_often(client, hint, lock, CALLS));
            }
        });
        let each = nanoseconds(start) / f64::from(CALLS);
        println!("{what:<40} {each:8.1} ns an operation of each thread");
    }
    Ok(())
}

fn lock_often(client: &Client, hint: u32, lock: Off, calls: u32) {
    for _ in 0..calls {
        let op = client.op(1, hint);
        drop(black_box(op.lock(lock).ok()));
    }
}

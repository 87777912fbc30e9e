//! Processes are killed at random instants; a client that is left finds lists whole, locks settled, and
//! no more lost than a block a death.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use novale_arena::{
    Arena, ArenaError, Class, Client, ClientInfo, Identity, LockError, Off, Op, PidInfo,
};
use tempfile::TempDir;

const IDENTITY: Identity = Identity { pool_uuid: [1; 16], abi: 1 };
const BLOCK: Class = Class::new(1, 8);
/// Says to a process of this test that it is a victim, and where the segment is.
const VICTIM: &str = "NOVALE_ARENA_TEST_VICTIM";

// Words of the root block.
const LOCK: usize = 0;
const COUNT_BEFORE: usize = 1;
const COUNT_AFTER: usize = 2;
const TURNS: usize = 3;
/// Blocks that victims hold, a word for each client slot below 8.
const HELD: usize = 8;

fn victim(path: &Path, test: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(VICTIM, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The segment, if this process is a victim.
fn as_victim() -> Option<(Arena, Client)> {
    let path = PathBuf::from(std::env::var_os(VICTIM)?);
    let arena = Arena::open(&path, IDENTITY).unwrap();
    let client = arena.attach(PidInfo::current()).unwrap();
    Some((arena, client))
}

fn place() -> (TempDir, PathBuf, Arena) {
    let folder = TempDir::with_prefix_in("novale-arena-test-", "/dev/shm").unwrap();
    let path = folder.path().join("arena");
    let arena = Arena::create(&path, 64 << 20, IDENTITY).unwrap();
    (folder, path, arena)
}

/// Lets the victims do some work, then kills them all; gives how many there were.
fn kill_amid_work(arena: &Arena, mut victims: Vec<Child>, wait: Duration) -> u64 {
    let turns = &arena.root()[TURNS];
    let before = turns.load(Relaxed);
    let start = Instant::now();
    while turns.load(Relaxed) < before + 1000 {
        assert!(start.elapsed() < Duration::from_secs(60), "the victims do nothing");
        std::thread::yield_now();
    }
    let start = Instant::now();
    while start.elapsed() < wait {
        std::hint::spin_loop();
    }
    for victim in &mut victims {
        victim.kill().unwrap();
    }
    for victim in &mut victims {
        victim.wait().unwrap();
    }
    victims.len() as u64
}

/// Settles all dead clients by ending what they had in flight.
fn settle(arena: &Arena, op: &Op<'_>) {
    for client in arena.clients().collect::<Vec<ClientInfo>>() {
        let Some(recovery) = arena.recover(op, client).unwrap() else { continue };
        for record in recovery.records().unwrap() {
            recovery.end(&record).unwrap();
        }
        assert!(recovery.finish().unwrap());
    }
}

/// Blocks that the victims held when they died, to within one each.
fn forget_held(arena: &Arena) -> u64 {
    arena.root()[HELD..HELD + 8].iter().map(|word| word.swap(0, Relaxed)).sum()
}

#[test]
fn free_lists_stay_whole() {
    if let Some((arena, client)) = as_victim() {
        allocate_for_ever(&arena, &client);
    }
    let (_folder, path, arena) = place();
    let client = arena.attach(PidInfo::current()).unwrap();
    let (mut deaths, mut held) = (0, 0);
    for round in 0..15 {
        let victims = (0..3).map(|_| victim(&path, "free_lists_stay_whole")).collect();
        deaths += kill_amid_work(&arena, victims, Duration::from_micros(37 * round));
        held += forget_held(&arena);
        settle(&arena, &client.op(1, 0));
    }
    // Before the records of four clients, at most, took their share.
    let records = 4 * (64 * 96 * 8) / 64;
    let most = ((64 << 20) - (96 << 10)) / 64;
    let mut seen = HashSet::new();
    while let Ok(off) = arena.alloc(BLOCK) {
        assert!(seen.insert(off), "{off} is on the list twice");
    }
    let lost = most - seen.len() as u64;
    assert!(lost <= held + deaths + records, "{lost} blocks are gone, {held} of them held");
    assert!(held > deaths, "the victims held hardly anything");
}

fn allocate_for_ever(arena: &Arena, client: &Client) -> ! {
    let mut random = fastrand::Rng::new();
    let mut held: Vec<Off> = Vec::new();
    let count = &arena.root()[HELD + client.info().slot as usize];
    loop {
        arena.root()[TURNS].fetch_add(1, Relaxed);
        if held.len() < 50 && random.bool() {
            held.push(arena.alloc(BLOCK).unwrap());
        } else if let Some(off) = held.pop() {
            let block = arena.block::<8>(off).unwrap();
            for word in block {
                word.store(u64::MAX, Relaxed);
            }
            arena.free(BLOCK, off);
        }
        count.store(held.len() as u64, Relaxed);
    }
}

#[test]
fn locks_of_the_dead_are_settled() {
    if let Some((arena, client)) = as_victim() {
        count_for_ever(&arena, &client);
    }
    let (_folder, path, arena) = place();
    let lock = arena.alloc(BLOCK).unwrap();
    arena.root()[LOCK].store(lock.raw(), Relaxed);
    let client = arena.attach(PidInfo::current()).unwrap();
    let mut found_dead = 0;
    for round in 0..20 {
        let victims = (0..2).map(|_| victim(&path, "locks_of_the_dead_are_settled")).collect();
        kill_amid_work(&arena, victims, Duration::from_micros(23 * round));
        let op = client.op(1, 0);
        let guard = loop {
            match op.lock(lock) {
                Ok(guard) => break guard,
                Err(LockError::OwnerDead(_)) => found_dead += 1,
                Err(other) => panic!("{other}"),
            }
            settle(&arena, &client.op(2, 1));
        };
        // Nobody was ever in at the same time: at most the last count was cut short.
        let [before, after] = [COUNT_BEFORE, COUNT_AFTER].map(|i| arena.root()[i].load(Relaxed));
        assert!(before == after || before == after + 1, "{before} and {after}");
        arena.root()[COUNT_AFTER].store(before, Relaxed);
        drop(guard);
        settle(&arena, &op);
        assert_eq!(arena.clients().collect::<Vec<_>>(), [client.info()], "slots are given back");
    }
    assert!(found_dead > 0, "no victim died holding the lock");
}

fn count_for_ever(arena: &Arena, client: &Client) -> ! {
    let root = arena.root();
    let lock = Off::from_raw(root[LOCK].load(Relaxed));
    loop {
        let op = client.op(7, 3);
        // A survivor settles for the other victim's death, or the parent does.
        let Ok(_guard) = op.lock(lock) else { continue };
        let count = root[COUNT_BEFORE].load(Relaxed);
        root[COUNT_BEFORE].store(count + 1, Relaxed);
        assert_eq!(root[COUNT_AFTER].load(Relaxed), count, "two are in at once");
        for _ in 0..50 {
            std::hint::spin_loop();
        }
        root[COUNT_AFTER].store(count + 1, Relaxed);
        root[TURNS].fetch_add(1, Relaxed);
    }
}

/// A slot whose client died while it attached or left is used again after settlement.
#[test]
fn slots_of_the_dead_come_back() {
    if let Some((arena, _client)) = as_victim() {
        loop {
            arena.root()[TURNS].fetch_add(1, Relaxed);
            drop(arena.attach(PidInfo::current()));
        }
    }
    let (_folder, path, arena) = place();
    let client = arena.attach(PidInfo::current()).unwrap();
    for round in 0..10 {
        let victims = (0..3).map(|_| victim(&path, "slots_of_the_dead_come_back")).collect();
        kill_amid_work(&arena, victims, Duration::from_micros(11 * round));
        settle(&arena, &client.op(1, 0));
        assert_eq!(arena.clients().collect::<Vec<_>>(), [client.info()]);
    }
    let all: Result<Vec<_>, ArenaError> =
        (1..511).map(|_| arena.attach(PidInfo::current())).collect();
    assert_eq!(all.unwrap().len(), 510);
}

//! Operations announce what they do, their locks exclude each other, and a dead owner is found and
//! settled for.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::mem_forget,
    reason = "a test fails by panicking, and dies without destructors"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use novale_arena::{
    Arena, ArenaError, Class, Client, ClientInfo, Commit, Extent, LockError, Off, Op, Phase,
    PidInfo, Record,
};

const BLOCK: Class = Class::new(1, 8);

/// No process has this number: Linux gives none above 2^22.
const GONE: PidInfo = PidInfo { pid: (1 << 22) + 1, start_time: 1 };

fn arena() -> Arena {
    Arena::anonymous(64 << 20).unwrap()
}

fn attach(arena: &Arena) -> Client {
    arena.attach(PidInfo::current()).unwrap()
}

#[test]
fn threads_that_lock_never_meet() {
    const THREADS: u32 = 8;
    const TURNS: u64 = 20_000;
    const LOCKS: usize = 5;
    let arena = arena();
    let client = attach(&arena);
    let blocks: Vec<Off> = (0..LOCKS).map(|_| arena.alloc(BLOCK).unwrap()).collect();
    std::thread::scope(|scope| {
        for hint in 0..THREADS {
            let (arena, client, blocks) = (&arena, &client, &blocks);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(u64::from(hint));
                for _ in 0..TURNS {
                    let op = client.op(1, hint);
                    // Two locks, in order: counts under either are consistent.
                    let first = random.usize(..LOCKS - 1);
                    let second = random.usize(first + 1..LOCKS);
                    let guards = [first, second].map(|i| op.lock(blocks[i]).unwrap());
                    for i in [first, second] {
                        let count = &arena.block::<8>(blocks[i]).unwrap()[1];
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                    drop(guards);
                }
            });
        }
    });
    let count = |off: &Off| arena.block::<8>(*off).unwrap()[1].load(Ordering::Relaxed);
    assert_eq!(blocks.iter().map(count).sum::<u64>(), u64::from(THREADS) * TURNS * 2);
    for off in blocks {
        assert_eq!(arena.word(off).unwrap().load(Ordering::Relaxed), 0, "left locked");
    }
}

#[test]
fn a_record_says_what_the_operation_noted() {
    let arena = arena();
    let client = attach(&arena);
    let locks = [arena.alloc(BLOCK).unwrap(), arena.alloc(BLOCK).unwrap()];
    let op = client.op(77, 5);
    let _first = op.lock(locks[0]).unwrap();
    let second = op.lock(locks[1]).unwrap();
    op.note_commit(12, 34, 1);
    op.note_commit((1 << 56) - 1, u64::MAX, 255);
    op.note_word(7, 99);
    op.note_taken(4096, 1).unwrap();
    op.note_free(8192, u32::MAX).unwrap();
    op.set_phase(Phase::Committing);
    let expected = Record {
        owner: op.owner(),
        kind: 77,
        phase: Phase::Committing,
        locks: locks.to_vec(),
        commits: vec![
            Commit { inode: 12, op_seq: 34, slot: 1 },
            Commit { inode: (1 << 56) - 1, op_seq: u64::MAX, slot: 255 },
        ],
        words: [None, None, None, None, None, None, None, Some(99)],
        taken: vec![Extent { addr_raw: 4096, pages: 1 }],
        free: vec![Extent { addr_raw: 8192, pages: u32::MAX }],
    };
    assert_eq!(arena.records(&client.info()).unwrap(), std::slice::from_ref(&expected));

    drop(second);
    op.clear_notes();
    let cleared = Record {
        locks: vec![locks[0]],
        commits: vec![],
        words: [None; 8],
        taken: vec![],
        free: vec![],
        ..expected
    };
    assert_eq!(arena.records(&client.info()).unwrap(), [cleared]);
}

#[test]
fn an_ended_operation_leaves_nothing() {
    let arena = arena();
    let client = attach(&arena);
    drop(client.op(1, 0));
    assert_eq!(arena.records(&client.info()).unwrap(), []);
    let op = client.op(2, 0);
    let records = arena.records(&client.info()).unwrap();
    assert_eq!((records[0].kind, records[0].phase), (2, Phase::Prepared));
    assert_eq!(records[0].owner, op.owner());
}

/// Lists of any length come back whole and in order, and their further blocks are used again. They came
/// back with the newest block in front, so that who went on after so many of them skipped others.
#[test]
fn long_lists_of_extents_are_kept() {
    let arena = arena();
    let client = attach(&arena);
    let mut used = Vec::new();
    for round in 0..3 {
        for length in [0_u64, 1, 12, 13, 43, 44, 74, 75, 200] {
            let op = client.op(1, 0);
            let extents =
                |first: u64| (0..length).map(move |i| Extent { addr_raw: first + i, pages: 1 });
            for extent in extents(0) {
                op.note_taken(extent.addr_raw, extent.pages).unwrap();
            }
            for extent in extents(1000) {
                op.note_free(extent.addr_raw, extent.pages).unwrap();
            }
            let record = arena.records(&client.info()).unwrap().remove(0);
            for (found, first) in [(record.taken, 0), (record.free, 1000)] {
                assert_eq!(found, extents(first).collect::<Vec<_>>(), "length {length}");
            }
            if round % 2 == 0 {
                op.clear_notes();
            }
        }
        used.push(arena.used_bytes());
    }
    assert_eq!(used, [used[0]; 3]);
}

#[test]
fn mistakes_with_locks_are_told() {
    let arena = arena();
    let client = attach(&arena);
    let blocks: Vec<Off> = (0..9).map(|_| arena.alloc(BLOCK).unwrap()).collect();
    let op = client.op(1, 0);
    let mut guards: Vec<_> = blocks[..8].iter().map(|off| op.lock(*off).unwrap()).collect();
    assert_eq!(op.lock(blocks[8]).unwrap_err(), LockError::TooMany(8));
    guards.pop();
    assert_eq!(op.lock(blocks[0]).unwrap_err(), LockError::Held(blocks[0]));
    for bad in [Off::NULL, Off::from_raw(3), Off::from_raw(u64::MAX - 7)] {
        assert!(matches!(op.lock(bad).unwrap_err(), LockError::BadOffset(_)));
    }
    // Failed attempts leave no intent, and take no room.
    guards.push(op.lock(blocks[7]).unwrap());
    let other = client.op(1, 1);
    assert!(other.try_lock(blocks[7]).unwrap().is_none());
    assert!(other.try_lock(blocks[8]).unwrap().is_some());
    let records = arena.records(&client.info()).unwrap();
    let locks: Vec<usize> = records.iter().map(|record| record.locks.len()).collect();
    assert_eq!(locks, [8, 0]);
}

#[test]
fn all_records_can_be_in_use_and_one_more_waits() {
    let arena = arena();
    let client = attach(&arena);
    let mut ops: Vec<Op<'_>> = (0..62).map(|_| client.op(1, 17)).collect();
    let mut owners: Vec<u32> = ops.iter().map(|op| op.owner().record()).collect();
    assert_eq!(owners[0], 17, "the hint comes first");
    owners.sort_unstable();
    assert_eq!(owners, (0..62).collect::<Vec<_>>(), "the last two are for settling");
    let settling = [client.settling_op(1), client.freeing_op(1)].map(Option::unwrap);
    assert_eq!(settling.map(|op| op.owner().record()), [63, 62]);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let client = &client;
        scope.spawn(move || sender.send(client.op(2, 3).owner().record()));
        assert!(receiver.recv_timeout(Duration::from_millis(20)).is_err(), "there was none free");
        drop(ops.remove(40));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)).unwrap(), 17 + 40);
    });
}

#[test]
fn process_zero_is_nobody() {
    let refused = arena().attach(PidInfo { pid: 0, start_time: 0 });
    assert!(matches!(refused, Err(ArenaError::OutOfRange { .. })), "{refused:?}");
}

#[test]
fn slots_run_out_and_come_back_with_a_new_epoch() {
    let arena = arena();
    let mut clients: Vec<Client> = (0..511).map(|_| attach(&arena)).collect();
    let refused = arena.attach(PidInfo::current());
    assert!(matches!(refused, Err(ArenaError::NoClientSlot(511))), "{refused:?}");
    let first = clients.remove(100).info();
    assert_eq!(arena.client(first.slot), None);
    let second = attach(&arena).info();
    assert_eq!(second.slot, first.slot);
    assert_eq!(second.epoch, first.epoch + 1);
    drop(clients);
    assert_eq!(arena.clients().count(), 0);
}

/// A client of a process that never was, in the middle of an operation.
fn dead_client(arena: &Arena, lock: Off) -> ClientInfo {
    let dead = arena.attach(GONE).unwrap();
    let info = dead.info();
    let op = dead.op(9, 0);
    op.note_commit(1, 2, 0);
    op.set_phase(Phase::Fenced);
    let guard = op.lock(lock).unwrap();
    // A death runs no destructor.
    std::mem::forget(guard);
    std::mem::forget(op);
    std::mem::forget(dead);
    info
}

#[test]
fn a_dead_owner_is_reported_settled_and_its_lock_taken() {
    let arena = arena();
    let client = attach(&arena);
    let lock = arena.alloc(BLOCK).unwrap();
    let info = dead_client(&arena, lock);

    let op = client.op(1, 0);
    let Err(LockError::OwnerDead(owner)) = op.lock(lock) else { panic!("the owner is dead") };
    assert_eq!((owner.slot(), owner.epoch()), (info.slot, info.epoch));
    assert!(arena.is_dead(owner));
    assert!(!arena.is_dead(op.owner()));

    let settler = client.op(2, 1);
    let recovery = settler.arena().recover(&settler, info).unwrap().unwrap();
    let records = recovery.records().unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].kind, records[0].phase), (9, Phase::Fenced));
    recovery.set_phase(&records[0], Phase::Freeing).unwrap();
    assert_eq!(recovery.records().unwrap()[0].phase, Phase::Freeing);
    recovery.end(&records[0]).unwrap();
    assert!(recovery.finish().unwrap());

    assert!(op.lock(lock).is_ok());
    assert_eq!(arena.client(info.slot), None);
    assert!(arena.recover(&settler, info).unwrap().is_none(), "it was settled");
}

#[test]
fn a_sleeper_finds_that_the_owner_died_while_it_slept() {
    let arena = arena();
    let client = attach(&arena);
    let lock = arena.alloc(BLOCK).unwrap();
    let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let other = arena.attach(PidInfo { pid: process.id(), start_time: 0 }).unwrap();
    let held = other.op(1, 0);
    std::mem::forget(held.lock(lock).unwrap());
    let word = arena.word(lock).unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| client.op(1, 0).lock(lock).map(drop));
        while word.load(Ordering::Relaxed) & 1 << 31 == 0 {
            std::thread::yield_now();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(sleeper.join().unwrap(), Err(LockError::OwnerDead(held.owner())));
    });
}

#[test]
fn a_settler_that_died_can_be_settled_first() {
    let arena = arena();
    let client = attach(&arena);
    let lock = arena.alloc(BLOCK).unwrap();
    let victim = dead_client(&arena, lock);
    let settler = arena.attach(GONE).unwrap();
    let settling = settler.op(1, 0);
    std::mem::forget(arena.recover(&settling, victim).unwrap().unwrap());

    let op = client.op(1, 0);
    let Err(LockError::OwnerDead(owner)) = arena.recover(&op, victim) else {
        panic!("the settler is dead")
    };
    let dead = arena.client(owner.slot()).unwrap();
    for client in [dead, victim] {
        let recovery = arena.recover(&op, client).unwrap().unwrap();
        for record in recovery.records().unwrap() {
            recovery.end(&record).unwrap();
        }
        assert!(recovery.finish().unwrap());
    }
    assert!(op.lock(lock).is_ok());
    // Their destructors must not touch the slots that are free now.
    std::mem::forget(settling);
    std::mem::forget(settler);
}

#[test]
fn settling_stops_where_operations_are_left() {
    let arena = arena();
    let client = attach(&arena);
    let info = dead_client(&arena, arena.alloc(BLOCK).unwrap());
    let op = client.op(1, 0);
    assert!(!arena.recover(&op, info).unwrap().unwrap().finish().unwrap());
    assert!(arena.client(info.slot).is_some());
    assert!(arena.recover(&op, info).unwrap().is_some(), "the recovery lock was given back");
}

#[test]
fn a_proof_of_life_keeps_a_client_whose_process_is_out_of_sight() {
    let arena = arena();
    let lock = arena.alloc(BLOCK).unwrap();
    let info = dead_client(&arena, lock);
    assert!(arena.is_dead_client(&info));
    let alive = Arc::new(AtomicU64::new(1));
    let answer = Arc::clone(&alive);
    let probe =
        move |client: &ClientInfo| client.slot == info.slot && answer.load(Ordering::Relaxed) != 0;
    assert!(arena.set_alive_probe(Box::new(probe)));
    assert!(!arena.set_alive_probe(Box::new(|_| false)), "only the first counts");
    assert!(!arena.is_dead_client(&info));
    let client = attach(&arena);
    let op = client.op(1, 0);
    assert!(arena.recover(&op, info).unwrap().is_none());
    alive.store(0, Ordering::Relaxed);
    assert!(arena.is_dead_client(&info));
}

/// Ten sleepers on one lock: each gets it in turn, long before the clock would wake them all.
#[test]
fn every_sleeper_gets_the_lock() {
    const SLEEPERS: u32 = 10;
    let arena = arena();
    let client = attach(&arena);
    let lock = arena.alloc(BLOCK).unwrap();
    let op = client.op(1, 63);
    let guard = op.lock(lock).unwrap();
    let got = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for hint in 0..SLEEPERS {
            let (client, got) = (&client, &got);
            scope.spawn(move || {
                let op = client.op(1, hint);
                let _guard = op.lock(lock).unwrap();
                got.fetch_add(1, Ordering::Relaxed);
            });
        }
        let start = Instant::now();
        while arena.records(&client.info()).unwrap().len() <= SLEEPERS as usize {
            assert!(start.elapsed() < Duration::from_secs(60), "not all have come");
            std::thread::yield_now();
        }
        drop(guard);
    });
    assert_eq!(got.load(Ordering::Relaxed), u64::from(SLEEPERS));
}

/// Two that wait for each other: what one of them wants is another's by now, and it gives up.
#[test]
fn a_lock_that_is_not_wanted_any_more_is_given_up() {
    let arena = arena();
    let client = attach(&arena);
    let [first, second] = [0, 1].map(|_| arena.alloc(BLOCK).unwrap());
    let wanted = std::sync::atomic::AtomicBool::new(true);
    let op = client.op(1, 0);
    let held = op.lock(first).unwrap();
    std::thread::scope(|scope| {
        let (client, wanted, both) = (&client, &wanted, std::sync::Barrier::new(2));
        let both = Arc::new(both);
        let other = scope.spawn({
            let both = both.clone();
            move || {
                let op = client.op(1, 1);
                let _held = op.lock(second).unwrap();
                both.wait();
                op.lock(first).map(drop).unwrap();
            }
        });
        both.wait();
        let asked = std::cell::Cell::new(0);
        let gives_up = op.lock_while(second, &|| {
            // The second time that somebody looks it is another's.
            asked.set(asked.get() + 1);
            wanted.store(asked.get() < 2, Ordering::Relaxed);
            wanted.load(Ordering::Relaxed)
        });
        assert!(gives_up.unwrap().is_none());
        drop(held);
        other.join().unwrap();
    });
    assert!(op.lock_while(second, &|| true).unwrap().is_some());
}

//! Blocks belong to one owner at a time, stay with their class, and are zeroed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use novale_arena::{Arena, Class, Full, Identity, NameTable, Off, Radix};

const SMALL: Class = Class::new(3, 8);
const LARGE: Class = Class::new(4, 70);

#[test]
fn sizes_are_whole_lines() {
    assert_eq!((SMALL.words(), LARGE.words(), LARGE.bytes()), (8, 72, 576));
}

#[test]
fn blocks_are_aligned_zeroed_and_reused_within_their_class_only() {
    let arena = Arena::anonymous(8 << 20).unwrap();
    let mut small = HashSet::new();
    for _ in 0..100 {
        let off = arena.alloc(SMALL).unwrap();
        assert_eq!(off.raw() % 64, 0);
        assert!(small.insert(off));
        for word in arena.block::<8>(off).unwrap() {
            word.store(u64::MAX, Relaxed);
        }
    }
    for off in &small {
        arena.free(SMALL, *off);
    }
    for _ in 0..100 {
        let off = arena.alloc(LARGE).unwrap();
        assert!(small.iter().all(|other| off.raw() + 576 <= other.raw() || off > *other));
    }
    let used = arena.used_bytes();
    for _ in 0..100 {
        let off = arena.alloc(SMALL).unwrap();
        assert!(small.remove(&off), "{off} was not free");
        assert!(arena.block::<8>(off).unwrap().iter().all(|word| word.load(Relaxed) == 0));
    }
    assert_eq!(arena.used_bytes(), used);
}

/// A map that had taken all memory kept it for maps, though it was empty.
#[test]
fn nodes_of_maps_go_to_others_where_memory_is_short() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let root = arena.word(arena.alloc(SMALL).unwrap()).unwrap();
    let map = Radix::new(root);
    let keys = (0_u64..).map(|key| key << 20).take_while(|key| map.set(&arena, *key, 7).is_ok());
    let keys: Vec<u64> = keys.collect();
    while arena.alloc(SMALL).is_ok() {}
    map.clear(&arena).unwrap();
    let (used, free) = (arena.used_bytes(), arena.free_bytes());
    let mut taken = HashSet::new();
    while let Ok(off) = arena.alloc(SMALL) {
        assert!(arena.block::<8>(off).unwrap().iter().all(|word| word.load(Relaxed) == 0));
        arena.block::<8>(off).unwrap().iter().for_each(|word| word.store(u64::MAX, Relaxed));
        assert!(taken.insert(off));
    }
    assert_eq!((arena.used_bytes(), taken.len() as u64), (used, free / SMALL.bytes()));
    assert_eq!(arena.free_bytes(), 0);
    // They stay where they have come.
    for off in &taken {
        arena.free(SMALL, *off);
    }
    assert!(map.set(&arena, keys[1], 7).is_err());
    assert!(taken.contains(&arena.alloc(SMALL).unwrap()));
}

/// Names took all memory and kept it for names, leaves of pairs for pairs; what a block is too long for is free, too.
#[test]
fn buckets_and_pairs_go_to_others_and_their_rests_to_buckets() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let words = arena.alloc(Class::new(5, 24)).unwrap();
    let table = arena.block::<2>(words).unwrap();
    let names = NameTable::new(table);
    let mixed = |value: u64| value.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let is_in = |value: &u64| names.insert(&arena, mixed(*value), *value, &mut { mixed }).is_ok();
    assert!((1..1 << 20).take_while(is_in).count() > 10_000);
    names.clear(&arena).unwrap();
    let (used, free) = (arena.used_bytes(), arena.free_bytes());
    let taken = std::iter::from_fn(|| arena.alloc(SMALL).ok()).count() as u64;
    assert!(taken * SMALL.bytes() > free / 10 * 9, "{taken} of {free} bytes");
    assert!(arena.used_bytes() - used < 64 << 10);

    let arena = Arena::anonymous(2 << 20).unwrap();
    let words = arena.alloc(Class::new(5, 24)).unwrap();
    let root = |at: u64| arena.word(words.word(at)).unwrap();
    let (pages, pairs) = (Radix::new(root(8)), Radix::of_pairs(root(16), root(8)));
    let keys = (1_u64..).map(|key| key << 6);
    let count = keys.take_while(|key| pairs.reserve(&arena, *key, 1).is_ok()).count() as u64;
    while arena.alloc(SMALL).is_ok() {}
    pairs.clear(&arena).unwrap();
    // A node of each leaf, and a bucket of what is left of it.
    let key = |leaf: u64| leaf << 6;
    let nodes = (1..2 * count).take_while(|leaf| pages.set(&arena, key(*leaf), 7).is_ok()).count();
    assert!(nodes as u64 >= count / 10 * 9, "{nodes} of {count}");
    let small = std::iter::from_fn(|| arena.alloc(SMALL).ok()).count() as u64;
    assert!(small >= count / 10 * 9 * 8, "{small} of {count}");
}

#[test]
fn an_uncleared_block_keeps_all_but_its_last_word() {
    let arena = Arena::anonymous(8 << 20).unwrap();
    let off = arena.alloc_uncleared(SMALL).unwrap();
    let block = arena.block::<8>(off).unwrap();
    assert!(block.iter().all(|word| word.load(Relaxed) == 0), "fresh memory is 0");
    for word in block {
        word.store(7, Relaxed);
    }
    arena.free(SMALL, off);
    assert_eq!(arena.alloc_uncleared(SMALL).unwrap(), off);
    assert!(block[..7].iter().all(|word| word.load(Relaxed) == 7));
}

#[test]
fn tables_come_in_powers_of_two() {
    let arena = Arena::anonymous(8 << 20).unwrap();
    let table = arena.alloc_table(10).unwrap();
    for word in arena.slice(table, 1024).unwrap() {
        word.store(1, Relaxed);
    }
    arena.free_table(10, table);
    assert_ne!(arena.alloc_table(9).unwrap(), table);
    assert_eq!(arena.alloc_table(10).unwrap(), table);
    assert!(arena.slice(table, 1024).unwrap().iter().all(|word| word.load(Relaxed) == 0));
    // The least table is a line; absurd sizes are refused.
    assert!(arena.slice(arena.alloc_table(0).unwrap(), 8).is_ok());
    for log2 in [20, 30, 34, 35, 64, u32::MAX] {
        assert!(matches!(arena.alloc_table(log2), Err(Full { .. })));
    }
}

#[test]
fn what_is_never_given_back_takes_no_more_than_was_asked_for() {
    let arena = Arena::anonymous(8 << 20).unwrap();
    let before = arena.used_bytes().next_multiple_of(64);
    let first = arena.alloc_for_good(600).unwrap();
    assert_eq!((first.raw(), arena.used_bytes()), (before, before + 4800));
    let second = arena.alloc_for_good(3).unwrap();
    assert_eq!((second.raw() % 64, second.raw()), (0, before + 4800));
    assert!(arena.slice(first, 600).unwrap().iter().all(|word| word.load(Relaxed) == 0));
    let full = arena.alloc_for_good(2 << 20).unwrap_err();
    assert_eq!(full.asked, 16 << 20);
}

#[test]
fn a_full_arena_says_so_and_goes_on_with_what_is_freed() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let mut blocks = Vec::new();
    let full = loop {
        match arena.alloc(LARGE) {
            Ok(off) => blocks.push(off),
            Err(full) => break full,
        }
    };
    assert_eq!((full.asked, full.limit), (576, 2 << 20));
    assert!(blocks.len() as u64 * 576 > (2 << 20) - (96 << 10) - 576, "room was left");
    arena.free(LARGE, blocks[7]);
    assert_eq!(arena.alloc(LARGE).unwrap(), blocks[7]);
    assert_eq!(arena.alloc(LARGE).unwrap_err().asked, 576);
}

#[test]
fn who_opens_a_full_arena_that_was_raised_has_room_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("arena");
    let identity = Identity { pool_uuid: [7; 16], abi: 1 };
    let arena = Arena::create(&path, 2 << 20, identity).unwrap();
    let full = std::iter::from_fn(|| arena.alloc(LARGE).ok()).last().unwrap();
    arena.raise_max();
    assert!(arena.alloc(LARGE).is_err(), "it is mapped as long as it was");
    let raised = Arena::open(&path, identity).unwrap();
    assert_eq!(raised.max_bytes(), 18 << 20);
    assert!(raised.alloc(LARGE).unwrap() > full);
}

#[test]
fn null_is_never_freed() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    arena.free(SMALL, Off::NULL);
    arena.free_table(4, Off::NULL);
    assert!(!arena.alloc(SMALL).unwrap().is_null());
    assert!(!arena.alloc_table(4).unwrap().is_null());
}

/// Each holder writes its mark and later finds it unchanged: two holders of one block would not.
#[test]
fn threads_never_share_a_block() {
    const THREADS: u64 = 6;
    let arena = Arena::anonymous(64 << 20).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let arena = &arena;
            scope.spawn(move || take_and_give(arena, thread));
        }
    });
    // No more memory than what was held at once, so nothing leaked.
    assert!(arena.used_bytes() <= (96 << 10) + THREADS * 40 * 64, "{}", arena.used_bytes());
}

fn take_and_give(arena: &Arena, thread: u64) {
    let mut random = fastrand::Rng::with_seed(thread);
    let mut held: Vec<(Off, u64)> = Vec::new();
    for turn in 0..50_000 {
        if held.len() < 40 && random.bool() {
            let (off, mark) = (arena.alloc(SMALL).unwrap(), thread << 32 | turn);
            let before = arena.block::<8>(off).unwrap().each_ref().map(|w| w.swap(mark, Relaxed));
            assert_eq!(before, [0; 8], "not zeroed, or not ours");
            held.push((off, mark));
        } else if !held.is_empty() {
            let (off, mark) = held.swap_remove(random.usize(..held.len()));
            let now = arena.block::<8>(off).unwrap().each_ref().map(|w| w.load(Relaxed));
            assert_eq!(now, [mark; 8], "not ours alone");
            arena.free(SMALL, off);
        }
    }
    for (off, _) in held {
        arena.free(SMALL, off);
    }
}

#[test]
fn a_renewed_arena_is_as_a_new_one() {
    let arena = Arena::anonymous(8 << 20).unwrap();
    let fresh = arena.used_bytes();
    let off = arena.alloc(SMALL).unwrap();
    arena.block::<8>(off).unwrap()[0].store(7, Relaxed);
    arena.root()[3].store(7, Relaxed);
    arena.free(LARGE, arena.alloc(LARGE).unwrap());
    arena.poison();
    let held = arena.clone();
    let arena = arena.renewed().unwrap_err();
    drop(held);
    let arena = arena.renewed().unwrap();
    assert!(!arena.is_poisoned());
    assert_eq!((arena.used_bytes(), arena.root()[3].load(Relaxed)), (fresh, 0));
    let again = arena.alloc(SMALL).unwrap();
    assert_eq!(again, off);
    assert_eq!(arena.block::<8>(again).unwrap()[0].load(Relaxed), 0);
}

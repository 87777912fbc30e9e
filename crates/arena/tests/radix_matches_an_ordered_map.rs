//! The radix map does what an ordered map does, frees what it empties, and keeps reservations.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use novale_arena::{Arena, ArenaError, AtomicU64, Class, Radix, SeqCount};
use proptest::prelude::*;

const KEY_MAX: u64 = (1 << 48) - 1;

#[derive(Debug, Clone)]
enum Step {
    Set(u64, u64),
    SetRange(u64, u64, u64, u64),
    Reserve(u64, u64),
    Remove(u64),
    RemoveRange(u64, u64),
    Clear,
}

/// Keys near the places where levels begin, and a few anywhere.
fn key() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..200,
        2 => 4000_u64..4200,
        1 => (1_u32..8, 0_u64..4).prop_map(|(level, more)| (1 << (6 * level)) - 2 + more),
        1 => 0..=KEY_MAX,
        1 => Just(KEY_MAX),
    ]
}

/// Values as addresses are, and ones that do not fit a root word.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..1_u64 << 62, 1 => any::<u64>().prop_filter("not 0", |v| *v != 0)]
}

fn step() -> impl Strategy<Value = Step> {
    let count = || prop_oneof![3 => 1_u64..5, 1 => 60_u64..300];
    prop_oneof![
        4 => (key(), value()).prop_map(|(k, v)| Step::Set(k, v)),
        3 => (key(), count(), 1_u64..1 << 40, prop_oneof![Just(4096_u64), 0_u64..5000])
            .prop_map(|(k, n, v, s)| Step::SetRange(k.min(KEY_MAX + 1 - n), n, v, s)),
        2 => (key(), count()).prop_map(|(k, n)| Step::Reserve(k.min(KEY_MAX + 1 - n), n)),
        4 => key().prop_map(Step::Remove),
        2 => (key(), key()).prop_map(|(a, b)| Step::RemoveRange(a.min(b), a.max(b))),
        1 => Just(Step::Clear),
    ]
}

fn entries(arena: &Arena, radix: Radix<'_>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    radix.for_each(arena, &mut |key, value| found.push((key, value))).unwrap();
    found
}

fn take(model: &mut BTreeMap<u64, u64>, keys: Range<u64>) -> Vec<(u64, u64)> {
    let taken: Vec<_> = model.range(keys).map(|(k, v)| (*k, *v)).collect();
    for (key, _) in &taken {
        model.remove(key);
    }
    taken
}

fn apply(arena: &Arena, radix: Radix<'_>, model: &mut BTreeMap<u64, u64>, step: &Step) {
    let mut seen = Vec::new();
    let mut see = |key, value| seen.push((key, value));
    let expected = match *step {
        Step::Set(key, value) => {
            let old = radix.set(arena, key, value).unwrap();
            assert_eq!(old, model.insert(key, value).unwrap_or(0));
            vec![]
        }
        Step::SetRange(key, count, first, stride) => {
            let keys = key..key + count;
            radix.replace_range(arena, keys.clone(), first, stride, &mut see).unwrap();
            let replaced = take(model, keys.clone());
            model.extend(keys.map(|k| (k, first + (k - key) * stride)));
            replaced
        }
        Step::Reserve(key, count) => {
            radix.reserve(arena, key, count).unwrap();
            vec![]
        }
        Step::Remove(key) => {
            assert_eq!(radix.remove(arena, key).unwrap(), model.remove(&key).unwrap_or(0));
            vec![]
        }
        Step::RemoveRange(from, to) => {
            radix.remove_range(arena, from, to, &mut see).unwrap();
            take(model, from..to)
        }
        Step::Clear => {
            radix.clear(arena).unwrap();
            assert!(radix.is_empty());
            model.clear();
            vec![]
        }
    };
    assert_eq!(seen, expected, "what {step:?} dropped");
}

fn check_around(arena: &Arena, radix: Radix<'_>, model: &BTreeMap<u64, u64>, key: u64) {
    for key in [key.saturating_sub(1), key, (key + 1).min(KEY_MAX)] {
        assert_eq!(radix.get(arena, key).unwrap(), model.get(&key).copied().unwrap_or(0));
        if let Some(page) = radix.known_page(arena.known(), key) {
            assert_eq!(page, model.get(&key).copied().unwrap_or(0), "as a page");
        }
        let next = model.range(key..).next().map(|(k, v)| (*k, *v));
        assert_eq!(radix.next(arena, key).unwrap(), next, "next from {key}");
        let gap = (key..=KEY_MAX + 1).find(|k| !model.contains_key(k)).unwrap();
        assert_eq!(radix.next_gap(arena, key, u64::MAX).unwrap(), gap, "gap from {key}");
        for stop in [key, key + 1, gap, gap + 1, key + 70] {
            let found = radix.next_gap(arena, key, stop).unwrap();
            assert_eq!(found, gap.min(stop), "gap from {key} to {stop}");
        }
        check_run(arena, radix, model, key);
    }
}

/// A run is what the keys say one by one, and ends only where they do, or where its leaf does.
fn check_run(arena: &Arena, radix: Radix<'_>, model: &BTreeMap<u64, u64>, key: u64) {
    let value = |key: u64| model.get(&key).copied().unwrap_or(0);
    for (most, stride) in [(1, 1), (70, 1), (70, 4096), (300, 4096)] {
        let (first, count) = radix.run(arena, key, most, stride).unwrap();
        let goes_on = |step: u64| {
            let stride = if first == 0 { 0 } else { stride };
            value(key + step) == first.wrapping_add(step * stride)
        };
        assert!((1..=most).contains(&count), "{count} of {most}");
        assert!((0..count).all(goes_on), "a run of {count} from {key}");
        let ends = count == most || (key + count).is_multiple_of(64) || !goes_on(count);
        assert!(ends || first == 0 || key == 0, "the run from {key} goes on behind {count}");
    }
}

/// Pages that lie one after the other are told at once, over the ends of leaves, until one of them is
/// changed or goes.
#[test]
fn pages_in_a_row_are_one_run() {
    let arena = Arena::anonymous(16 << 20).unwrap();
    let root = AtomicU64::new(0);
    let radix = Radix::new(&root);
    let run = |key| radix.run(&arena, key, 1000, 4096).unwrap();
    // One by one, as a file grows by appends; the first and the last leaf not whole.
    for key in 10..64 * 5 + 3 {
        radix.set_range(&arena, key, 1, (1000 + key) * 4096, 4096).unwrap();
    }
    assert_eq!(run(10), ((1000 + 10) * 4096, 54));
    assert_eq!(run(64), ((1000 + 64) * 4096, 4 * 64));
    assert_eq!(run(100), ((1000 + 100) * 4096, 64 * 5 - 100));
    assert_eq!(radix.known_page(arena.known(), 100), Some((1000 + 100) * 4096));
    radix.set(&arena, 200, 7 * 4096).unwrap();
    assert_eq!(run(64), ((1000 + 64) * 4096, 2 * 64), "up to the leaf that changed");
    assert_eq!(radix.known_page(arena.known(), 200), Some(7 * 4096));
    assert_eq!(radix.known_page(arena.known(), 201), Some((1000 + 201) * 4096));
    radix.remove(&arena, 130).unwrap();
    assert_eq!(radix.known_page(arena.known(), 130), Some(0));
    assert_eq!(run(64), ((1000 + 64) * 4096, 64), "up to the leaf with a gap");
    radix.clear(&arena).unwrap();
    assert!(radix.is_empty());
}

proptest! {
    #[test]
    fn any_sequence_of_changes(steps in proptest::collection::vec(step(), 1..60), probe in key()) {
        let arena = Arena::anonymous(64 << 20).unwrap();
        let root = AtomicU64::new(0);
        let radix = Radix::new(&root);
        let mut model = BTreeMap::new();
        for step in &steps {
            apply(&arena, radix, &mut model, step);
            check_around(&arena, radix, &model, probe);
            if let Step::Set(k, _) | Step::SetRange(k, ..) | Step::Remove(k) = *step {
                check_around(&arena, radix, &model, k);
            }
        }
        prop_assert_eq!(entries(&arena, radix), model.into_iter().collect::<Vec<_>>());
        // Whatever the order, removing all keys frees all nodes, reserved ones too.
        radix.remove_range(&arena, 0, u64::MAX, &mut |_, _| ()).unwrap();
        prop_assert!(radix.is_empty());
        prop_assert_eq!(root.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn nodes_that_empty_are_used_again() {
    let arena = Arena::anonymous(64 << 20).unwrap();
    let root = AtomicU64::new(0);
    let radix = Radix::new(&root);
    let mut used = Vec::new();
    for round in 0..4 {
        for key in (0..100_000).step_by(7) {
            radix.set(&arena, key, key + 1).unwrap();
        }
        for key in (0..100_000).step_by(7) {
            // From both ends, so that the height falls and the first node is not always the last.
            let key = if round % 2 == 0 { key } else { 99_995 - key };
            assert_eq!(radix.remove(&arena, key).unwrap(), key + 1);
        }
        assert!(radix.is_empty());
        used.push(arena.used_bytes());
    }
    assert_eq!(used, [used[0]; 4]);
}

#[test]
fn a_single_page_needs_no_node() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let before = arena.used_bytes();
    let root = AtomicU64::new(0);
    let radix = Radix::new(&root);
    radix.reserve(&arena, 0, 1).unwrap();
    radix.set_range(&arena, 0, 1, 77 << 12, 4096).unwrap();
    assert_eq!(radix.get(&arena, 0).unwrap(), 77 << 12);
    assert_eq!(radix.next_gap(&arena, 0, u64::MAX).unwrap(), 1);
    assert_eq!(arena.used_bytes(), before);
}

fn exhaust(arena: &Arena) {
    for words in [4096, 64, 8] {
        let class = Class::new(u8::try_from(words / 64).unwrap(), words);
        while arena.alloc(class).is_ok() {}
    }
}

#[test]
fn what_is_reserved_can_be_set_in_a_full_arena() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let root = AtomicU64::new(0);
    let radix = Radix::new(&root);
    radix.set(&arena, 0, 5).unwrap();
    radix.reserve(&arena, 4090, 10).unwrap();
    exhaust(&arena);
    radix.set_range(&arena, 4090, 10, 1 << 20, 1).unwrap();
    assert_eq!(radix.get(&arena, 4099).unwrap(), (1 << 20) + 9);
    assert_eq!(radix.get(&arena, 0).unwrap(), 5);
}

/// A rename within a directory removes before it adds: what it reserved must outlast that.
#[test]
fn a_reservation_outlasts_the_removal_of_all_other_keys() {
    for reserved in [1, 62, 64, 4095, 4096, 300_000] {
        let arena = Arena::anonymous(2 << 20).unwrap();
        let root = AtomicU64::new(0);
        let radix = Radix::new(&root);
        let others: Vec<u64> = [0, 63, 65, 200, 4097, 270_000].into();
        for key in &others {
            radix.set(&arena, *key, 1).unwrap();
        }
        radix.reserve(&arena, reserved, 1).unwrap();
        exhaust(&arena);
        for key in &others {
            radix.remove(&arena, *key).unwrap();
            assert_eq!(radix.next_gap(&arena, reserved, u64::MAX).unwrap(), reserved);
        }
        assert_eq!(radix.next(&arena, 0).unwrap(), None);
        // Another thread may take what the removals have freed.
        let other = AtomicU64::new(0);
        for key in 0.. {
            if Radix::new(&other).set(&arena, key << 6, 1).is_err() {
                break;
            }
        }
        radix.set(&arena, reserved, 7).unwrap();
        assert_eq!(entries(&arena, radix), [(reserved, 7)]);
    }
}

#[test]
fn a_range_that_finds_no_room_changes_nothing() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let root = AtomicU64::new(0);
    let radix = Radix::new(&root);
    radix.set_range(&arena, 10, 60, 1000, 1).unwrap();
    let before = entries(&arena, radix);
    exhaust(&arena);
    let outcome = radix.set_range(&arena, 50, 100_000, 1, 1);
    assert!(matches!(outcome, Err(ArenaError::Full(_))), "{outcome:?}");
    assert_eq!(entries(&arena, radix), before);
}

#[test]
fn keys_and_values_out_of_range_are_refused() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let root = AtomicU64::new(0);
    let radix = Radix::new(&root);
    for outcome in [
        radix.set(&arena, 1, 0),
        radix.set(&arena, KEY_MAX + 1, 1),
        radix.set(&arena, u64::MAX, 1),
        radix.reserve(&arena, KEY_MAX, 2).map(|()| 0),
        radix.set_range(&arena, u64::MAX, 1, 1, 0).map(|()| 0),
    ] {
        assert!(matches!(outcome, Err(ArenaError::OutOfRange { .. })), "{outcome:?}");
    }
    assert_eq!(radix.get(&arena, u64::MAX).unwrap(), 0);
    assert_eq!(radix.next(&arena, u64::MAX).unwrap(), None);
    assert!(radix.is_empty());
}

/// Stops the readers when the writer is done, or has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A writer that builds and takes down trees, so that nodes change hands all the time, always
/// leaving key and value in a known relation; readers without a lock.
#[test]
fn readers_that_validate_see_whole_states() {
    const KEYS: u64 = 300;
    let arena = Arena::anonymous(16 << 20).unwrap();
    let words = [const { AtomicU64::new(0) }; 4];
    let [root, other, count, version] = &words;
    let stop = AtomicBool::new(false);
    let radix = Radix::new(root);
    let seq = SeqCount::new(count);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| read_whole_states(&arena, radix, seq, version, &stop, KEYS)))
            .collect();
        let stopping = Stop(&stop);
        let writes = write_states(&arena, radix, Radix::new(other), seq, version, KEYS);
        drop(stopping);
        assert!(writes > 100);
        for reader in readers {
            assert!(reader.join().unwrap() > 0, "a reader never got through");
        }
    });
}

fn write_states(
    arena: &Arena,
    radix: Radix<'_>,
    other: Radix<'_>,
    seq: SeqCount<'_>,
    version: &AtomicU64,
    keys: u64,
) -> u64 {
    let mut random = fastrand::Rng::with_seed(7);
    let start = std::time::Instant::now();
    let mut writes = 0;
    while start.elapsed().as_millis() < 1500 {
        writes += 1;
        seq.write_begin();
        radix.clear(arena).unwrap();
        // Nodes of the map go to another one in between, and come back holding what that held.
        for _ in 0..5 {
            other.set(arena, random.u64(..1 << 20), u64::MAX).unwrap();
        }
        other.clear(arena).unwrap();
        let spread = random.u64(1..5000);
        version.store(writes << 16 | spread, Ordering::Relaxed);
        for key in 0..keys {
            radix.set(arena, key * spread, writes * 1000 + key).unwrap();
        }
        seq.write_end();
        if writes % 4 == 0 {
            std::thread::yield_now();
        }
    }
    writes
}

fn read_whole_states(
    arena: &Arena,
    radix: Radix<'_>,
    seq: SeqCount<'_>,
    version: &AtomicU64,
    stop: &AtomicBool,
    keys: u64,
) -> u64 {
    let mut random = fastrand::Rng::new();
    let mut valid = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = random.u64(..keys);
        // Reading before the counter is looked at, too: nothing may panic or hang.
        let start = seq.read_begin();
        let now = version.load(Ordering::Relaxed);
        let (write, spread) = (now >> 16, now & 0xffff);
        let got = radix.get(arena, key * spread);
        let next = radix.next(arena, key * spread + 1);
        let gap = radix.next_gap(arena, key * spread, u64::MAX);
        if !start.is_some_and(|start| seq.read_valid(start)) || write == 0 {
            continue;
        }
        valid += 1;
        assert_eq!(got.unwrap(), write * 1000 + key);
        let expected = (key + 1 < keys).then(|| ((key + 1) * spread, write * 1000 + key + 1));
        assert_eq!(next.unwrap(), expected);
        let expected = if spread == 1 { keys } else { key * spread + 1 };
        assert_eq!(gap.unwrap(), expected);
    }
    valid
}

#[test]
fn a_vacated_key_has_no_value_and_keeps_its_node() {
    let arena = Arena::anonymous(64 << 20).unwrap();
    let word = AtomicU64::new(0);
    let map = Radix::new(&word);
    for key in [0, 5, 64, 1 << 30] {
        map.set(&arena, key, key + 1).unwrap();
    }
    let used = arena.used_bytes();
    for key in [0, 5, 64, 1 << 30, 77, 1 << 40] {
        map.vacate(&arena, key).unwrap();
        assert_eq!(map.get(&arena, key).unwrap(), 0);
    }
    assert_eq!(map.next(&arena, 0).unwrap(), None);
    for key in [5, 64, 1 << 30] {
        assert_eq!(map.set(&arena, key, 7).unwrap(), 0);
    }
    assert_eq!(arena.used_bytes(), used);
    let lone = AtomicU64::new(0);
    Radix::new(&lone).set(&arena, 0, 9).unwrap();
    Radix::new(&lone).vacate(&arena, 0).unwrap();
    assert!(Radix::new(&lone).is_empty());
}

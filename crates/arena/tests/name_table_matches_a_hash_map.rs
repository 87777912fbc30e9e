//! The name table does what a map from hashes to sets of values does, at a flat cost, and keeps its
//! reservations.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use novale_arena::{Arena, ArenaError, AtomicU64, Class, NameTable, SeqCount};
use proptest::prelude::*;

fn mix(index: u64) -> u64 {
    let a = (index ^ index >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ b >> 31
}

fn words() -> [AtomicU64; 2] {
    [AtomicU64::new(0), AtomicU64::new(0)]
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64),
    Reserve(u64),
    Remove(u64),
    Replace(u64, u64),
    Clear,
}

fn step(names: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (1..names).prop_map(Step::Insert),
        10 => (1..names).prop_map(Step::Reserve),
        25 => (1..names).prop_map(Step::Remove),
        5 => (1..names, 1..1_u64 << 20).prop_map(|(name, new)| Step::Replace(name, new)),
        1 => Just(Step::Clear),
    ]
}

/// A value says its name, so that its hash can be found again: name in the low 30 bits.
const NAME: u64 = (1 << 30) - 1;

/// Hashes of several qualities: good, all the same, the same in the upper bits, in the lower bits.
fn hash_of(quality: u8, value: u64) -> u64 {
    let good = mix(value & NAME);
    match quality {
        0 => good,
        1 => 0x1234_5678_9abc_def0,
        2 => good >> 40,
        _ => good << 50,
    }
}

fn apply(
    arena: &Arena,
    table: NameTable<'_>,
    model: &mut HashMap<u64, u64>,
    quality: u8,
    step: &Step,
) {
    let hash = |name| hash_of(quality, name);
    let mut rehash = |value| hash_of(quality, value);
    match *step {
        Step::Insert(name) => {
            model.entry(name).or_insert_with(|| {
                table.insert(arena, hash(name), name, &mut rehash).unwrap();
                name
            });
        }
        Step::Reserve(name) => table.reserve(arena, hash(name), &mut rehash).unwrap(),
        Step::Remove(name) => {
            let value = model.remove(&name);
            let removed = table.remove(arena, hash(name), value.unwrap_or(name)).unwrap();
            assert_eq!(removed, value.is_some(), "{step:?}");
        }
        Step::Replace(name, new) => {
            let new = name | new << 30;
            let old = model.get(&name).copied();
            let replaced = table.replace(arena, hash(name), old.unwrap_or(name), new).unwrap();
            assert_eq!(replaced, old.is_some(), "{step:?}");
            if let Some(value) = model.get_mut(&name) {
                *value = new;
            }
        }
        Step::Clear => {
            table.clear(arena).unwrap();
            model.clear();
        }
    }
    assert_eq!(table.len(), model.len() as u64);
}

fn check(arena: &Arena, table: NameTable<'_>, model: &HashMap<u64, u64>, quality: u8, names: u64) {
    for name in 1..names {
        let found = table.find(arena, hash_of(quality, name), |value| value & NAME == name);
        assert_eq!(found.unwrap(), model.get(&name).copied(), "name {name}");
    }
    let mut all = Vec::new();
    table.for_each(arena, &mut |value| all.push(value)).unwrap();
    all.sort_unstable();
    let mut expected: Vec<_> = model.values().copied().collect();
    expected.sort_unstable();
    assert_eq!(all, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn any_sequence_of_changes(
        quality in 0_u8..4,
        names in prop_oneof![Just(30_u64), Just(600), Just(3000)],
        seed in proptest::collection::vec(step(3000), 1..2500),
    ) {
        let arena = Arena::anonymous(64 << 20).unwrap();
        let words = words();
        let table = NameTable::new(&words);
        let mut model = HashMap::new();
        for step in &seed {
            let step = match *step {
                Step::Insert(name) => Step::Insert(1 + name % (names - 1)),
                Step::Reserve(name) => Step::Reserve(1 + name % (names - 1)),
                Step::Remove(name) => Step::Remove(1 + name % (names - 1)),
                Step::Replace(name, new) => Step::Replace(1 + name % (names - 1), new),
                Step::Clear => Step::Clear,
            };
            apply(&arena, table, &mut model, quality, &step);
        }
        check(&arena, table, &model, quality, names);
    }
}

#[test]
fn growing_to_many_and_shrinking_to_none_uses_the_same_memory_again() {
    const NAMES: u64 = 100_000;
    let arena = Arena::anonymous(256 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    let mut used = Vec::new();
    for round in 0..3 {
        for name in 1..=NAMES {
            table.insert(&arena, mix(name), name, &mut mix).unwrap();
        }
        for name in 1..=NAMES {
            let name = if round % 2 == 0 { name } else { NAMES + 1 - name };
            assert!(table.remove(&arena, mix(name), name).unwrap());
        }
        assert!(table.is_empty());
        // One bucket at the most is left of it.
        assert_eq!(words[0].load(Ordering::Relaxed) >> 63, 0, "a directory is left");
        used.push(arena.used_bytes());
    }
    assert_eq!(used, [used[0]; 3]);
    // 8 bytes an entry, the rest is slack.
    assert!(used[0] < 25 * NAMES, "{} bytes for {NAMES} names", used[0]);
}

/// How it happened: buckets that were split far enough to take new tags, then merged, hold tags that
/// begin one bit after the one by which they are split next. That bit was looked for in the tag.
#[test]
fn buckets_that_were_merged_can_be_split_again() {
    let arena = Arena::anonymous(64 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    let mut names = 0;
    for size in [30_000, 2000, 22_000, 0, 30_000] {
        while names < size {
            names += 1;
            table.insert(&arena, mix(names), names, &mut mix).unwrap();
        }
        while names > size {
            assert!(table.remove(&arena, mix(names), names).unwrap());
            names -= 1;
        }
        for name in 1..=names {
            assert_eq!(table.find(&arena, mix(name), |value| value == name).unwrap(), Some(name));
        }
    }
}

#[test]
fn clear_gives_all_memory_back() {
    let arena = Arena::anonymous(64 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    let mut used = Vec::new();
    for _ in 0..3 {
        for name in 1..=20_000 {
            table.insert(&arena, mix(name), name, &mut mix).unwrap();
        }
        table.clear(&arena).unwrap();
        used.push(arena.used_bytes());
    }
    assert_eq!(used, [used[0]; 3]);
    assert_eq!(words.map(|word| word.load(Ordering::Relaxed)), [0, 0]);
}

/// What makes look-ups flat: whatever the size, hardly a value is looked at in vain.
#[test]
fn lookups_ask_about_few_wrong_values_at_every_size() {
    let arena = Arena::anonymous(256 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    let mut name = 0;
    for size in [10, 100, 1000, 10_000, 30_000, 100_000, 300_000] {
        while name < size {
            name += 1;
            table.insert(&arena, mix(name), name, &mut mix).unwrap();
        }
        let mut asked = 0;
        for absent in 1..=10_000 {
            let found = table.find(&arena, mix(1 << 40 | absent), |_| {
                asked += 1;
                false
            });
            assert_eq!(found.unwrap(), None);
        }
        assert!(asked < 2000, "{asked} values asked about in 10,000 look-ups of {size} names");
    }
}

/// Names whose hashes collide make chains, not a directory that grows beyond all bounds.
#[test]
fn colliding_hashes_do_not_blow_up_the_directory() {
    let arena = Arena::anonymous(64 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    for name in 1..=2000 {
        table.insert(&arena, 42, name, &mut |_| 42).unwrap();
    }
    assert!(arena.used_bytes() < 512 << 10, "{} bytes", arena.used_bytes());
    for name in 1..=2000 {
        assert_eq!(table.find(&arena, 42, |value| value == name).unwrap(), Some(name));
        assert!(table.remove(&arena, 42, name).unwrap());
    }
    assert!(table.is_empty());
}

fn exhaust(arena: &Arena) {
    for words in [4096, 64, 8] {
        let class = Class::new(u8::try_from(words / 64).unwrap(), words);
        while arena.alloc(class).is_ok() {}
    }
}

#[test]
fn what_is_reserved_can_be_inserted_in_a_full_arena() {
    // At every size of the table, so that the reservation has splits and doublings to do.
    for names in 1..400 {
        let arena = Arena::anonymous(2 << 20).unwrap();
        let words = words();
        let table = NameTable::new(&words);
        for name in 1..=names {
            table.insert(&arena, mix(name), name, &mut mix).unwrap();
        }
        let (one, two) = (mix(5000), mix(6000));
        table.reserve(&arena, one, &mut mix).unwrap();
        table.reserve(&arena, two, &mut mix).unwrap();
        exhaust(&arena);
        table.insert(&arena, one, 5000, &mut mix).unwrap();
        assert_eq!(table.find(&arena, one, |value| value == 5000).unwrap(), Some(5000));
        assert_eq!(table.len(), names + 1);
    }
}

#[test]
fn a_failed_insertion_changes_nothing() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    exhaust(&arena);
    let mut inserted = 0;
    for name in 1..10_000 {
        match table.insert(&arena, mix(name), name, &mut mix) {
            Ok(()) => inserted += 1,
            Err(ArenaError::Full(_)) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(table.len(), inserted);
    for name in 1..=inserted {
        assert_eq!(table.find(&arena, mix(name), |value| value == name).unwrap(), Some(name));
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let arena = Arena::anonymous(2 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    for value in [0, 1 << 50, u64::MAX] {
        let outcome = table.insert(&arena, 1, value, &mut mix);
        assert!(matches!(outcome, Err(ArenaError::OutOfRange { .. })), "{outcome:?}");
    }
    table.insert(&arena, 1, (1 << 50) - 1, &mut mix).unwrap();
    assert!(!table.remove(&arena, 1, 0).unwrap(), "a free slot is no entry");
    assert!(!table.remove(&arena, 1, u64::MAX).unwrap());
    assert_eq!(table.len(), 1);
}

/// A reader that is held up in a bucket, while a reservation splits it and another table takes all
/// buckets that are free, still finds what comes later in that bucket.
#[test]
fn a_reservation_leaves_readers_what_they_hold() {
    let arena = Arena::anonymous(8 << 20).unwrap();
    let (words, other) = (words(), words());
    let (table, other) = (NameTable::new(&words), NameTable::new(&other));
    let hash_of = |value: u64| if value <= 2 { 0 } else { mix(value) };
    for name in 1..=55 {
        table.insert(&arena, hash_of(name), name, &mut |value| hash_of(value)).unwrap();
    }
    let mut asked = Vec::new();
    let found = table.find(&arena, 0, |value| {
        if asked.is_empty() {
            let root = words[0].load(Ordering::Relaxed);
            table.reserve(&arena, 0, &mut |value| hash_of(value)).unwrap();
            assert_ne!(words[0].load(Ordering::Relaxed), root, "no split");
            for name in 1..=1000 {
                other.insert(&arena, mix(name), name, &mut mix).unwrap();
            }
        }
        asked.push(value);
        asked.len() == 2
    });
    assert!(found.unwrap().is_some(), "only {asked:?} was found");
    asked.sort_unstable();
    assert_eq!(asked, [1, 2]);
}

/// Stops the readers when the writer is done, or has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reservations split buckets outside the counter's odd section: even so, readers never miss a name
/// that is there, nor find one that is not.
#[test]
fn readers_that_validate_see_every_name() {
    const STAY: u64 = 2000;
    let arena = Arena::anonymous(256 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    let count = AtomicU64::new(0);
    let seq = SeqCount::new(&count);
    let stop = AtomicBool::new(false);
    for name in 1..=STAY {
        table.insert(&arena, mix(name), name, &mut mix).unwrap();
    }
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..3).map(|_| scope.spawn(|| read_names(&arena, table, seq, &stop, STAY))).collect();
        let stopping = Stop(&stop);
        let start = std::time::Instant::now();
        let mut top = STAY;
        while start.elapsed().as_millis() < 2000 {
            grow_and_shrink(&arena, table, seq, &mut top, STAY);
        }
        drop(stopping);
        for reader in readers {
            assert!(reader.join().unwrap() > 1000, "a reader hardly got through");
        }
    });
}

fn grow_and_shrink(
    arena: &Arena,
    table: NameTable<'_>,
    seq: SeqCount<'_>,
    top: &mut u64,
    stay: u64,
) {
    while *top < stay + 20_000 {
        *top += 1;
        table.reserve(arena, mix(*top), &mut mix).unwrap();
        seq.write_begin();
        table.insert(arena, mix(*top), *top, &mut mix).unwrap();
        seq.write_end();
    }
    while *top > stay {
        seq.write_begin();
        assert!(table.remove(arena, mix(*top), *top).unwrap());
        seq.write_end();
        *top -= 1;
    }
}

fn read_names(
    arena: &Arena,
    table: NameTable<'_>,
    seq: SeqCount<'_>,
    stop: &AtomicBool,
    stay: u64,
) -> u64 {
    let mut random = fastrand::Rng::new();
    let mut valid = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = random.u64(1..=stay);
        let start = seq.read_begin();
        let present = table.find(arena, mix(name), |value| value == name);
        let absent = table.find(arena, mix(1 << 40 | name), |value| value == 1 << 40 | name);
        if start.is_some_and(|start| seq.read_valid(start)) {
            valid += 1;
            assert_eq!(present.unwrap(), Some(name));
            assert_eq!(absent.unwrap(), None);
        }
    }
    valid
}

/// How it happened: the directory was copied to twice its size at once, 4 MB for ten million names, and
/// the one insertion waited for it. Every step is as small as with a few names, and so back again.
#[test]
fn no_insertion_takes_more_memory_in_a_large_table() {
    const NAMES: u64 = 600_000;
    /// The greatest directory of a level, and the buckets of a split.
    const STEP_BYTES_MAX: u64 = (32 << 10) + 4 * 512;
    let arena = Arena::anonymous(256 << 20).unwrap();
    let words = words();
    let table = NameTable::new(&words);
    for name in 1..=NAMES {
        let before = arena.used_bytes();
        table.insert(&arena, mix(name), name, &mut mix).unwrap();
        let taken = arena.used_bytes() - before;
        assert!(taken <= STEP_BYTES_MAX, "{taken} bytes for name {name}");
    }
    let mut seen = 0;
    table.for_each(&arena, &mut |_| seen += 1).unwrap();
    assert_eq!(seen, NAMES);
    let used = arena.used_bytes();
    for name in 1..=NAMES {
        assert_eq!(table.find(&arena, mix(name), |value| value == name).unwrap(), Some(name));
        assert!(table.remove(&arena, mix(name), name).unwrap());
    }
    assert_eq!(words[0].load(Ordering::Relaxed) >> 63, 0, "a directory is left");
    for name in 1..=NAMES {
        table.insert(&arena, mix(name), name, &mut mix).unwrap();
    }
    table.clear(&arena).unwrap();
    assert_eq!(words.each_ref().map(|word| word.load(Ordering::Relaxed)), [0, 0]);
    assert_eq!(arena.used_bytes(), used);
}

//! The counters are exact: by purpose, by slot, by thread, and after threads ended.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use novale_layout::PmAddr;
use novale_pm::{Asked, CountSource, Counters, Flushed, Pm, PmOptions, Purpose, PurposeCounters};

fn pool(lens: &[u64]) -> Pm {
    Pm::anonymous(lens, &PmOptions::default()).unwrap()
}

#[test]
fn each_purpose_and_slot_has_its_own_counts() {
    let pm = pool(&[4096, 4096]);
    let mut flushed = Flushed::none();
    for (times, purpose) in (1..).zip(Purpose::ALL) {
        for _ in 0..times {
            let dirty = pm.store(PmAddr::new(0, 60), &[1; 8], purpose);
            flushed = flushed.and(pm.write_back(dirty));
            flushed = flushed.and(pm.stream_line(PmAddr::new(1, 128), &[2; 64], purpose));
        }
    }
    pm.fence(flushed).end();
    let counters = pm.counters();
    for (times, purpose) in (1..).zip(Purpose::ALL) {
        let expected = PurposeCounters {
            lines: 3 * times,
            lines_streamed: times,
            write_backs: 2 * times,
            bytes: 72 * times,
        };
        assert_eq!(counters.of(purpose), expected, "{purpose:?}");
    }
    assert_eq!(counters.slot_lines(0), 2 * 21);
    assert_eq!(counters.slot_lines(1), 21);
    assert_eq!((counters.lines(), counters.bytes(), counters.write_backs()), (63, 1512, 42));
}

#[test]
fn a_fence_with_nothing_before_it_is_told_apart() {
    let pm = pool(&[4096]);
    let addr = PmAddr::new(0, 0);
    pm.fence(Flushed::none()).end();
    let dirty = pm.store_u64(addr, 1, Purpose::Data);
    pm.fence(Flushed::none()).end();
    pm.fence(pm.write_back(dirty)).end();
    pm.fence(Flushed::none()).end();
    pm.fence(pm.stream_line(addr, &[0; 64], Purpose::Data)).end();
    let counters = pm.counters();
    assert_eq!((counters.fences, counters.fences_with_pending), (5, 2));
}

#[test]
fn no_count_of_any_thread_is_lost() {
    const THREADS: u64 = 8;
    const STORES: u64 = 10_000;
    let pm = pool(&[4096]);
    let work = |thread: u64| {
        let addr = PmAddr::new(0, thread * 64);
        for word in 0..STORES {
            let dirty = pm.store_u64(addr, word, Purpose::Log);
            pm.fence(pm.write_back(dirty)).end();
        }
        let mine = pm.thread_counters();
        assert_eq!(mine.of(Purpose::Log).lines, STORES);
        assert_eq!(mine.fences_with_pending, STORES);
    };
    for round in 1..=3 {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || work(thread));
            }
        });
        let counters = pm.counters();
        let all = round * THREADS * STORES;
        assert_eq!(counters.of(Purpose::Log).bytes, 8 * all);
        assert_eq!((counters.write_backs(), counters.fences), (all, all));
        assert_eq!(counters.slot_lines(0), all);
    }
    assert_eq!(pm.thread_counters(), Counters::default());
}

#[test]
fn pools_on_one_thread_are_counted_apart() {
    let pools: Vec<Pm> = (0..3).map(|_| pool(&[4096])).collect();
    for round in 0..100_u64 {
        for (extra, pm) in (1..).zip(&pools) {
            for _ in 0..extra {
                let flushed = pm.stream_line(PmAddr::new(0, 0), &[1; 64], Purpose::Data);
                pm.fence(flushed).end();
            }
        }
        // A pool that comes and goes disturbs nobody's counts.
        let short = pool(&[4096]);
        short.fence(Flushed::none()).end();
        assert_eq!(short.counters().fences, 1, "round {round}");
    }
    for (extra, pm) in (1..).zip(&pools) {
        assert_eq!(pm.counters().lines(), 100 * extra);
        assert_eq!(pm.thread_counters(), pm.counters());
    }
}

/// Stores when its thread ends.
struct Last(Arc<Pm>);

impl Drop for Last {
    fn drop(&mut self) {
        let flushed = self.0.stream_line(PmAddr::new(0, 0), &[1; 64], Purpose::Other);
        self.0.fence(flushed).end();
    }
}

thread_local! {
    static BEFORE: RefCell<Option<Last>> = const { RefCell::new(None) };
    static AFTER: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Destructors of thread-local values run before or after the counters' own; both are counted.
#[test]
fn stores_of_an_ending_thread_are_counted() {
    let pm = Arc::new(pool(&[4096]));
    for _ in 0..4 {
        let pm = Arc::clone(&pm);
        let thread = std::thread::spawn(move || {
            BEFORE.set(Some(Last(Arc::clone(&pm))));
            pm.fence(Flushed::none()).end();
            AFTER.set(Some(Last(Arc::clone(&pm))));
        });
        thread.join().unwrap();
    }
    let counters = pm.counters();
    assert_eq!(counters.of(Purpose::Other).lines, 8);
    assert_eq!((counters.fences, counters.fences_with_pending), (12, 8));
}

/// Each thread that counted after it had dropped what it holds left words behind that nobody counted in
/// any more.
#[test]
fn threads_that_count_as_they_end_share_their_words() {
    let (none, made) = (Blocks::default(), Blocks::default());
    let mut pm = pool(&[4096]);
    pm.set_count_source(Some(source(&none, &made)));
    let pm = Arc::new(pm);
    for _ in 0..5 {
        let pm = Arc::clone(&pm);
        let stores = move || {
            BEFORE.set(Some(Last(Arc::clone(&pm))));
            store_one(&pm);
            AFTER.set(Some(Last(pm)));
        };
        std::thread::spawn(stores).join().unwrap();
    }
    assert_eq!(pm.counters().lines(), 15);
    assert_eq!(made.lock().unwrap().len(), 2);
}

#[test]
fn counts_between_two_moments() {
    let pm = pool(&[4096]);
    pm.fence(pm.stream_zero(PmAddr::new(0, 0), 4096, Purpose::Data)).end();
    let before = pm.counters();
    pm.fence(pm.stream_zero(PmAddr::new(0, 0), 100, Purpose::Inode)).end();
    let between = pm.counters() - before;
    assert_eq!(between.of(Purpose::Data), PurposeCounters::default());
    assert_eq!(between.of(Purpose::Inode).lines, 2);
    assert_eq!((between.fences, between.slot_lines(0)), (1, 2));
}

/// Words that others read, as those of an arena.
#[derive(Clone)]
struct Words(Arc<[AtomicU64]>);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Blocks of words, of which a source gives each once.
type Blocks = Arc<Mutex<Vec<Words>>>;

fn source(left: &Blocks, made: &Blocks) -> CountSource {
    let (left, made) = (Arc::clone(left), Arc::clone(made));
    Box::new(move |len| {
        let new = || Words((0..len).map(|_| AtomicU64::new(0)).collect());
        let words = left.lock().unwrap().pop().unwrap_or_else(new);
        made.lock().unwrap().push(words.clone());
        Some(Box::new(words))
    })
}

fn store_one(pm: &Pm) {
    let dirty = pm.store_u64(PmAddr::new(0, 8), 1, Purpose::Log);
    pm.fence(pm.write_back(dirty)).end();
    pm.count_asked(3, 8);
}

fn sum(blocks: &Blocks) -> Counters {
    let mut sum = Counters::default();
    let blocks = blocks.lock().unwrap();
    blocks.iter().for_each(|words| sum += &Counters::of_words(words.as_ref()));
    sum
}

#[test]
fn others_read_what_threads_count_and_what_dead_ones_left() {
    let (none, first) = (Blocks::default(), Blocks::default());
    let mut pm = pool(&[4096, 4096]);
    // Before the words are there: what recovery does.
    store_one(&pm);
    pm.set_count_source(Some(source(&none, &first)));
    store_one(&pm);
    for _ in 0..3 {
        std::thread::scope(|scope| scope.spawn(|| store_one(&pm)).join().unwrap());
    }
    let counted = sum(&first);
    assert_eq!(counted, pm.counters());
    assert_eq!((counted.lines(), counted.write_backs(), counted.fences_with_pending), (5, 5, 5));
    assert_eq!(counted.asked[3], Asked { count: 5, bytes: 40 });
    assert_eq!(first.lock().unwrap().len(), 2, "the threads came one after the other");
    // Its process is gone in the middle of an operation: the next one counts on in its words.
    drop(pm.write_back(pm.store_u64(PmAddr::new(1, 8), 1, Purpose::Data)));
    drop(pm);
    let next = Blocks::default();
    let mut pm = pool(&[4096, 4096]);
    pm.set_count_source(Some(source(&first, &next)));
    pm.fence(Flushed::none()).end();
    store_one(&pm);
    assert_eq!((pm.counters().lines(), pm.counters().fences), (1, 2));
    assert_eq!((pm.counters().fences_with_pending, pm.thread_counters()), (1, pm.counters()));
    let both = || {
        let mut all = sum(&first);
        all += &sum(&next);
        all
    };
    let all = both();
    assert_eq!((all.lines(), all.slot_lines(0), all.slot_lines(1)), (7, 6, 1));
    // And back to words of its own.
    pm.set_count_source(None);
    store_one(&pm);
    assert_eq!(pm.counters().lines(), 2);
    assert_eq!(both().lines(), 7);
    pm.restart_counts();
    assert_eq!(pm.counters(), Counters::default());
}

//! A map of pairs holds what an ordered map holds, and the map of pages that it belongs to leads to it: to
//! what is there, or nowhere, never to what another map has there meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use novale_arena::{Arena, AtomicU64, Radix};
use proptest::prelude::*;

/// Two maps of pages and their maps of pairs, in one arena, so that blocks go from one to the other.
struct Bed {
    arena: Arena,
    roots: [[AtomicU64; 2]; 2],
    pages: [BTreeMap<u64, u64>; 2],
    pairs: [BTreeMap<u64, (u64, u64)>; 2],
}

#[derive(Debug, Clone)]
enum Step {
    SetPages(Range<u64>),
    RemovePages(Range<u64>),
    Pair(u64, u64, u64),
    RemovePairs(Range<u64>),
    RemovePair(u64),
}

fn key() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0_u64..70, 2 => 100_u64..400, 1 => 4000_u64..4200, 1 => 250_000_u64..270_000]
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (key(), prop_oneof![1_u64..4, 60_u64..200]).prop_map(|(first, count)| first..first + count)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => range().prop_map(Step::SetPages),
        1 => range().prop_map(Step::RemovePages),
        4 => (key(), 1_u64..1 << 40, any::<u64>()).prop_map(|(k, v, w)| Step::Pair(k, v, w)),
        1 => range().prop_map(Step::RemovePairs),
        2 => key().prop_map(Step::RemovePair),
        1 => Just(Step::RemovePairs(0..u64::MAX)),
    ]
}

impl Bed {
    fn new() -> Self {
        Self {
            arena: Arena::anonymous(64 << 20).unwrap(),
            roots: Default::default(),
            pages: Default::default(),
            pairs: Default::default(),
        }
    }

    fn maps(&self, which: usize) -> (Radix<'_>, Radix<'_>) {
        let [pages, pairs] = &self.roots[which];
        (Radix::new(pages), Radix::of_pairs(pairs, pages))
    }

    fn apply(&mut self, which: usize, step: &Step) {
        let (pages, pairs) = self.maps(which);
        match step.clone() {
            Step::SetPages(keys) => {
                let first = (keys.start + 1) << 12;
                pages
                    .set_range(&self.arena, keys.start, keys.end - keys.start, first, 4096)
                    .unwrap();
                self.pages[which].extend(keys.map(|key| (key, (key + 1) << 12)));
            }
            Step::RemovePages(keys) => {
                pages.remove_range(&self.arena, keys.start, keys.end, &mut |_, _| ()).unwrap();
                self.pages[which].retain(|key, _| !keys.contains(key));
            }
            Step::Pair(key, value, word) => {
                pairs.reserve(&self.arena, key, 1).unwrap();
                let pair = pairs.pair(&self.arena, key).unwrap().unwrap();
                pair.value.store(value, Relaxed);
                pair.word.store(word, Relaxed);
                self.pairs[which].insert(key, (value, word));
            }
            Step::RemovePairs(keys) => {
                let mut removed = Vec::new();
                pairs
                    .remove_range(&self.arena, keys.start, keys.end, &mut |key, value| {
                        removed.push((key, value));
                    })
                    .unwrap();
                let held = &mut self.pairs[which];
                let expected: Vec<_> =
                    held.range(keys.clone()).map(|(key, (value, _))| (*key, *value)).collect();
                assert_eq!(removed, expected);
                held.retain(|key, _| !keys.contains(key));
            }
            Step::RemovePair(key) => {
                let removed = pairs.remove_pair(&self.arena, key).unwrap();
                assert_eq!(removed, self.pairs[which].remove(&key).unwrap_or((0, 0)));
            }
        }
    }

    /// What is found of a page, by either way; says whether one walk found it.
    fn check(&self, which: usize, key: u64) -> bool {
        let (pages, pairs) = self.maps(which);
        let page = self.pages[which].get(&key).copied().unwrap_or(0);
        let held = self.pairs[which].get(&key).copied().unwrap_or((0, 0));
        let pair = pairs.pair(&self.arena, key).unwrap();
        let found = pair.map(|pair| (pair.value.load(Relaxed), pair.word.load(Relaxed)));
        assert_eq!(found.unwrap_or((0, 0)), held, "pair {key}");
        let both = pages.known_page_and_pair(self.arena.known(), key);
        if let Some((found, pair)) = both {
            let pair = (pair.value.load(Relaxed), pair.word.load(Relaxed));
            assert_eq!((found, pair), (page, held), "page {key}");
        }
        both.is_some()
    }
}

proptest! {
    #[test]
    fn any_sequence_of_changes(
        steps in proptest::collection::vec((0_usize..2, step()), 1..80),
        probes in proptest::collection::vec(key(), 4),
    ) {
        let mut bed = Bed::new();
        // Those of pairs that are gone, too.
        let mut keys = probes;
        for (which, step) in &steps {
            bed.apply(*which, step);
            keys.extend(if let Step::Pair(key, ..) = step { Some(*key) } else { None });
            for (which, key) in keys.iter().flat_map(|key| [(0, *key), (1, *key)]) {
                bed.check(which, key);
            }
        }
        for which in 0..2 {
            // The last one takes all nodes with it, by either way.
            let left: Vec<u64> = bed.pairs[which].keys().copied().collect();
            for key in left {
                bed.apply(which, &Step::RemovePair(key));
            }
            let (_, pairs) = bed.maps(which);
            prop_assert!(pairs.is_empty());
            bed.apply(which, &Step::RemovePairs(0..u64::MAX));
            let (_, pairs) = bed.maps(which);
            prop_assert!(pairs.is_empty());
        }
    }
}

#[test]
fn one_walk_finds_the_pairs_of_a_file_of_more_than_64_pages() {
    for pages in [100, 5000, 300_000] {
        let mut bed = Bed::new();
        bed.apply(0, &Step::SetPages(0..pages));
        for key in [0, pages - 1] {
            assert!(!bed.check(0, key), "no pair of {key}");
            bed.apply(0, &Step::Pair(key, 4096, 1 << 63));
            assert!(bed.check(0, key), "a pair of {key} of {pages}");
        }
        bed.apply(0, &Step::RemovePairs(0..64));
        assert!(!bed.check(0, 0) && bed.check(0, pages - 1), "of {pages}");
    }
}

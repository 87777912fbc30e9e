//! The promise: a repair keeps all that can be read, says what it gives up, and leaves a sound pool;
//! run on the corpus of damaged pools, a sample for `NOVALE_LAB_SECONDS`, from `NOVALE_LAB_SEED` on.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test stops at what fails, and says what it met"
)]

use std::collections::BTreeMap;
use std::time::Instant;

use fastrand::Rng;
use novale_core::dump::{Dump, DumpLimits};
use novale_core::repair::Effort;
use novale_lab::diff::Budget;
use novale_lab::images::{Image, Pools, Recipe, repaired};
use novale_layout::{INODE_DIRECTORY_PAGE, Ino, PAGE, PmAddr};
use novale_pm::{PmOptions, Purpose};

const CORPUS: &str = include_str!("../corpus/images.txt");
/// Images that are tried.
const IMAGES: u64 = 400;

#[test]
fn of_every_damaged_pool() {
    let mut recipes: Vec<Recipe> = CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse().unwrap())
        .collect();
    let budget = Budget::from_env(IMAGES, 0);
    Rng::with_seed(budget.seed).shuffle(&mut recipes);
    let (start, mut pools) = (Instant::now(), Pools::default());
    let (mut met, mut wrong): (BTreeMap<&str, u32>, Vec<String>) = Default::default();
    let goes_on = |(done, _): &(u64, Recipe)| budget.goes_on(*done, start);
    for (_, recipe) in (0..).zip(recipes).take_while(goes_on) {
        let slots = Image::new(&mut pools, &recipe).unwrap().bytes().unwrap();
        for effort in [Effort::Safe, Effort::Salvage] {
            let done = repaired(&slots, effort).unwrap();
            let what = match &done.report {
                None => "not begun",
                Some(report) if !report.beyond.is_empty() => "beyond repair",
                Some(report) if !report.needs_salvage.is_empty() => "need a salvage",
                Some(report) if report.changes.is_empty() => "sound",
                Some(_) if effort == Effort::Safe => "repaired",
                Some(_) => "salvaged",
            };
            *met.entry(what).or_default() += 1;
            let named = |what: String| format!("{recipe} ({effort:?}): {what}");
            wrong.extend(done.wrong.into_iter().map(named));
        }
    }
    println!("repairs_keep_what_can_be_read: {met:?}");
    assert!(
        wrong.is_empty(),
        "{} wrong, the first: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(100)]
    );
    assert!(met.contains_key("repaired") && met.contains_key("salvaged"), "{met:?}");
}

/// Stores words to the inode directory of a pool that was closed clean: at the place that is found by what the
/// root's first word is.
fn with_word(place: impl Fn(PmAddr) -> PmAddr, word: u64) -> Image {
    let recipe: Recipe = "full closed".parse().unwrap();
    let image = Image::new(&mut Pools::default(), &recipe).unwrap();
    let pm = image.pool.open(&PmOptions::default()).unwrap();
    let root = PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE);
    let first = PmAddr::from_raw(pm.load_u64(root).unwrap());
    pm.fence(pm.write_back(pm.store_u64(place(first), word, Purpose::Other))).end();
    image
}

/// A zero in the place of the first word of the inode directory, on either upper level, refused the pool to
/// every repair; any other value there was put right.
#[test]
fn of_a_pool_whose_first_chunk_has_no_word() {
    comes_back(&with_word(|_| PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE), 0));
    comes_back(&with_word(|upper| upper, 0));
}

/// One bit set in a word of the inode directory that is null, which named a page then: no repair took it out.
#[test]
fn of_a_pool_whose_directory_names_one_page_more() {
    // A free page, for a page of the second level.
    let image = with_word(|_| PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE + 8), 200 * PAGE);
    let done = repaired(&image.bytes().unwrap(), Effort::Safe).unwrap();
    assert_eq!(done.wrong, Vec::<String>::new());
    let report = done.report.unwrap();
    assert_eq!(report.beyond, Vec::<String>::new());
    assert!(report.changes.iter().any(|change| change.what.contains("leads to no table")));
}

/// A pool of the lab that was closed clean, with the word of the inode directory that names the page of inode
/// 17 naming the page that `other` finds in its bytes.
fn with_a_word_that_names(other: impl Fn(&[u8]) -> u64) -> Image {
    let recipe: Recipe = "full closed".parse().unwrap();
    let image = Image::new(&mut Pools::default(), &recipe).unwrap();
    let pm = image.pool.open(&PmOptions::default()).unwrap();
    let shown = Dump::new(&pm).inode(Ino::new(17), DumpLimits { items: 0, behind: false });
    let inodes = PmAddr::new(0, shown.at.byte() / PAGE * PAGE).raw().to_le_bytes();
    let bytes = image.bytes().unwrap().swap_remove(0);
    let word = bytes.chunks(8).position(|word| word == inodes).unwrap() as u64 * 8;
    let stored = pm.store_u64(PmAddr::new(0, word), other(&bytes) * PAGE, Purpose::Other);
    pm.fence(pm.write_back(stored)).end();
    image
}

/// Both repairs put the word back, and nothing is lost.
fn comes_back(image: &Image) {
    for effort in [Effort::Safe, Effort::Salvage] {
        let done = repaired(&image.bytes().unwrap(), effort).unwrap();
        assert_eq!(done.wrong, Vec::<String>::new());
        let changes = done.report.unwrap().changes;
        assert!(changes.iter().any(|change| change.what.contains("is found")), "{changes:#?}");
        assert!(!changes.iter().any(|change| change.is_loss), "{changes:#?}");
        assert!(done.after.contains_key(&17), "{effort:?}");
    }
}

/// A word of the inode directory named a page without inodes that another inode had. A salvage took the
/// word out, and the inodes of the page that it should have named were lost; what the next repair found
/// in that page, which was in use again by then, was taken for inodes.
#[test]
fn of_inodes_whose_word_names_another_page() {
    // A page of a file, which is written full of ones.
    let data =
        |bytes: &[u8]| bytes.chunks(4096).rposition(|page| page == [1; 4096]).unwrap() as u64;
    comes_back(&with_a_word_that_names(data));
}

/// One flipped bit had a word of the inode directory name a page that was nobody's. A salvage gave up the
/// 16 inodes, whose page lay there whole.
#[test]
fn of_inodes_whose_word_names_a_free_page() {
    let free = |bytes: &[u8]| {
        let zeros = bytes.chunks(4096).enumerate().filter(|(_, page)| *page == [0; 4096]);
        let last = bytes.len() / 4096 - 1;
        zeros.map(|(page, _)| page).rfind(|page| *page < last).unwrap() as u64
    };
    comes_back(&with_a_word_that_names(free));
}

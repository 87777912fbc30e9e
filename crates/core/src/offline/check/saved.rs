//! The saved allocator against what the logs say.

use std::collections::BTreeSet;

use novale_layout::{Ino, PmAddr};
use novale_pm::Pm;

use crate::life::saved::{self, INODE_WORDS};
use crate::offline::check::{Finding, Inventory, finding};
use crate::pool::Pool;
use crate::pool::marks::{InodeMarks, PageMarks};

/// The saved allocator must say what the logs say.
pub(super) fn check(
    pm: &Pm,
    pool: &Pool,
    chunks: usize,
    pages: &PageMarks,
    all: &Inventory,
) -> Vec<Finding> {
    if pm.absent_slots() != 0 {
        return Vec::new();
    }
    let saved = match saved::read(pm, pool, chunks) {
        Ok(Some(saved)) if pool.is_clean() => saved,
        Ok(_) => return Vec::new(),
        Err(error) => return vec![finding(&error)],
    };
    let mut findings = Vec::new();
    let mut behind_the_end = false;
    for (slot, (header, _)) in pool.slots.iter().enumerate() {
        let words = header.pages.div_ceil(64);
        let limit = header.pages % 64;
        behind_the_end |= (words..words.next_multiple_of(8))
            .any(|index| saved.page_word(slot, index) != u64::MAX);
        for index in 0..words {
            let in_slot =
                if index + 1 == words && limit != 0 { (1 << limit) - 1 } else { u64::MAX };
            behind_the_end |= !saved.page_word(slot, index) & !in_slot != 0;
            let (said, is) = (saved.page_word(slot, index) & in_slot, pages.word(slot, index));
            if said != is {
                let at = PmAddr::new(header.index, index * 64 * 4096);
                let (lost, taken) = ((said & !is).count_ones(), (is & !said).count_ones());
                let what = format!(
                    "saved allocator, 64 pages at {at}: {lost} in use without an owner, {taken} with an \
                     owner called free"
                );
                findings.push(Finding { at, what });
            }
        }
    }
    if behind_the_end {
        let what = "saved allocator: pages behind the end of a slot are called free".to_owned();
        findings.push(Finding { at: pool.state.saved_root, what });
    }
    let inodes = InodeMarks::new(chunks);
    // Number 0 is nobody's, and counts as used.
    for ino in all.inodes.keys().chain([&Ino::NULL]) {
        inodes.mark(*ino);
    }
    let words = (0..chunks).flat_map(|chunk| (0..INODE_WORDS).map(move |index| (chunk, index)));
    let wrong: u32 = words
        .map(|(chunk, index)| saved.inode_word(chunk, index) ^ inodes.word(chunk, index))
        .map(u64::count_ones)
        .sum();
    if wrong > 0 {
        let what = format!("saved allocator: {wrong} inode numbers are wrongly in use or free");
        findings.push(Finding { at: pool.state.saved_root, what });
    }
    let trees: BTreeSet<u32> = saved.projects.keys().chain(all.projects.keys()).copied().collect();
    for tree in trees {
        let [said, used] =
            [&saved.projects, &all.projects].map(|all| all.get(&tree).copied().unwrap_or_default());
        if said != used {
            let what = format!(
                "saved allocator: directory tree {tree} has {} pages and {} inodes, not {} and {}",
                used.pages, used.inodes, said.pages, said.inodes
            );
            findings.push(Finding { at: pool.state.saved_root, what });
        }
    }
    findings
}

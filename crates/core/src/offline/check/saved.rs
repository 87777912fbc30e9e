//! The saved allocator against what the logs say.

use std::collections::BTreeSet;

use novale_layout::{INODES_PER_CHUNK, Ino, PmAddr};
use novale_pm::Pm;

use crate::life::saved;
use crate::offline::check::{Finding, Inventory, finding};
use crate::pool::Pool;
use crate::pool::marks::PageMarks;

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
    let wrong = (0..chunks as u64 * INODES_PER_CHUNK).filter(|number| {
        let ino = Ino::new(*number);
        let index = usize::try_from(ino.index() / 64).unwrap_or(usize::MAX);
        let chunk = usize::try_from(ino.chunk()).unwrap_or(usize::MAX);
        let said = saved.inode_word(chunk, index) >> (ino.index() % 64) & 1 == 1;
        // Number 0 is nobody's, and counts as used.
        said != (*number == 0 || all.inodes.contains_key(&ino))
    });
    let wrong = wrong.count();
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

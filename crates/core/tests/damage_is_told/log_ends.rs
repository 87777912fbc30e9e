//! A log page says where its entries end. What is missing before that place is damage, and not taken for
//! the end.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::pools::*;

/// Of five lines in a log.
fn long(index: u32) -> String {
    format!("{index:0255}")
}

/// A pool closed clean with a directory whose log has a full page, one that ends early and a last one;
/// and the first two, with the lines of entries that each has.
fn three_pages() -> (Pm, Vec<(PmAddr, u64)>) {
    let fs = try_open(fill(empty_pool_of(2 * MB))).unwrap();
    // The directory has a name already.
    for name in (0..62).map(|index| index.to_string()).chain((0..20).map(long)) {
        fs.link(&ctx(), Node::current(FILE), Node::current(DIR), name.as_bytes()).unwrap();
    }
    fs.close().unwrap();
    let pm = fs.into_pm();
    let pages = links_of(&pm, DIR);
    let ends: Vec<_> = pages.iter().map(|(page, link)| (*page, link.lines().unwrap())).collect();
    assert_eq!(ends.iter().map(|(_, lines)| *lines).collect::<Vec<_>>(), [63, 60]);
    assert_eq!(findings(&pm), [] as [&str; 0]);
    (pm, ends)
}

/// An inode's log pages but the last one, and what links each to the next.
fn links_of(pm: &Pm, ino: Ino) -> Vec<(PmAddr, LogLink)> {
    let (_, line) = newest(pm, ino);
    let (mut page, mut pages) = (line.log_head, Vec::new());
    while page != line.log_tail.page() {
        let of_page = seed().ino(ino).generation(1).addr(page);
        let header = LogPageHeader::decode(&pm.load_line(page).unwrap(), of_page).unwrap();
        pages.push((page, header.next));
        page = header.next.next();
    }
    pages
}

fn names(fs: &Fs) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    fs.readdir(&ctx(), Node::current(DIR), 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })?;
    names.sort();
    Ok(names)
}

fn copy_of(bytes: &[u8]) -> Pm {
    let pm = empty_pool_of(bytes.len() as u64);
    put(&pm, PmAddr::new(0, 0), bytes);
    pm
}

/// An entry, or a line of one, became zeros: all that came after it in the page was skipped, and nobody
/// was told.
#[test]
fn zeros_in_an_entrys_place_are_damage() {
    let (pm, ends) = three_pages();
    let sound = bytes(&pm);
    for (page, lines) in ends {
        for line in 1..=lines {
            let at = page.add(line * LINE);
            let pm = copy_of(&sound);
            put(&pm, at, &[0; 64]);
            let found = findings(&pm);
            assert!(found.iter().any(|what| what.contains("inode 2 log")), "{at}: {found:?}");
            let fs = open_read_only(copy_of(&bytes(&pm))).unwrap();
            let told = names(&fs).unwrap_err().to_string();
            assert!(told.contains("inode 2 log"), "{at}: {told}");
        }
    }
}

/// A repair that gives nothing up leaves it as it is; a salvage says what it takes away.
#[test]
fn a_repair_that_gives_nothing_up_leaves_it_alone() {
    let (pm, ends) = three_pages();
    let sound = bytes(&pm);
    for (page, lines) in ends {
        for line in [1, lines / 5 * 5 - 4] {
            let pm = copy_of(&sound);
            put(&pm, page.add(line * LINE), &[0; 64]);
            let damaged = bytes(&pm);
            let report = repaired(&pm, repair::Effort::Safe);
            assert!(bytes(&pm) == damaged, "{page}, line {line}: {report:?}");
            let report = repaired(&pm, repair::Effort::Salvage).unwrap();
            assert_eq!(report.left.findings, []);
            assert!(report.changes.iter().any(|change| change.is_loss), "{report:?}");
        }
    }
}

/// Pages that earlier builds filled do not say where they end: by a blank line, or they are full.
#[test]
fn pages_of_earlier_builds_end_by_a_blank_line() {
    let (pm, ends) = three_pages();
    let fs = open_read_only(copy_of(&bytes(&pm))).unwrap();
    let expected = names(&fs).unwrap();
    for ((page, link), (_, lines)) in links_of(&pm, DIR).into_iter().zip(ends) {
        let earlier = LogLink::page(link.next());
        put(&pm, page.add(LOG_NEXT_OFFSET), &earlier.raw().to_le_bytes());
        if lines < LOG_ENTRY_LINES {
            put(&pm, page.add((lines + 1) * LINE), &[0; 64]);
        }
    }
    assert_eq!(findings(&pm), [] as [&str; 0]);
    let fs = try_open(pm).unwrap();
    assert_eq!(names(&fs).unwrap(), expected);
    for index in 20..40 {
        fs.link(&ctx(), Node::current(FILE), Node::current(DIR), long(index).as_bytes()).unwrap();
    }
    fs.close().unwrap();
    let pm = fs.into_pm();
    assert_eq!(findings(&pm), [] as [&str; 0]);
    let said: Vec<bool> =
        links_of(&pm, DIR).iter().map(|(_, link)| link.lines().is_some()).collect();
    assert_eq!(said, [false, false, true, true]);
}

/// A page that collection takes out leaves the one before it with its end, and new pages say theirs.
#[test]
fn collection_keeps_the_ends_of_pages() {
    let fs = try_open(fill(empty_pool_of(4 * MB))).unwrap();
    let (file, dir) = (Node::current(FILE), Node::current(DIR));
    let name = |index: u32| if index.is_multiple_of(3) { long(index) } else { index.to_string() };
    for index in 0..1500 {
        fs.link(&ctx(), file, dir, name(index).as_bytes()).unwrap();
        // Some stay, so that pages in the middle of the log go.
        if let Some(old) = index.checked_sub(90).filter(|old| old % 200 > 20) {
            fs.unlink(&ctx(), dir, name(old).as_bytes()).unwrap();
        }
    }
    let expected = names(&fs).unwrap();
    let GcStats { fast_pages, thorough_pages } = fs.gc_stats();
    assert!(fast_pages > 0 && thorough_pages > 0, "{fast_pages}, {thorough_pages}");
    fs.close().unwrap();
    let pm = fs.into_pm();
    assert_eq!(findings(&pm), [] as [&str; 0]);
    let links = links_of(&pm, DIR);
    assert!(links.len() > 2 && links.iter().all(|(_, link)| link.lines().is_some()), "{links:?}");
    assert!(links.iter().any(|(_, link)| link.lines() < Some(LOG_ENTRY_LINES)), "{links:?}");
    assert_eq!(names(&try_open(pm).unwrap()).unwrap(), expected);
}

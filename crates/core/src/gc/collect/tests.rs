//! What collection keeps of a window, and what it cuts out.

use std::collections::BTreeMap;

use super::*;
use crate::fixture::{CTX, with_file};
use crate::op::call::OpKind;

#[test]
fn of_a_write_the_runs_are_kept_that_lie_where_it_put_them() {
    let (fs, ino) = with_file();
    fs.write(&CTX, ino, 0, b"x").unwrap();
    let arena = fs.arena();
    let view = fs.views.find(arena, ino).unwrap().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let put = Extent { addr: PmAddr::new(0, 50 * PAGE), pages: 8 };
    view.index().reserve(arena, 0, 20).unwrap();
    for round in 0..500 {
        view.index().remove_range(arena, 0, 20, &mut |_, _| ()).unwrap();
        view.index().reserve(arena, 0, 20).unwrap();
        let mut expected: Vec<(u64, PmAddr, u32)> = Vec::new();
        let mut before = false;
        for page in 0..20 {
            // Where the write put it, if that is of its pages, a page beside, or nowhere.
            let there = put.addr.add(page * PAGE).raw().wrapping_sub(3 * PAGE);
            let (is_mapped, is_there) = (random.u8(..5) > 0, random.u8(..4) > 0);
            if is_mapped {
                let addr = if is_there { there } else { there + PAGE };
                view.index().set(arena, page, addr).unwrap();
            }
            let alive = is_mapped && is_there && (3..3 + put.pages).contains(&page);
            match expected.last_mut().filter(|_| before && alive) {
                Some((.., count)) => *count += 1,
                None => expected.extend(alive.then(|| (page, PmAddr::from_raw(there), 1))),
            }
            before = alive;
        }
        let mut found = Vec::new();
        live_pieces(&view, arena, 3, put, |what| {
            let What::Piece { file_page, addr, count } = what else { return };
            found.push((file_page, addr, count));
        })
        .unwrap();
        assert_eq!(found, expected, "round {round}");
    }
}

/// What a log says of the pages of a file, in its order: where they lie, or that they are a hole.
type Said = (Range<u64>, Option<PmAddr>);

fn mapped(said: &[Said]) -> BTreeMap<u64, PmAddr> {
    let mut map = BTreeMap::new();
    for (pages, addr) in said {
        map.retain(|page, _| !pages.contains(page));
        let placed = addr.iter().flat_map(|addr| {
            pages.clone().zip(0..).map(|(page, step)| (page, addr.add(step * PAGE)))
        });
        map.extend(placed);
    }
    map
}

fn said(kept: &Kept) -> Said {
    match kept.what {
        What::Piece { file_page, addr, count } => {
            (file_page..file_page + u64::from(count), Some(addr))
        }
        What::Hole { first, end } => (first..end, None),
        What::Attributes | What::Pair | What::Dentry(_) | What::Delete { .. } => (0..0, None),
    }
}

/// A random log: new pages, pages that come back, holes, and holes to the end.
fn random_log(random: &mut fastrand::Rng) -> Vec<Said> {
    let mut log: Vec<Said> = Vec::new();
    for entry in 0..random.u64(1..9) {
        let (first, count) = (random.u64(..6), random.u64(1..4));
        let again = random.choice(&log).cloned().filter(|_| random.bool());
        log.push(match (random.u8(..4), again) {
            (0, _) => (first..first + count, None),
            (1, _) => (first..FILE_PAGES_MAX, None),
            (_, Some((pages, Some(addr)))) => (pages, Some(addr)),
            _ => (first..first + count, Some(PmAddr::new(0, (entry + 1) * 16 * PAGE))),
        });
    }
    log
}

/// The window of what a log says from `from` on: as much of its writes as is mapped so in the end, and
/// is not after a later cut.
fn window_of(log: &[Said], from: usize, map: &BTreeMap<u64, PmAddr>) -> Window {
    let is_cut = |(pages, addr): &Said| addr.is_none() && pages.end == FILE_PAGES_MAX;
    let cut = log.iter().rposition(is_cut);
    let mut pages = Vec::new();
    for (at, (range, addr)) in log.iter().enumerate().skip(from) {
        let mut page = WindowPage::new(PmAddr::NULL, 0);
        let mut keep = |what| page.kept.push(Kept { op_seq: at as u64, what, from: 0, lines: 1 });
        let Some(addr) = *addr else {
            keep(What::Hole { first: range.start, end: range.end });
            pages.push(page);
            continue;
        };
        let end = cut.filter(|cut| at < *cut).map_or(range.end, |cut| log[cut].0.start);
        for file_page in range.start..range.end.min(end) {
            let addr = addr.add((file_page - range.start) * PAGE);
            if map.get(&file_page) == Some(&addr) {
                keep(What::Piece { file_page, addr, count: 1 });
            }
        }
        pages.push(page);
    }
    Window { before: PmAddr::NULL, pages, end: PmAddr::NULL }
}

#[test]
fn what_a_window_keeps_says_the_same_once() {
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..20_000 {
        let log = random_log(&mut random);
        let (from, map) = (random.usize(..log.len()), mapped(&log));
        let mut window = window_of(&log, from, &map);
        window
            .drop_overridden(|from, to| Ok(to > 40 || (from..to).any(|p| !map.contains_key(&p))))
            .unwrap();
        let kept: Vec<Said> = window.kept().map(said).collect();
        assert_eq!(mapped(&[&log[..from], &kept].concat()), map, "round {round}: {log:?}, {from}");
        for (at, (pages, addr)) in kept.iter().enumerate() {
            let is_later = |later: &Said| later.1.is_none() && later.0.contains(&pages.start);
            let needed = match addr {
                Some(_) => {
                    !kept[at + 1..].iter().any(|later| *later == kept[at] || is_later(later))
                }
                None => pages.clone().take(40).any(|page| {
                    let in_hole = |later: &Said| later.1.is_none() && later.0.contains(&page);
                    !map.contains_key(&page) && !kept[at + 1..].iter().any(in_hole)
                }),
            };
            assert!(needed, "round {round}: {log:?}, {from}: {pages:?}");
        }
        for page in &window.pages {
            let of = |wanted: fn(&What) -> bool| page.kept.iter().any(|kept| wanted(&kept.what));
            assert_eq!(page.live, of(|what| matches!(what, What::Piece { .. })));
            assert_eq!(page.holes, of(|what| matches!(what, What::Hole { .. })));
        }
    }
}

#[test]
fn entries_that_do_not_fit_take_a_page_more() {
    let needed = |lines: &[u64]| needed_pages(lines.iter().copied());
    assert_eq!(needed(&[]), 0);
    assert_eq!(needed(&[1; 63]), 1, "a page has 63 lines for entries");
    assert_eq!(needed(&[1; 64]), 2);
    let halves = [32, 32, 31];
    assert_eq!(needed(&halves), 2, "no entry is in two pages");
}

/// A page by what stands in it: `l` lives, `h` has a hole that is needed, `a` has a dead name and `d`
/// the delete of it.
fn page(text: &str) -> WindowPage {
    let mut page = WindowPage::new(PmAddr::NULL, 0);
    page.live = text.contains('l');
    page.holes = text.contains('h');
    page.dead_adds.extend(text.contains('a').then_some(7));
    page.deletes.extend(text.contains('d').then_some(7));
    page
}

#[test]
fn the_longest_run_is_cut_out_whose_pages_need_nothing_that_stays() {
    let head = PmAddr::NULL;
    let behind = PmAddr::new(0, PAGE);
    for (before, pages, expected) in [
        (head, "", Some((0, 1))),
        (head, "l", None),
        (head, "h", Some((0, 1))),
        (behind, "h", None),
        (head, "d", Some((0, 1))),
        (behind, "d", None),
        (behind, "a d", Some((0, 2))),
        (behind, "d a", Some((1, 1))),
        (behind, "al d", None),
        (head, "l h", None),
        (head, "h d l  ", Some((0, 2))),
        (head, " l   l ", Some((2, 2))),
        (behind, " l   l    ", Some((5, 4))),
        (behind, " h  l a d ", Some((4, 3))),
    ] {
        let pages = pages.split(' ').map(page).collect();
        let window = Window { before, pages, end: PmAddr::NULL };
        assert_eq!(window.dead_run(), expected);
    }
}

#[test]
fn what_is_written_anew_is_all_that_is_kept_in_the_pages_that_were_counted() {
    let (fs, ino) = with_file();
    let call = fs.begin(OpKind::Manage, &CTX).unwrap();
    let locked = fs.lock(&call, ino).unwrap();
    for count in [1, 62, 63, 64, 125, 126, 127] {
        let mut page = WindowPage::new(PmAddr::NULL, 5);
        for piece in 0..count {
            let addr = PmAddr::new(0, (piece + 20) * PAGE);
            let what = What::Piece { file_page: piece * 2, addr, count: 1 };
            page.kept.push(Kept { op_seq: 9, what, from: 0, lines: 1 });
        }
        let window = Window { before: PmAddr::NULL, pages: vec![page], end: PmAddr::NULL };
        let pages = needed_pages(window.kept().map(|kept| u64::from(kept.lines)));
        let (at, behind) = (PmAddr::new(0, 160 * PAGE), PmAddr::new(0, (160 + pages) * PAGE));
        fs.pm.fence(fs.pm.stream(behind, &[7; 64], Purpose::Other)).end();
        let mut extents = Extents::default();
        extents.push(Extent { addr: at, pages });
        let stored = fs.store_pages(&locked, &window, &extents);
        fs.pm.fence(stored.pending).end();
        let (mut found, mut seqs) = (Vec::new(), Vec::new());
        log::walk_range(&fs.pm, &locked.id, at, Until::Line(stored.tail), &mut |item| {
            match item {
                Item::Page { seq, .. } => seqs.push(seq),
                Item::Entry(_, entry) => found.push(*entry),
            }
            Ok(())
        })
        .unwrap();
        let kept = (0..count).map(|piece| {
            write_entry(piece * 2, Extent { addr: PmAddr::new(0, (piece + 20) * PAGE), pages: 1 })
        });
        assert_eq!(found, kept.collect::<Vec<_>>());
        assert_eq!(seqs, (5..5 + pages).collect::<Vec<_>>());
        assert_eq!(fs.pm.load_line(behind).unwrap(), [7; 64], "{count} entries end in their page");
    }
}

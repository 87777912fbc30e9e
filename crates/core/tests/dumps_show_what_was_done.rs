//! The promise: what a dump shows is what was done, structure by structure, whatever the state of
//! the pool; and damage is shown raw with its reason.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at what fails, and knows what it made"
)]

use novale_arena::Arena;
use novale_core::dump::{Dump, DumpLimits, InodeDump, Owner, Shown, Value};
use novale_core::{
    Ctx, FileKind, Fs, Ino, MkfsOptions, NewInode, Node, OpenOptions, RenameMode, Serial, SetAttr,
    SetXattr, UpdatePolicy, XattrMode, mkfs,
};
use novale_layout::{INODE_SIZE, LINE, LOG_NEXT_OFFSET, PAGE, PmAddr};
use novale_pm::{Pm, PmOptions, Purpose};

const BYTES: u64 = 4 << 20;
const LIMITS: DumpLimits = DumpLimits { items: 1000, behind: true };

fn at(now_ns: i64) -> Ctx {
    Ctx { now_ns, hint: 0 }
}

fn pool() -> Pm {
    let pm = Pm::anonymous(&[BYTES], &PmOptions::default()).unwrap();
    let options = MkfsOptions {
        pool_uuid: [5; 16],
        slot_uuids: vec![[7; 16]],
        now_ns: 3,
        root_uid: 1,
        root_gid: 2,
        ..MkfsOptions::numbered(1, 2)
    };
    mkfs(&pm, &options).unwrap();
    pm
}

fn open(pm: Pm) -> Fs {
    let arena = Arena::anonymous(32 << 20).unwrap();
    Fs::open(pm, arena, &OpenOptions { now_ns: 4, ..OpenOptions::default() }, &Serial, &|_| ())
        .unwrap()
}

fn make(fs: &Fs, dir: Ino, name: &[u8], kind: FileKind, now_ns: i64) -> Ino {
    let new = NewInode { kind, mode: 0o640, uid: 8, gid: 9, rdev: 0, target: b"" };
    fs.create(&at(now_ns), Node::current(dir), name, &new).unwrap().ino
}

fn line<'d>(inode: &'d InodeDump, note: &str) -> &'d Shown {
    let has = |shown: &&Shown| shown.notes.iter().any(|found| found == note);
    inode.lines.iter().find(has).unwrap()
}

fn names(inode: &InodeDump) -> Vec<(String, u64)> {
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    inode.names.iter().map(|name| (text(&name.name), name.ino.get())).collect()
}

fn entries(inode: &InodeDump) -> Vec<&'static str> {
    let entries = inode.log.pages.iter().flat_map(|page| &page.entries);
    entries.map(|entry| entry.structure).collect()
}

#[test]
fn a_directory_and_a_file_are_shown_as_they_were_made() {
    let fs = open(pool());
    let dir = make(&fs, Ino::ROOT, b"dir", FileKind::Directory, 10);
    let long = [b'n'; 200];
    let file = make(&fs, dir, &long, FileKind::File, 11);
    fs.write(&at(12), file, 3 * PAGE, &[1; 5000]).unwrap();
    fs.rename(
        &at(13),
        Node::current(dir),
        &long,
        Node::current(dir),
        b"short",
        RenameMode::Replace,
    )
    .unwrap();
    let pm = fs.into_pm();
    let dump = Dump::new(&pm);
    assert_eq!(dump.remarks(), &[] as &[String]);
    assert_eq!(dump.find(b"/dir/short"), Ok(file));
    assert!(dump.find(b"/dir/long").unwrap_err().contains("has no name \"long\""));
    assert!(dump.find(b"/dir/short/x").unwrap_err().contains("is no directory"));

    let shown = dump.inode(dir, LIMITS);
    assert_eq!(shown.verdict, "Directory in use: a commit line stands");
    assert_eq!(names(&shown), [("short".to_owned(), file.get())]);
    assert_eq!(shown.left_out, 0);
    assert_eq!(dump.inode(dir, DumpLimits { items: 0, behind: false }).left_out, 1);
    let expected = ["Dentry add entry", "Dentry add entry", "Dentry delete entry"];
    let mut found = entries(&shown);
    found.sort_unstable();
    assert_eq!(found, expected);
    let whole = shown.log.pages[0]
        .entries
        .iter()
        .any(|entry| entry.fields.iter().any(|(_, value)| *value == Value::Name(long.to_vec())));
    assert!(whole, "a long name is shown whole: {shown:?}");
    assert_eq!(line(&shown, "stands").number("size"), Some(1));
    assert!(shown.log.end.starts_with("with the committed tail"), "{}", shown.log.end);
    assert!(!shown.records.is_empty() && shown.records.iter().all(|r| r.verdict == "counts"));

    let shown = dump.inode(file, LIMITS);
    let identity = &shown.lines[0];
    assert_eq!(identity.number("mode"), Some(0o100_640));
    assert_eq!((identity.number("uid"), identity.number("gid")), (Some(8), Some(9)));
    let standing = line(&shown, "stands");
    assert_eq!(standing.number("size"), Some(3 * PAGE + 5000));
    assert!(standing.fields.contains(&("mtime_ns".to_owned(), Value::Time(12))));
    let pages: Vec<(u64, u64)> =
        shown.extents.iter().map(|extent| (extent.file_page, extent.pages)).collect();
    assert_eq!(pages.iter().map(|(_, pages)| pages).sum::<u64>(), 2);
    assert_eq!(pages[0].0, 3);

    let data = shown.extents[0].addr;
    let page = dump.page(data.add(100), &Serial, &|_| ()).unwrap();
    assert_eq!((page.at, page.owners), (data, vec![Owner::Data { ino: file, file_page: 3 }]));
    assert_eq!(page.bytes, [1; 4096]);
    let head = shown.log.pages[0].header.at;
    assert_eq!(dump.page(head, &Serial, &|_| ()).unwrap().owners, [Owner::Log(file)]);
    let inodes = dump.page(shown.at, &Serial, &|_| ()).unwrap().owners;
    assert_eq!(inodes, [Owner::Inodes(file.get() / 16 * 16)]);
    let free = dump.page(PmAddr::new(0, BYTES - 2 * PAGE), &Serial, &|_| ()).unwrap();
    assert_eq!((free.owners, free.saved), (vec![], None));
    assert!(dump.page(PmAddr::new(0, BYTES), &Serial, &|_| ()).is_err());
}

#[test]
fn a_pool_is_shown_with_its_copies_its_lanes_and_its_saved_allocator() {
    let fs = open(pool());
    let made = make(&fs, Ino::ROOT, b"a", FileKind::File, 10);
    fs.close().unwrap();
    let pm = fs.into_pm();
    let dump = Dump::new(&pm);
    let shown = dump.pool();
    assert_eq!(shown.superblocks[0].fields, shown.superblocks[1].fields);
    assert_eq!(shown.superblocks[0].number("lane_count"), Some(2));
    let standing = shown.states.iter().find(|line| line.notes.contains(&"stands".to_owned()));
    let standing = standing.unwrap();
    assert!(standing.notes.contains(&"closed clean".to_owned()));
    assert_eq!((standing.number("session"), standing.number("flags")), (Some(3), Some(1)));
    let slots = dump.slots();
    assert_eq!((slots.len(), slots[0].bytes), (1, BYTES));
    assert_eq!(slots[0].headers[1].number("pages"), Some(BYTES / PAGE));

    let lanes = dump.lanes();
    assert_eq!(lanes.len(), 2);
    let records = lanes.iter().flat_map(|lane| &lane.records);
    let (blank, written): (Vec<_>, Vec<_>) =
        records.partition(|record| record.verdict.starts_with("blank"));
    assert_eq!((blank.len(), written.len()), (3, 1));
    let inos = written[0].header[0].fields.iter().find(|(name, _)| name == "inos");
    assert_eq!(inos.unwrap().1, Value::Inos(vec![1, made.get(), 0, 0]));
    assert_eq!((written[0].lines.len(), written[0].verdict.as_str()), (2, "counts"));

    let saved = dump.saved(LIMITS);
    assert_eq!((saved.verdict.as_str(), saved.inodes_used), ("taken", 3));
    let chain = dump.page(saved.pages[0].at, &Serial, &|_| ()).unwrap();
    assert_eq!((chain.owners, chain.saved), (vec![Owner::Saved(0)], Some(false)));
}

#[test]
fn what_lies_behind_the_tail_is_shown_on_request() {
    let fs = open(pool());
    let file = make(&fs, Ino::ROOT, b"a", FileKind::File, 10);
    fs.write(&at(11), file, 0, &[1; 100]).unwrap();
    let inode = Dump::new(fs.pm()).inode(file, LIMITS);
    let tail = inode.log.pages[0].entries.last().unwrap().at;
    let copied = fs.pm().load_line(tail).unwrap();
    let pm = fs.into_pm();
    // As a write leaves it that was stored and not committed.
    pm.fence(pm.stream(tail.add(LINE), &copied, Purpose::Log)).end();
    let inode = Dump::new(&pm).inode(file, LIMITS);
    assert_eq!(inode.log.pages[0].entries.len(), 1);
    assert_eq!(inode.log.behind[0].entries[0].at, tail.add(LINE));
    assert_eq!(inode.log.behind[0].entries[0].refused, None);
    let without = Dump::new(&pm).inode(file, DumpLimits { behind: false, ..LIMITS });
    assert!(without.log.behind.is_empty());
}

/// A file with a log of several pages, and where each of those lies.
fn long_log() -> (Pm, Ino, Vec<PmAddr>) {
    let fs = open(pool());
    let file = make(&fs, Ino::ROOT, b"a", FileKind::File, 10);
    for page in 0..200 {
        fs.write(&at(11), file, page * 2 * PAGE, &[1; 10]).unwrap();
    }
    let pm = fs.into_pm();
    let shown = Dump::new(&pm).inode(file, LIMITS);
    let pages = shown.log.pages.iter().map(|page| page.header.at).collect();
    (pm, file, pages)
}

#[test]
fn a_log_in_a_circle_ends_and_says_so() {
    let (pm, file, pages) = long_log();
    let next = pages[2].add(LOG_NEXT_OFFSET);
    pm.fence(pm.write_back(pm.store_u64(next, pages[1].raw(), Purpose::Log))).end();
    let shown = Dump::new(&pm).inode(file, LIMITS);
    assert!(
        shown.log.end.contains(&format!("comes back to page {}", pages[1])),
        "{}",
        shown.log.end
    );
    assert_eq!(shown.log.pages.len(), 3);
}

#[test]
fn what_is_refused_is_shown_raw_and_the_look_goes_on() {
    let (pm, file, pages) = long_log();
    let sound = Dump::new(&pm).inode(file, LIMITS);
    let hurt = sound.log.pages[1].entries[4].at;
    let mut bytes = pm.load_line(hurt).unwrap();
    bytes[40] ^= 1;
    pm.fence(pm.stream(hurt, &bytes, Purpose::Log)).end();
    let header = pm.load_line(pages[2]).unwrap();
    pm.fence(pm.stream(pages[2].add(8), &7_u64.to_le_bytes(), Purpose::Log)).end();
    assert_ne!(pm.load_line(pages[2]).unwrap(), header);
    let shown = Dump::new(&pm).inode(file, LIMITS);
    let entry = &shown.log.pages[1].entries[4];
    assert!(entry.refused.as_ref().unwrap().contains("checksum"), "{entry:?}");
    assert_eq!(entry.number("addr"), sound.log.pages[1].entries[4].number("addr"));
    assert!(shown.log.pages[2].header.refused.is_some());
    assert_eq!(shown.log.pages.len(), sound.log.pages.len());
    assert_eq!(shown.log.end, sound.log.end);

    let limits = DumpLimits { items: 10, behind: false };
    let little = Dump::new(&pm).inode(file, limits);
    let kept: usize = little.log.pages.iter().map(|page| page.entries.len()).sum();
    assert_eq!((kept, little.extents.len()), (10, 10));
    assert_eq!(little.log.left_out, 190);
}

#[test]
fn a_torn_line_and_a_lost_superblock_are_shown_with_their_reasons() {
    let (pm, file, _) = long_log();
    let inode = Dump::new(&pm).inode(file, LIMITS).at;
    let older =
        line(&Dump::new(&pm).inode(file, LIMITS), "does not stand: older than the other").at;
    pm.fence(pm.stream(older.add(24), &[9; 8], Purpose::Commit)).end();
    let shown = Dump::new(&pm).inode(file, LIMITS);
    let torn = shown.lines.iter().find(|line| line.at == older).unwrap();
    assert!(torn.refused.as_ref().unwrap().contains("commit line: checksum"));
    assert_eq!(torn.number("size"), Some(0x0909_0909_0909_0909));
    assert!(older.byte() - inode.byte() < INODE_SIZE);

    pm.fence(pm.stream_zero(PmAddr::new(0, 0), 1024, Purpose::Other)).end();
    pm.fence(pm.stream_zero(PmAddr::new(0, BYTES - PAGE), 1024, Purpose::Other)).end();
    let dump = Dump::new(&pm);
    assert!(dump.remarks().iter().any(|remark| remark.contains("both copies of the superblock")));
    // The slot's header names the pool, and the tables are in their places.
    assert_eq!(dump.inode(file, LIMITS).log.pages.len(), shown.log.pages.len());
}

#[test]
fn extended_attributes_are_shown_and_own_their_pages() {
    let fs = open(pool());
    let file = make(&fs, Ino::ROOT, b"a", FileKind::File, 10);
    let set = |name, value| SetXattr { name, value, mode: XattrMode::Any, clear_set_gid: false };
    fs.setxattr(&at(11), Node::current(file), &set(b"user.small", b"x")).unwrap();
    fs.setxattr(&at(12), Node::current(file), &set(b"user.long", &[3; 5000])).unwrap();
    let pm = fs.into_pm();
    let dump = Dump::new(&pm);
    let shown = dump.inode(file, LIMITS).xattrs;
    assert_eq!(shown.names, [b"user.long".to_vec(), b"user.small".to_vec()]);
    assert_eq!((shown.refused, shown.pages.len()), (None, 1));
    assert_eq!(shown.pages[0].number("pages"), Some(3));
    let chain = shown.pages[0].at;
    assert_eq!(dump.page(chain, &Serial, &|_| ()).unwrap().owners, [Owner::Xattrs(file)]);
    pm.fence(pm.stream(chain.add(64), &[7; 64], Purpose::Other)).end();
    let refused = Dump::new(&pm).inode(file, LIMITS).xattrs.refused.unwrap();
    assert!(refused.contains(&chain.to_string()), "{refused}");
}

/// A page with a file's current bytes was called free.
#[test]
fn second_copies_are_the_files() {
    let fs = open(pool());
    let made = |update, name: &[u8], fill| {
        let ino = make(&fs, Ino::ROOT, name, FileKind::File, 10);
        let update = SetAttr { update: Some(Some(update)), ..SetAttr::default() };
        fs.setattr(&at(11), Node::current(ino), &update).unwrap();
        fs.write(&at(12), ino, 0, &[1; 3 * 4096]).unwrap();
        // Of the second page and the third; where lines share a page, of both.
        fs.write(&at(13), ino, PAGE + 128, &[fill; 64]).unwrap();
        fs.write(&at(14), ino, 2 * PAGE + 128, &[fill; 64]).unwrap();
        ino
    };
    let (paired, slots) = (made(UpdatePolicy::Paired, b"a", 7), made(UpdatePolicy::Lawn, b"b", 8));
    let pm = fs.into_pm();
    let dump = Dump::new(&pm);
    let owners = |fill: u8| {
        let pages = (0..BYTES / PAGE).map(|page| PmAddr::new(0, page * PAGE));
        let holds = pages.filter(|page| {
            let mut bytes = [0; 4096];
            pm.load(*page, &mut bytes).unwrap();
            bytes.as_chunks().0.contains(&[fill; 64])
        });
        holds.map(|page| dump.page(page, &Serial, &|_| ()).unwrap().owners).collect::<Vec<_>>()
    };
    let mut found = owners(7);
    found.sort();
    let partner = |ino, file_page| vec![Owner::Partner { ino, file_page }];
    assert_eq!(found, [partner(paired, 1), partner(paired, 2)]);
    assert_eq!(owners(8), [partner(slots, 1)]);
}

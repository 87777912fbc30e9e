//! The promise: what a power cut once broke stays mended. Each test opens with how it happened; the
//! sequence is the least that showed it, cut in more ways than were needed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "helpers of a test fail as the test does"
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use novale_core::{Ctx, FileKind, Form, Fs, NewInode, Node, Seek, SetAttr, UpdatePolicy};
use novale_lab::campaign::parse_replay;
use novale_lab::clients::{DeathOptions, Points, die_everywhere, settle_once};
use novale_lab::crash::{CrashOptions, Effort, Event, Hardware, LineKey, Recorder, What, explore};
use novale_lab::diff::{
    CoreMachine, CoreOptions, NoSpace, check_opened, compare_run, make_pool, open_pool,
};
use novale_lab::workload::parse_steps;
use novale_layout::{JOURNAL_RECORD_BYTES, PmAddr};
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreKind};

const POOL_BYTES: u64 = 4 << 20;

/// A process that wrote several inodes in a session died or lost power with a create's own line still
/// pending and a write's checksum unmet. Recovery superseded both lines by certificates of one op_seq,
/// was itself cut between the two, and the next one took the certificate for what stands while the
/// loading of the inode took the rejected line: a size without its bytes.
#[test]
fn a_recovery_cut_between_two_certificates_brings_no_rejected_write_back() {
    let steps = parse_steps(
        "create /f kind=directory mode=644 uid=0 gid=0 rdev=0 target=%
         create /f/c kind=file mode=644 uid=0 gid=0 rdev=0 target=%
         write /f/c offset=4101 len=63 fill=266",
    )
    .unwrap();
    for seed in 0..12 {
        let options = CrashOptions {
            from_step: 2,
            effort: Effort { random: 60, ..Effort::default() },
            used_one_in: 0,
            nested_one_in: 1,
            cut_off_one_in: 0,
            many_threads: true,
            seed,
            ..CrashOptions::default()
        };
        if let Err(failure) = explore(&steps, &options) {
            panic!("seed {seed}: {failure}");
        }
    }
}

/// A power cut tore a create's journal record, which recovery took no notice of and left where it was.
/// The next create in the same directory stored its record in the same place, and was torn, too: the one
/// unit that arrived was just what the first one lacked, and the same in both. So the first create was
/// there again, and its name's place held the second one's: the pool did not open.
#[test]
fn a_torn_record_is_not_completed_by_the_next_in_its_place() {
    let pm = Pm::anonymous(&[POOL_BYTES], &PmOptions::default()).unwrap();
    make_pool(&pm, 1).unwrap();
    let (fs, recorder) = opened(&contents(&pm));
    create_recorded(&fs, &recorder, b"a");
    let first = create_recorded(&fs, &recorder, b"b");
    let mut shared = 0;
    for unit in 0..JOURNAL_RECORD_BYTES / 8 {
        let (fs, recorder) = opened(&cut_in_record(&first, |index| index != unit));
        let second = create_recorded(&fs, &recorder, b"c");
        let (fs, _) = opened(&cut_in_record(&second, |index| index == unit));
        check_opened(&fs).unwrap();
        let units = [&first, &second].map(|(_, events)| record_of(events).1.chunks(8).nth(unit));
        shared += u32::from(units[0].is_some() && units[0] == units[1]);
    }
    assert!(shared > 3, "the records have nothing in common");
}

fn contents(pm: &Pm) -> Vec<u8> {
    let mut bytes = vec![0; POOL_BYTES as usize];
    pm.load(PmAddr::new(0, 0), &mut bytes).unwrap();
    bytes
}

/// A pool of these bytes, recovered, in the two-fence form.
fn opened(bytes: &[u8]) -> (Fs, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    let options = PmOptions { observer, ..PmOptions::default() };
    let pm = Pm::anonymous(&[POOL_BYTES], &options).unwrap();
    pm.fence(pm.stream(PmAddr::new(0, 0), bytes, Purpose::Other)).end();
    (open_pool(pm, Form::Two, 1).unwrap(), recorder)
}

/// Makes a file in the root directory: the memory before, and what was stored.
fn create_recorded(fs: &Fs, recorder: &Recorder, name: &[u8]) -> (Vec<u8>, Vec<Event>) {
    let before = contents(fs.pm());
    drop(recorder.take());
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&Ctx { now_ns: 2, hint: 0 }, Node::ROOT, name, &new).unwrap();
    (before, recorder.take())
}

/// Where the record of an operation is stored, and its bytes: the first store after the first fence.
fn record_of(events: &[Event]) -> (PmAddr, &[u8]) {
    let behind = events.iter().skip_while(|event| !matches!(event.what, What::Fence));
    let mut stores = behind.filter_map(|event| match &event.what {
        What::Store { addr, bytes, .. } => Some((*addr, &bytes[..])),
        What::WriteBack { .. } | What::Fence => None,
    });
    stores.next().unwrap()
}

/// What a power cut leaves while an operation's record is under way: all before it, and some of its
/// units.
fn cut_in_record(
    (before, events): &(Vec<u8>, Vec<Event>),
    is_kept: impl Fn(usize) -> bool,
) -> Vec<u8> {
    let mut left = before.clone();
    let mut put = |addr: PmAddr, bytes: &[u8]| {
        let at = addr.byte() as usize;
        left[at..at + bytes.len()].copy_from_slice(bytes);
    };
    for event in events.iter().take_while(|event| !matches!(event.what, What::Fence)) {
        if let What::Store { addr, bytes, .. } = &event.what {
            put(*addr, bytes);
        }
    }
    let (at, record) = record_of(events);
    for (index, unit) in record.chunks(8).enumerate().filter(|(index, _)| is_kept(*index)) {
        put(at.add(index as u64 * 8), unit);
    }
    left
}

/// The first line of a file without a name was stored without a journal record: torn by a power cut, in a
/// number that was never used, it was damage, and the pool did not open. What follows it (a write, a
/// first name) is cut as well, and the number's next use.
#[test]
fn a_file_without_a_name_leaves_no_torn_line_alone() {
    let steps = parse_steps(
        "create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
         unnamed /d slot=1 kind=file mode=644 uid=0 gid=1 rdev=0 target=%
         write @1 offset=100 len=5000 fill=3
         link @1 /d/name
         unnamed /d slot=1 kind=file mode=600 uid=0 gid=1 rdev=0 target=%
         write @1 offset=0 len=10 fill=4
         release slot=1
         create /d/next kind=file mode=644 uid=0 gid=0 rdev=0 target=%",
    )
    .unwrap();
    for (form, seed) in [(Form::Single, 1), (Form::Two, 2), (Form::Auto, 3)] {
        let core = CoreOptions::new(vec![POOL_BYTES], 2, form);
        let effort = Effort { at_stores: true, ..Effort::default() };
        let options = CrashOptions {
            core,
            from_step: 1,
            effort,
            nested_one_in: 40,
            cut_off_one_in: 2,
            seed,
            ..CrashOptions::default()
        };
        if let Err(failure) = explore(&steps, &options) {
            panic!("{form:?}: {failure}");
        }
    }
}

/// A write beyond the end zeroed the dead bytes beyond the old end, and its process died before the
/// fence. The next write beyond the end read zeros, from the cache, left them alone and was
/// acknowledged; then the power went, and the gap held the old bytes again.
#[test]
fn a_gap_that_a_dead_process_zeroed_is_zero_after_the_next_write() {
    let file = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let ctx = |now_ns| Ctx { now_ns, hint: 0 };
    let recorder = Arc::new(Recorder::default());
    let (fs, mut hardware) = fresh(&recorder);
    let ino = fs.create(&ctx(1), Node::ROOT, b"f", &file).unwrap().ino;
    fs.write(&ctx(2), ino, 0, &[7; 4096]).unwrap();
    fs.setattr(&ctx(3), Node::current(ino), &SetAttr { size: Some(63), ..SetAttr::default() })
        .unwrap();
    recorder.take().iter().for_each(|event| drop(hardware.apply(event)));
    fs.write(&ctx(4), ino, 4200, &[8; 8]).unwrap();
    drop(fs);
    let events = recorder.take();
    for died_at in 0..=events.len() {
        let mut memory = hardware.clone();
        for event in &events[..died_at] {
            memory.apply(event);
        }
        drop(memory.forget(None));
        // The next process sees what is in the caches, and makes its own write durable.
        let recorder = Arc::new(Recorder::default());
        let pm = shown(&memory, &recorder);
        let fs = open_pool(pm, Form::Auto, 5).unwrap();
        fs.write(&ctx(6), ino, 5000, &[9; 8]).unwrap();
        drop(fs);
        recorder.take().iter().for_each(|event| drop(memory.apply(event)));
        memory.lose_pending();
        let fs = open_pool(shown(&memory, &recorder), Form::Auto, 7).unwrap();
        let mut bytes = vec![1; 5008];
        assert_eq!(fs.read(&ctx(8), ino, 0, &mut bytes).unwrap(), 5008, "died at {died_at}");
        let gap: Vec<u8> = bytes[63..5000].iter().copied().filter(|byte| *byte == 7).collect();
        assert_eq!(gap.len(), 0, "died behind event {died_at}: old bytes in the gap");
    }
}

/// A process died while it raised the session, between the store of the pool's state line and its
/// fence. The next one saw that line in the cache and stored the slots' lines of the session above it;
/// then the power went. The slots were two sessions ahead of the pool, which no longer opened.
#[test]
fn a_session_that_a_dead_process_began_does_not_part_slots_from_pool() {
    let recorder = Arc::new(Recorder::default());
    let (fs, mut hardware) = fresh(&recorder);
    drop(fs);
    drop(hardware.forget(None));
    drop(open_pool(shown(&hardware, &recorder), Form::Auto, 1).unwrap());
    let dying = recorder.take();
    for died_at in 0..=dying.len() {
        let mut memory = hardware.clone();
        for event in &dying[..died_at] {
            memory.apply(event);
        }
        drop(memory.forget(None));
        drop(open_pool(shown(&memory, &recorder), Form::Auto, 2).unwrap());
        for event in recorder.take() {
            memory.apply(&event);
            let mut cut = memory.clone();
            cut.lose_pending();
            let opened = open_pool(shown(&cut, &Arc::new(Recorder::default())), Form::Auto, 3);
            assert!(opened.is_ok(), "died at {died_at}, cut behind {}: {opened:?}", event.site);
        }
    }
}

/// A client died between its store of the superblock's first copy, which says a feature, and the fence.
/// The next one was the first to use another feature, and stored the replica while that copy was not
/// durable: a power cut tore both, and the pool did not open.
#[test]
fn the_first_superblock_is_durable_before_another_feature_changes_the_replica() {
    let setup = parse_steps("create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%").unwrap();
    let victim = parse_steps("setxattr /f name=user.a mode=any len=10 fill=1").unwrap();
    let then = parse_steps("set / project=4").unwrap();
    let (core, points) = (one_slot(1, Form::Auto), Points::Pool);
    let options = DeathOptions { core, points, stride: 1, first: 0, power: false, seed: 1 };
    let (first, mut cuts, mut died_at) = (LineKey { slot: 0, line: 0 }, 0, 0);
    while let Some(settled) = settle_once(&setup, (&victim[0], died_at), &then, &options).unwrap() {
        let mut memory = settled.before;
        for event in settled.acts.iter().flat_map(|act| &act.events) {
            let is_due = matches!(event.what, What::Fence) && memory.pending().contains_key(&first);
            for unit in (0..8).filter(|_| is_due) {
                // Of each line the same unit arrives, and no other.
                let line =
                    |key: &LineKey| (*key, memory.line_with(*key, |index| index % 8 == unit));
                let lines: Vec<_> = memory.pending().keys().map(line).collect();
                let mut cut = memory.clone();
                cut.lose_pending();
                cut.set_durable(&lines);
                let opened = open_pool(shown(&cut, &Arc::default()), Form::Auto, 3);
                let at = event.site;
                assert!(opened.is_ok(), "died at {died_at}, cut at {at}, {unit}: {opened:?}");
                cuts += 1;
            }
            memory.apply(event);
        }
        died_at += 1;
    }
    assert!(cuts >= 16, "{cuts} cuts after {died_at} deaths");
}

/// The last two steps are in flight together, in so many turns of their stores.
fn flies(text: &str, update: UpdatePolicy) {
    let steps = parse_steps(text).unwrap();
    let effort = Effort { subset_lines_max: 2, data_lines_max: 1, pairs: 1, ..Effort::default() };
    for seed in 0..8 {
        let core = CoreOptions { update, ..one_slot(1, Form::Auto) };
        let from_step = steps.len() - 2;
        let cuts = CrashOptions { core, from_step, effort, seed, ..CrashOptions::default() };
        let options = CrashOptions { clients: 2, used_one_in: 0, nested_one_in: 0, ..cuts };
        if let Err(failure) = explore(&steps, &options) {
            panic!("seed {seed}: {failure}");
        }
    }
}

/// The lab was wrong: a file that is held and that a flight unlinked has its number until it is released,
/// and those in use were compared with what a crash leaves.
#[test]
fn a_held_file_that_a_flight_unlinks_keeps_its_number() {
    flies(
        "create /F kind=file mode=644 uid=0 gid=0 rdev=0 target=%
         hold /F slot=0
         compare
         create /F kind=file mode=644 uid=0 gid=0 rdev=0 target=%
         unlink /F",
        UpdatePolicy::Auto,
    );
}

/// The lab was wrong: with `zcl` a copy is made from a mapping, and what another client writes to that file
/// meanwhile is seen before it is durable, which no order of the two says.
#[test]
fn a_copy_from_a_mapping_flies_alone() {
    flies(
        "create /F kind=file mode=644 uid=0 gid=0 rdev=0 target=%
         create /G kind=file mode=644 uid=0 gid=0 rdev=0 target=%
         write /F offset=0 len=8192 fill=1
         hold /F slot=0
         hold /G slot=1
         compare
         write @0 offset=0 len=8192 fill=2
         copy @0 @1 from=0 to=0 len=8192",
        UpdatePolicy::Zcl,
    );
}

/// A file without a name was written to by the one who held it, and released; another file's write took
/// its page. So the checksum of the first one's newest line held no more, and recovery, cut off while
/// it wrote a certificate there, left that line torn. The older line, without a name as well, was then
/// asked for its own checksum, over the same page: neither line counted, and the pool did not open.
#[test]
fn what_a_nameless_file_held_may_be_in_use_elsewhere() {
    let steps = parse_steps(
        "create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
         hold /f slot=2
         unlink /f
         create /b kind=file mode=644 uid=0 gid=0 rdev=0 target=%
         create /f kind=symlink mode=644 uid=0 gid=0 rdev=0 target=v
         append @2 len=8128 fill=25
         write @2 offset=0 len=1 fill=1
         release slot=2
         write /b offset=0 len=1 fill=1",
    )
    .unwrap();
    let options = CrashOptions {
        from_step: 8,
        effort: Effort { subset_lines_max: 5, data_lines_max: 3, ..Effort::default() },
        used_one_in: 0,
        nested_one_in: 1,
        cut_off_one_in: 0,
        ..CrashOptions::default()
    };
    if let Err(failure) = explore(&steps, &options) {
        panic!("{failure}");
    }
}

/// A seek for data or a hole in a symlink, a directory or a device was answered, as if these had bytes.
#[test]
fn what_is_no_file_has_neither_data_nor_holes() {
    let (fs, _) = fresh(&Arc::new(Recorder::default()));
    let ctx = Ctx { now_ns: 1, hint: 0 };
    for (name, kind) in
        [("s", FileKind::Symlink), ("d", FileKind::Directory), ("c", FileKind::CharDevice)]
    {
        let target: &[u8] = if kind == FileKind::Symlink { b"target" } else { b"" };
        let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target };
        let ino = fs.create(&ctx, Node::ROOT, name.as_bytes(), &new).unwrap().ino;
        for what in [Seek::Data, Seek::Hole] {
            assert!(fs.seek(ino, 0, what).is_err(), "{name}");
        }
    }
}

/// An operation whose entries filled a log page of its own streamed that page's header and stored the
/// word in it that names the next page over it before any fence: which of the two would last was left to
/// the machine.
#[test]
fn which_store_to_a_filled_log_page_comes_last() {
    let recorder = Arc::new(Recorder::default());
    let (fs, _) = fresh(&recorder);
    let ctx = Ctx { now_ns: 1, hint: 0 };
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let create = |name: &str| fs.create(&ctx, Node::ROOT, name.as_bytes(), &new).map(|new| new.ino);
    let big = create("big").unwrap();
    let one = |index: usize| format!("{index}");
    let mut count = 0;
    while create(&one(count)).is_ok_and(|ino| fs.write(&ctx, ino, 0, &[1; 4096]).is_ok()) {
        count += 1;
    }
    for index in (0..count).step_by(2) {
        fs.unlink(&ctx, Node::ROOT, one(index).as_bytes()).unwrap();
    }
    drop(recorder.take());
    fs.write(&ctx, big, 0, &vec![2; 200 * 4096]).unwrap();
    let (mut streamed, mut linked) = (BTreeSet::new(), 0);
    for event in recorder.take() {
        match &event.what {
            What::Fence => streamed.clear(),
            What::Store { kind: StoreKind::Streaming, .. } => streamed.extend(event.stored_lines()),
            What::Store { .. } => {
                linked += usize::from(event.site.file().ends_with("log/mod.rs"));
                let both = event.stored_lines().find(|line| streamed.contains(line));
                assert_eq!(both, None, "stored over a line that is streamed, at {}", event.site);
            }
            What::WriteBack { .. } => {}
        }
    }
    assert!(linked > 0, "no page was linked");
}

/// Steps of which those from `from_step` on are cut in many ways, and each recovery too.
fn survives(text: &str, from_step: usize, core: CoreOptions, many_threads: bool) {
    let steps = parse_steps(text).unwrap();
    let options = CrashOptions {
        core,
        from_step,
        effort: Effort { subset_lines_max: 8, random: 20, ..Effort::default() },
        used_one_in: 0,
        nested_one_in: 1,
        cut_off_one_in: 0,
        many_threads,
        ..CrashOptions::default()
    };
    if let Err(failure) = explore(&steps, &options) {
        panic!("{failure}");
    }
}

fn one_slot(lanes: u32, form: Form) -> CoreOptions {
    CoreOptions::new(vec![POOL_BYTES], lanes, form)
}

const MADE_TWICE: &str = "
    create /d kind=symlink mode=644 uid=0 gid=0 rdev=0 target=e
    unlink /d
    create /d kind=file mode=644 uid=0 gid=0 rdev=0 target=%";

/// A journal record's checksum ran over its lines with their own checksums after them, where a CRC is
/// the same for any line. Of a record that lay over an older one only the middle arrived: it passed, and
/// a name led to an inode that was not there.
#[test]
fn a_record_of_which_a_part_arrived_is_refused() {
    survives(MADE_TWICE, 2, one_slot(1, Form::Two), false);
}

/// The record of an unlink was judged by the identity of the inode's next life, whose line arrived
/// alone: the unlink was lost, or the log that it had ended was read and called damaged.
#[test]
fn an_unlink_is_judged_by_the_life_that_it_ended() {
    survives(MADE_TWICE, 2, one_slot(2, Form::Auto), true);
}

/// Recovery stored certificates before it erased the record that it had rejected, and was cut off in
/// between. The next one took a certificate, of the record's own op_seq, for the proof that the record
/// had been committed: half of a create came back.
#[test]
fn a_record_stays_rejected_when_its_recovery_is_cut_off() {
    let text = "
        create /d kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        rename /d /e mode=replace
        unlink /e
        create /b kind=symlink mode=777 uid=1 gid=2 rdev=0 target=p*4061";
    survives(text, 3, one_slot(2, Form::Auto), false);
}

/// Recovery erased a rejected record, and then wrote a certificate for the inode that the record would
/// have made. Cut off there it left a torn line that nothing explained any more, and the pool did not
/// open.
#[test]
fn an_inode_that_was_never_made_stays_blank() {
    let text = "
        create /b kind=directory mode=644 uid=0 gid=0 rdev=0 target=%
        create /b/d kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        create /a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        write /a offset=0 len=100 fill=1
        rename /a /b/a mode=replace
        create /b/c kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
    survives(text, 5, one_slot(2, Form::Auto), false);
}

/// A crash tore both of an inode's lines while a record in the journal stood for it. Recovery wrote one
/// of them anew, and the other was damage to the one who loaded the inode.
#[test]
fn both_lines_that_a_crash_tore_are_written_anew() {
    let text = "
        create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        write /f offset=0 len=63 fill=2";
    survives(text, 1, one_slot(1, Form::Auto), true);
}

/// A client had given the pages of a removed file back and said that its operation was done but for its
/// locks, when it was killed. Who settled for it found an inode without names, took its pages to be given
/// still, walked a log that may have been somebody else's by then, and freed them again.
#[test]
fn a_removed_files_pages_are_freed_once_when_its_client_dies_behind_that() {
    let text = "
        create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        write /f offset=0 len=20000 fill=1
        unlink /f";
    settles(text, 1);
}

/// A client noted what it was going to free, how far it had come, and was killed. Who settled for it
/// went on after so many extents of the list, which came back with the newest ones in front: some
/// pages were freed again, others never.
#[test]
fn a_file_in_many_pieces_is_freed_once_when_its_client_dies_in_the_middle() {
    let piece = |n| format!("write /f offset={} len=4096 fill=1\n", n * 7 % 80 * 8192);
    let pieces: String = (0..80).map(piece).collect();
    let file = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
    settles(&format!("create /f {file}\n{pieces}unlink /f"), 50);
}

/// A create's dentry did not fit into what was left of a log page, whose last line was to be blank. All
/// but that line reached the memory. What lay there was a valid entry and not older than the one before
/// it, as a rejected operation leaves one; no checksum spoke of a blank line, so the create stood,
/// and the old entry with it. A page says where it ends since.
#[test]
fn what_lies_behind_the_end_of_a_log_page_is_not_read() {
    let case = parse_replay(include_str!("found/blank_line.txt")).unwrap();
    if let Err(failure) = explore(&case.steps, &case.options) {
        panic!("{failure}");
    }
}

/// A process died with stores to its mapping in the caches. The next write's undo log held a part of one
/// of these units, and came to count; power failed. Recovery brought that part back, and not the rest.
#[test]
fn an_undo_log_brings_no_unit_back_in_part() {
    let case = parse_replay(include_str!("found/unit_in_part.txt")).unwrap();
    if let Err(failure) = explore(&case.steps, &case.options) {
        panic!("{failure}");
    }
}

/// A collapse that its range forbids had taken the file's capabilities before it looked at the range.
#[test]
fn a_refused_collapse_leaves_capabilities_alone() {
    let text = "
        create /a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        setxattr /a name=security.capability mode=any len=0 fill=5
        collapse /a offset=0 len=1";
    survives(text, 2, one_slot(1, Form::Two), false);
}

/// What changes contents without writing had taken the capabilities away in a commit of its own before:
/// a crash between the two left the file without them, and nothing else changed.
#[test]
fn capabilities_go_in_the_commit_that_makes_them_go() {
    for change in [
        "zero /a offset=0 len=1",
        "allocate /a extend=1 offset=4096 len=4096",
        "punch /a offset=100 len=5000",
        "punch /a offset=20000 len=1",
        "collapse /a offset=0 len=4096",
        "insert /a offset=4096 len=4096",
    ] {
        let text = format!(
            "
            create /a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
            write /a offset=0 len=9000 fill=1
            setxattr /a name=security.capability mode=any len=20 fill=5
            setxattr /a name=user.a mode=any len=5000 fill=6
            {change}"
        );
        survives(&text, 4, one_slot(1, Form::Auto), false);
        survives(&text, 4, one_slot(1, Form::Two), true);
    }
}

/// A mapped file that grows takes back the pages that were cut off before, in a commit of its own. That
/// one had changed the ctime, and taken capabilities away: a crash between the two left the file so.
#[test]
fn pages_that_were_cut_off_come_back_unseen() {
    for change in
        ["set /a size=8000", "write /a offset=7000 len=1 fill=2", "append /a len=9000 fill=2"]
    {
        let text = format!(
            "
            create /a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
            write /a offset=0 len=9000 fill=1
            setxattr /a name=user.a mode=any len=5000 fill=6
            map /a slot=1
            set /a size=0
            setxattr /a name=security.capability mode=any len=20 fill=5
            {change}"
        );
        survives(&text, 6, one_slot(1, Form::Auto), false);
        survives(&text, 6, one_slot(1, Form::Two), true);
    }
}

/// A file was reserved beyond its end, in pages that were mapped when it was longer: what was stored
/// there since showed when it grew.
#[test]
fn bytes_stored_behind_the_end_are_zeros_when_the_file_grows() {
    for growth in
        ["write /a offset=8195 len=1 fill=1", "set /a size=9000", "zero /a offset=9000 len=1"]
    {
        let text = format!(
            "
            create /a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
            write /a offset=0 len=9000 fill=1
            map /a slot=1
            store @1 offset=0 len=9000 fill=2
            set /a size=100
            allocate /a extend=0 offset=4096 len=8192
            store @1 offset=0 len=9000 fill=3
            {growth}
            compare"
        );
        let mut machine = CoreMachine::new(&one_slot(1, Form::Auto)).unwrap();
        if let Err(why) = compare_run(&mut machine, &parse_steps(&text).unwrap(), NoSpace::Wrong) {
            panic!("{why}");
        }
    }
}

/// The last step's client dies before one in so many stores to the arena; another one settles for it.
fn settles(text: &str, stride: usize) {
    let mut setup = parse_steps(text).unwrap();
    let victim = setup.pop().unwrap();
    let core = CoreOptions::new(vec![POOL_BYTES], 1, Form::Auto);
    let options =
        DeathOptions { core, points: Points::Arena, stride, first: 0, power: false, seed: 1 };
    if let Err(why) = die_everywhere(&setup, &victim, &options) {
        panic!("{why}");
    }
}

fn fresh(recorder: &Arc<Recorder>) -> (Fs, Hardware) {
    let mut hardware = Hardware::zeroed(&[POOL_BYTES]);
    let pm = memory(recorder);
    make_pool(&pm, 1).unwrap();
    let fs = open_pool(pm, Form::Auto, 0).unwrap();
    recorder.take().iter().for_each(|event| drop(hardware.apply(event)));
    (fs, hardware)
}

fn memory(recorder: &Arc<Recorder>) -> Pm {
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    Pm::anonymous(&[POOL_BYTES], &PmOptions { observer, ..PmOptions::default() }).unwrap()
}

/// A pool with all that the memory shows, durable or not.
fn shown(hardware: &Hardware, recorder: &Arc<Recorder>) -> Pm {
    let pm = memory(recorder);
    recorder.unheard(|| hardware.show(&pm));
    pm
}

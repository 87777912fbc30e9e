//! What is synced as often as it is written goes past the buffer, and what is written again before does not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test panics and tells")]

mod support;

use novale_core::{
    BufferRules, Buffering, Ctx, FileKind, Form, Fs, Ino, Mode, NewInode, Node, OpenOptions,
    WriteBack,
};
use support::{MB, open_as, pool, verify};

const SECOND_NS: i64 = 1_000_000_000;

fn options() -> OpenOptions {
    let mode = Some(Mode::Buffered);
    OpenOptions { form: Form::Auto, mode, now_ns: 2, ..OpenOptions::default() }
}

fn at(seconds: i64) -> Ctx {
    Ctx { now_ns: (1 + seconds) * SECOND_NS, hint: 0 }
}

fn create(fs: &Fs, name: &str, ctx: &Ctx) -> Ino {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(ctx, Node::ROOT, name.as_bytes(), &new).unwrap().ino
}

fn blocks(fs: &Fs) -> u64 {
    fs.buffer_use().unwrap().blocks
}

fn counted(fs: &Fs, what: Buffering) -> [u64; 2] {
    what.counts(&fs.pm().counters())
}

#[test]
fn a_file_that_is_synced_after_each_write_is_written_directly() {
    let fs = open_as(pool(&[16 * MB], 2), &options());
    let ino = create(&fs, "f", &at(0));
    fs.write(&at(0), ino, 0, &[1; 4096]).unwrap();
    assert_eq!(blocks(&fs), 1);
    fs.sync(&at(0), ino).unwrap();
    for second in 1..4 {
        fs.write(&at(second), ino, 0, &[2; 4096]).unwrap();
        assert_eq!(blocks(&fs), 0);
        fs.sync(&at(second), ino).unwrap();
    }
    assert_eq!(counted(&fs, Buffering::Eager), [3, 192]);
    assert_eq!(counted(&fs, Buffering::Verdict), [0, 4]);
    // The first sync of a new file was not foreseen.
    assert_eq!(counted(&fs, Buffering::Foretold), [4, 3]);
    assert_eq!(counted(&fs, Buffering::FirstForetold), [1, 0]);
    // What went past the buffer is durable by itself.
    fs.append(&at(4), ino, &[3; 100]).unwrap();
    let fs = open_as(fs.into_pm(), &options());
    assert_eq!(fs.getattr(ino).unwrap().size, 4196);
    fs.close().unwrap();
    verify(&fs.into_pm());
}

#[test]
fn without_syncs_it_is_buffered_again() {
    let fs = open_as(pool(&[16 * MB], 2), &options());
    let ino = create(&fs, "f", &at(0));
    fs.write(&at(0), ino, 0, &[1; 4096]).unwrap();
    fs.sync(&at(0), ino).unwrap();
    fs.write(&at(4), ino, 0, &[2; 4096]).unwrap();
    assert_eq!(blocks(&fs), 0);
    fs.write(&at(6), ino, 0, &[3; 4096]).unwrap();
    assert_eq!(blocks(&fs), 1);
}

#[test]
fn a_file_that_is_written_again_before_each_sync_stays_in_the_buffer() {
    let fs = open_as(pool(&[16 * MB], 2), &options());
    let ino = create(&fs, "f", &at(0));
    for second in 0..3 {
        for _ in 0..100 {
            fs.write(&at(second), ino, 0, &[1; 64]).unwrap();
        }
        assert_eq!(blocks(&fs), 1);
        fs.sync(&at(second), ino).unwrap();
    }
    assert_eq!(counted(&fs, Buffering::Verdict), [3, 0]);
    assert_eq!(counted(&fs, Buffering::Hit), [297, 297]);
    assert_eq!(counted(&fs, Buffering::WrittenBack), [3, 3]);
    assert_eq!(counted(&fs, Buffering::Eager), [0, 0]);
}

/// The ghost buffer tells what a sync would have had to flush, had the file not been written directly.
#[test]
fn an_eager_file_becomes_lazy_when_its_writes_change() {
    let fs = open_as(pool(&[16 * MB], 2), &options());
    let ino = create(&fs, "f", &at(0));
    fs.write(&at(0), ino, 0, &[1; 4096]).unwrap();
    fs.sync(&at(0), ino).unwrap();
    for _ in 0..100 {
        fs.write(&at(1), ino, 64, &[1; 64]).unwrap();
    }
    assert_eq!(blocks(&fs), 0);
    fs.sync(&at(1), ino).unwrap();
    assert_eq!(counted(&fs, Buffering::Verdict), [1, 1]);
    fs.write(&at(2), ino, 64, &[1; 64]).unwrap();
    assert_eq!(blocks(&fs), 1);
}

/// Clocks tick every few ms. Verdicts within a tick were told apart by 8 bits: 256 syncs later a page met
/// what the ghost buffer had of it then, had no new line, and the file was taken for one to be buffered.
#[test]
fn syncs_within_a_tick_are_told_apart() {
    let fs = open_as(pool(&[16 * MB], 2), &options());
    let ino = create(&fs, "f", &at(0));
    for sync in 0..2000 {
        fs.write(&at(0), ino, sync % 64 * 4096, &[1; 64]).unwrap();
        fs.sync(&at(0), ino).unwrap();
    }
    assert_eq!(counted(&fs, Buffering::Verdict), [0, 2000]);
    assert_eq!(counted(&fs, Buffering::Eager), [1999, 1999]);
}

#[test]
fn new_files_begin_as_those_before_them_did() {
    let fs = open_as(pool(&[16 * MB], 2), &options());
    let file = |index: i32, is_synced: bool| {
        let ino = create(&fs, &format!("f{index}"), &at(0));
        fs.append(&at(0), ino, &[1; 4096]).unwrap();
        let is_buffered = blocks(&fs) > 0;
        if is_synced {
            fs.sync(&at(0), ino).unwrap();
        } else {
            fs.unlink(&at(0), Node::ROOT, format!("f{index}").as_bytes()).unwrap();
        }
        is_buffered
    };
    let buffered: Vec<bool> = (0..20).map(|index| file(index, true)).collect();
    assert!(buffered[0] && !buffered[19], "{buffered:?}");
    assert!(buffered.is_sorted_by(|before, after| before >= after), "{buffered:?}");
    // Files that are not synced are worth the buffer.
    let buffered: Vec<bool> = (20..60).map(|index| file(index, false)).collect();
    assert!(!buffered[0] && buffered[39], "{buffered:?}");
}

/// What was written back in the background is no sync's: counted with what came after it, it had the next sync
/// take a file for one that gains by the buffer.
#[test]
fn what_was_written_back_is_not_counted_for_a_later_sync() {
    let fs = open_as(pool(&[16 * MB], 2), &options());
    let ino = create(&fs, "f", &at(0));
    for _ in 0..100 {
        fs.write(&at(0), ino, 0, &[1; 4096]).unwrap();
    }
    let all = WriteBack { free_percent: 100, since_before_ns: i64::MAX, waits: true };
    assert_eq!(fs.write_back(&at(0), all).unwrap().files, 1);
    fs.sync(&at(0), ino).unwrap();
    assert_eq!(counted(&fs, Buffering::Verdict), [0, 0]);
    fs.write(&at(0), ino, 0, &[1; 4096]).unwrap();
    fs.sync(&at(0), ino).unwrap();
    assert_eq!(counted(&fs, Buffering::Verdict), [0, 1]);
}

#[test]
fn what_is_to_be_durable_goes_directly_behind_what_is_buffered() {
    let fs = open_as(pool(&[16 * MB], 2), &options());
    let ino = create(&fs, "f", &at(0));
    fs.write(&at(0), ino, 0, &[1; 4096]).unwrap();
    fs.write_durable(&at(0), ino, Some(100), &[2; 50]).unwrap();
    assert_eq!(fs.write_durable(&at(0), ino, None, &[3; 50]).unwrap(), 4096);
    assert_eq!(blocks(&fs), 0);
    let fs = open_as(fs.into_pm(), &options());
    let mut bytes = [0; 5000];
    assert_eq!(fs.read(&at(1), ino, 0, &mut bytes).unwrap(), 4146);
    let expected = [&[1; 100][..], &[2; 50], &[1; 3946], &[3; 50]].concat();
    assert_eq!(bytes[..4146], expected[..]);
}

#[test]
fn without_the_model_everything_is_buffered() {
    let buffer_rules = BufferRules { has_model: false, ..BufferRules::default() };
    let fs = open_as(pool(&[16 * MB], 2), &OpenOptions { buffer_rules, ..options() });
    let ino = create(&fs, "f", &at(0));
    for _ in 0..3 {
        fs.write(&at(0), ino, 0, &[1; 4096]).unwrap();
        assert_eq!(blocks(&fs), 1);
        fs.sync(&at(0), ino).unwrap();
    }
}

/// A buffer of whole pages, for comparison: what a write does not cover is fetched, and flushed with it.
/// A log or a copy that is longer than the buffer: by the time that the buffer is full of it, most of it has been
/// written back.
#[test]
fn a_file_that_outgrows_the_buffer_goes_past_it() {
    let options = OpenOptions { buffer_bytes: Some(64 * (4096 + 64)), ..options() };
    let fs = open_as(pool(&[64 * MB], 2), &options);
    let [log, short, held] = ["log", "short", "held"].map(|name| create(&fs, name, &at(0)));
    let piece = vec![1; 8 * 4096];
    for _ in 0..6 {
        fs.append(&at(0), short, &piece).unwrap();
    }
    for _ in 0..8 {
        fs.append(&at(0), log, &piece).unwrap();
    }
    assert_eq!(counted(&fs, Buffering::Eager), [0, 0]);
    // The next one that finds the buffer full is made directly, as are those behind it.
    for _ in 0..20 {
        fs.append(&at(1), log, &piece).unwrap();
    }
    let [eager, _] = counted(&fs, Buffering::Eager);
    assert!((10..20).contains(&eager), "{eager}");
    let size = fs.getattr(log).unwrap().size;
    // What is written over may be written over again.
    fs.write(&at(9), log, 0, &piece).unwrap();
    fs.append(&at(9), held, &piece).unwrap();
    assert_eq!((counted(&fs, Buffering::Eager)[0], blocks(&fs) >= 16), (eager, true));
    let fs = open_as(fs.into_pm(), &options);
    // The part of it that was overwritten is lost alone.
    assert_eq!((fs.getattr(log).unwrap().size, fs.getattr(held).unwrap().size), (size, 0));
    fs.close().unwrap();
    verify(&fs.into_pm());
}

#[test]
fn blocks_may_be_filled_whole() {
    for (by_lines, fetched, flushed) in [(true, 2, 2), (false, 64, 64)] {
        let buffer_rules = BufferRules { by_lines, ..BufferRules::default() };
        let fs = open_as(pool(&[16 * MB], 2), &OpenOptions { buffer_rules, ..options() });
        let ino = create(&fs, "f", &at(0));
        fs.write_durable(&at(0), ino, Some(0), &[1; 4096]).unwrap();
        fs.write(&at(0), ino, 100, &[2; 70]).unwrap();
        let mut bytes = [0; 4096];
        assert_eq!(fs.read(&at(0), ino, 0, &mut bytes).unwrap(), 4096);
        let expected = [&[1; 100][..], &[2; 70], &[1; 3926]].concat();
        assert_eq!(bytes[..], expected[..]);
        fs.sync(&at(0), ino).unwrap();
        assert_eq!(counted(&fs, Buffering::Fetched)[1], fetched);
        assert_eq!(counted(&fs, Buffering::WrittenBack)[1], flushed);
        assert_eq!(fs.read(&at(0), ino, 0, &mut bytes).unwrap(), 4096);
        assert_eq!(bytes[..], expected[..]);
    }
}

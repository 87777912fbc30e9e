//! The promise: what clients that were all killed had promised is there after a power cut while the next one
//! ends their session, and all that they had only buffered once it has been ended.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test panics and tells"
)]

#[path = "../../core/tests/support/stop.rs"]
mod stop;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use novale_arena::{Arena, ClientInfo, PidInfo};
use novale_core::{
    BufferRules, Ctx, FileKind, Form, Fs, Ino, Mode, NewInode, Node, OpenOptions, Serial,
};
use novale_lab::crash::{Effort, Hardware, Recorder, What, images};
use novale_lab::diff::{check_opened, make_pool, open_pool};
use novale_lab::pool_file::PoolFile;
use novale_pm::{Both, Observer, Pm, PmOptions, SlotLock};
use stop::StopAt;

const CTX: Ctx = Ctx { now_ns: 10, hint: 0 };
const SLOT: u64 = 4 << 20;
/// When the process of the client began that dies, and that of the one which ends its session.
const DEAD: u64 = u64::MAX;
const ENDS: u64 = DEAD - 1;
/// Images of a cut that are opened.
const IMAGES_AT_A_FENCE: usize = 6;

fn map(pool: &PoolFile, observer: Arc<dyn Observer>) -> Pm {
    let options =
        PmOptions { lock: SlotLock::Held, observer: Some(observer), ..PmOptions::default() };
    pool.open(&options).unwrap()
}

fn create(fs: &Fs, name: &str) -> Ino {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&CTX, Node::ROOT, name.as_bytes(), &new).unwrap().ino
}

fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(fs.getattr(ino).unwrap().size).unwrap()];
    fs.read(&CTX, ino, 0, &mut bytes).unwrap();
    bytes
}

/// The states that each of two files may have, the newest last.
fn states() -> [Vec<Vec<u8>>; 2] {
    let synced = [&[2; 100][..], &[1; 4900]].concat();
    let last = [&[2; 100][..], &[3; 5000]].concat();
    [vec![synced, last], vec![vec![], vec![4; 9000]]]
}

/// What the client does before its last call, in which it is killed: one of two files is synced.
fn live(fs: &Fs, files: [Ino; 2]) {
    fs.write(&CTX, files[0], 0, &[1; 5000]).unwrap();
    fs.sync(&CTX, files[0]).unwrap();
    fs.write_durable(&CTX, files[0], Some(0), &[2; 100]).unwrap();
    fs.write(&CTX, files[0], 100, &[3; 5000]).unwrap();
    fs.write(&CTX, files[1], 0, &[4; 9000]).unwrap();
}

/// A pool with a session that ended by a death, and its memory as that has left it.
struct Left {
    pool: PoolFile,
    recorder: Arc<Recorder>,
    hardware: Hardware,
    arena: Arena,
    files: [Ino; 2],
    /// The client came through.
    is_done: bool,
}

fn left_by_death(event: u64) -> Left {
    let (pool, recorder) = (PoolFile::zeroed(&[SLOT]).unwrap(), Arc::new(Recorder::default()));
    make_pool(&map(&pool, recorder.clone()), 1).unwrap();
    let arena = Arena::anonymous(64 << 20).unwrap();
    let lives = Arc::new(AtomicU64::new(DEAD));
    let probe = lives.clone();
    let is_alive =
        move |client: &ClientInfo| client.process.start_time == probe.load(Ordering::SeqCst);
    assert!(arena.set_alive_probe(Box::new(is_alive)));
    let buffer_rules = BufferRules { has_model: false, ..BufferRules::default() };
    let options = OpenOptions {
        form: Form::Auto,
        mode: Some(Mode::Buffered),
        now_ns: 2,
        buffer_rules,
        ..OpenOptions::default()
    };
    let pm = map(&pool, recorder.clone());
    let first = Fs::open(pm, arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let stop = StopAt::new(u64::MAX);
    let dying = Arc::new(Both(stop.clone(), recorder.clone()));
    let process = PidInfo { start_time: DEAD, ..PidInfo::current() };
    let options = OpenOptions::of_arena(&arena);
    let dead = Fs::attach(map(&pool, dying), &arena, &options, process).unwrap();
    let files = [create(&first, "f"), create(&first, "g")];
    live(&dead, files);
    first.close().unwrap();
    stop.set(event);
    let end = std::thread::spawn(move || {
        // It is killed: nothing is closed.
        let dead = std::mem::ManuallyDrop::new(dead);
        dead.sync_all(&CTX).unwrap();
    });
    let is_done = !stop.stops(&end);
    if is_done {
        end.join().unwrap();
    }
    lives.store(ENDS, Ordering::SeqCst);
    let mut hardware = Hardware::zeroed(&[SLOT]);
    for event in recorder.take() {
        hardware.apply(&event);
    }
    // No fence of its thread comes any more.
    hardware.forget(None);
    Left { pool, recorder, hardware, arena, files, is_done }
}

/// Opens what a cut has left; each file is in a state that is allowed, with all of `is_all` in the last.
fn judge(left: &[Vec<u8>], files: [Ino; 2], is_all: bool, place: &str) {
    let pool = PoolFile::zeroed(&[SLOT]).unwrap();
    pool.put(0, 0, &left[0]).unwrap();
    let pm = pool.open(&PmOptions::default()).unwrap();
    let fs = open_pool(pm, Form::Auto, 20).unwrap_or_else(|why| panic!("{place}: {why}"));
    check_opened(&fs).unwrap_or_else(|why| panic!("{place}: {why}"));
    for (ino, states) in files.into_iter().zip(states()) {
        let is = contents(&fs, ino);
        let allowed = if is_all { &states[states.len() - 1..] } else { &states };
        assert!(allowed.contains(&is), "{place}: {ino:?} has {} bytes", is.len());
    }
}

#[test]
fn at_every_fence_of_its_ending() {
    let mut random = Rng::with_seed(1);
    let (mut deaths, mut fences) = (0, 0);
    for event in 0.. {
        let Left { pool, recorder, mut hardware, arena, files, is_done } = left_by_death(event);
        let process = PidInfo { start_time: ENDS, ..PidInfo::current() };
        let pm = map(&pool, recorder.clone());
        assert!(Fs::end_session_of_dead(pm, &arena, 11, process).unwrap());
        for event in recorder.take() {
            if matches!(event.what, What::Fence) && !hardware.pending().is_empty() {
                fences += 1;
                let mut some = images(&hardware, Effort::default(), &mut random);
                random.shuffle(&mut some);
                for image in some.into_iter().take(IMAGES_AT_A_FENCE) {
                    let left = hardware.after_cut(&image.lines).durable_copy();
                    let place = format!("death {deaths}, fence {fences}, keeping {}", image.choice);
                    judge(&left, files, false, &place);
                }
            }
            hardware.apply(&event);
        }
        hardware.lose_pending();
        judge(&hardware.durable_copy(), files, true, &format!("behind the end, death {deaths}"));
        if is_done {
            assert!(deaths > 3 && fences > 4 * deaths, "{deaths} deaths, {fences} fences");
            return;
        }
        deaths += 1;
    }
}

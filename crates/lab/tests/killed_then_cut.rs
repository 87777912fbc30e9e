//! The promise holds for a process that is killed, and for a power cut after its recovery: what
//! recovery accepted is durable, and what an operation cut off left behind a log's tail stays dead.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::wildcard_imports,
    clippy::cast_possible_truncation,
    reason = "a test panics and tells"
)]

use std::sync::Arc;

use novale_core::*;
use novale_lab::crash::*;
use novale_lab::diff::{check_opened, make_pool, open_pool};
use novale_lab::pool_file::PoolFile;
use novale_layout::LogLink;
use novale_pm::{Observer, Pm, PmOptions, Purpose};

const MB: u64 = 1 << 20;

fn pm(pool: &PoolFile, recorder: &Arc<Recorder>) -> Pm {
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    pool.open(&PmOptions { observer, ..PmOptions::default() }).unwrap()
}
fn ctx(now_ns: i64) -> Ctx {
    Ctx { now_ns, hint: 0 }
}
fn new(kind: FileKind) -> NewInode<'static> {
    NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" }
}

struct Lab {
    pool: PoolFile,
    recorder: Arc<Recorder>,
    hardware: Hardware,
    form: Form,
}

impl Lab {
    fn new(form: Form) -> Self {
        let lens = [2 * MB];
        let recorder = Arc::new(Recorder::default());
        let pool = PoolFile::zeroed(&lens).unwrap();
        make_pool(&pm(&pool, &recorder), 1).unwrap();
        let mut hardware = Hardware::zeroed(&lens);
        for event in recorder.take() {
            hardware.apply(&event);
        }
        Self { pool, recorder, hardware, form }
    }
    fn open(&mut self) -> Fs {
        let fs = open_pool(pm(&self.pool, &self.recorder), self.form, 5).unwrap();
        self.settle();
        fs
    }
    fn settle(&mut self) {
        for event in self.recorder.take() {
            self.hardware.apply(&event);
        }
    }
    /// Memory as a power cut leaves it: pending lines as `keep` says, all else durable.
    fn cut(&mut self, hardware: &Hardware, keep: &dyn Fn(&LineKey, &[Pending]) -> bool) {
        let mut bytes = hardware.durable()[0].clone();
        for (key, stores) in hardware.pending() {
            if keep(key, stores) {
                let line = hardware.line_with(*key, |_| true);
                let at = (key.line * 64) as usize;
                bytes[at..at + 64].copy_from_slice(&line);
            }
        }
        self.pool = PoolFile::zeroed(&[bytes.len() as u64]).unwrap();
        self.pool.put(0, 0, &bytes).unwrap();
        self.hardware = Hardware::with(vec![bytes]);
        self.recorder = Arc::new(Recorder::default());
    }
}

fn tree(fs: &Fs) -> Vec<String> {
    let mut all = Vec::new();
    let mut dirs = vec![(Ino::ROOT, String::new())];
    while let Some((dir, path)) = dirs.pop() {
        let mut list = Vec::new();
        fs.readdir(&ctx(0), Node::current(dir), 0, &mut |e| {
            list.push((String::from_utf8_lossy(e.name).into_owned(), e.ino, e.kind));
            true
        })
        .unwrap();
        for (name, ino, kind) in list {
            let size = fs.getattr(ino).map(|a| a.size).map_err(|e| e.to_string());
            all.push(format!(
                "{path}/{} {kind:?} {size:?}",
                if name.len() > 20 { format!("{}..", &name[..5]) } else { name.clone() }
            ));
            if kind == FileKind::Directory {
                dirs.push((ino, format!("{path}/{name}")));
            }
        }
    }
    all.sort();
    all
}

/// The word that links a log page to the next: where it lies, in the slot's bytes or a line of them.
fn link_at(bytes: &[u8], at: usize) -> LogLink {
    LogLink::from_raw(u64::from_le_bytes(bytes[at + 24..at + 32].try_into().unwrap()))
}

/// A create that did not commit had linked a page behind an earlier tail. A later one links the same page,
/// and its word is lost: what was committed in between lies behind the end that the older word says.
#[test]
fn a_lost_link_skips_no_entry() {
    let mut lab = Lab::new(Form::Auto);
    let fs = lab.open();
    let file = new(FileKind::File);
    // A line of the root's log each.
    for index in 0..59 {
        fs.create(&ctx(1), Node::ROOT, format!("x{index}").as_bytes(), &file).unwrap();
    }
    // Sessions take pages alike from here on.
    drop(fs);
    let fs = lab.open();
    // Five lines, of which four are left: all of it arrives but the record.
    fs.create(&ctx(2), Node::ROOT, &[b'a'; 255], &file).unwrap();
    let hardware = up_to_a_fence(&lab);
    drop(fs);
    lab.cut(&hardware, &|_, stores| stores.iter().all(|s| s.purpose == Purpose::Log));
    let fs = lab.open();
    assert!(fs.lookup(&ctx(3), Node::ROOT, &[b'a'; 255]).is_err());
    for name in [b"b", b"c"] {
        fs.create(&ctx(3), Node::ROOT, name, &file).unwrap();
    }
    lab.settle();
    let before = tree(&fs);
    fs.create(&ctx(4), Node::ROOT, &[b'd'; 255], &file).unwrap();
    let hardware = up_to_a_fence(&lab);
    drop(fs);
    let links: Vec<_> = hardware
        .pending()
        .iter()
        .filter(|(key, stores)| {
            key.line % 64 == 0 && stores.iter().all(|s| s.purpose == Purpose::Log)
        })
        .map(|(key, _)| (*key, link_at(&hardware.line_with(*key, |_| true), 0)))
        .filter(|(_, link)| *link != LogLink::NONE)
        .collect();
    let [(lost, newer)] = links[..] else { panic!("{links:?}") };
    let older = link_at(&hardware.durable()[usize::from(lost.slot)], lost.line as usize * 64);
    assert_eq!((older.lines(), newer.lines()), (Some(59), Some(61)));
    assert_eq!(older.next(), newer.next(), "another page: this shows nothing");
    lab.cut(&hardware, &|key, _| *key != lost);
    let fs = open_pool(pm(&lab.pool, &lab.recorder), lab.form, 5).unwrap();
    assert_eq!(tree(&fs), before);
    check_opened(&fs).unwrap();
}

/// The memory at the next fence of what was recorded.
fn up_to_a_fence(lab: &Lab) -> Hardware {
    let mut hardware = lab.hardware.clone();
    let events = lab.recorder.take();
    events.iter().take_while(|event| !matches!(event.what, What::Fence)).for_each(|event| {
        hardware.apply(event);
    });
    hardware
}

/// Kills the process at each event of the last operation, recovers what memory shows (nothing is
/// lost by that), then cuts the power: what recovery accepted must still be there.
fn kill_then_cut(form: Form, prepare: &dyn Fn(&Fs), last: &dyn Fn(&Fs)) -> Vec<String> {
    let mut lab = Lab::new(form);
    let fs = lab.open();
    prepare(&fs);
    lab.settle();
    last(&fs);
    let events = lab.recorder.take();
    drop(fs);
    let mut wrong = Vec::new();
    let start = lab.hardware.clone();
    for kill in 0..=events.len() {
        let mut hardware = start.clone();
        for event in &events[..kill] {
            hardware.apply(event);
        }
        drop(hardware.forget(None));
        // What the next process sees: all stores.
        let mut bytes = hardware.durable()[0].clone();
        for key in hardware.pending().keys() {
            let at = (key.line * 64) as usize;
            bytes[at..at + 64].copy_from_slice(&hardware.line_with(*key, |_| true));
        }
        let pool = PoolFile::zeroed(&[bytes.len() as u64]).unwrap();
        pool.put(0, 0, &bytes).unwrap();
        let recorder = Arc::new(Recorder::default());
        let fs = match open_pool(pm(&pool, &recorder), form, 6) {
            Ok(fs) => fs,
            Err(why) => {
                wrong.push(format!("kill at {kill}: {why}"));
                continue;
            }
        };
        let found = tree(&fs);
        let recovery = recorder.take();
        drop(fs);
        // Power cut after the recovery, or at each of its fences.
        let mut points = Vec::new();
        let mut hw = hardware.clone();
        for event in &recovery {
            if matches!(event.what, What::Fence) {
                points.push((format!("in recovery at {}", event.site), hw.clone(), false));
            }
            hw.apply(event);
        }
        points.push(("behind recovery".into(), hw, true));
        for (place, hw, behind) in points {
            let killed = format!("killed behind event {kill}/{}, power cut {place}", events.len());
            cut(&hw, (form, &killed), behind.then_some(&found), &mut wrong);
        }
    }
    wrong
}

/// Cuts the power in every way that is tried, and opens what is left; `found` is what there must be,
/// where nothing is under way any more.
fn cut(
    hw: &Hardware,
    (form, killed): (Form, &str),
    found: Option<&Vec<String>>,
    wrong: &mut Vec<String>,
) {
    let effort = Effort { data_lines_max: 1, pairs: 0, random: 1, ..Effort::default() };
    let pool = PoolFile::zeroed(&[hw.durable()[0].len() as u64]).unwrap();
    pool.put(0, 0, &hw.durable()[0]).unwrap();
    for image in images(hw, effort, &mut fastrand::Rng::with_seed(1)) {
        for (key, line) in &image.lines {
            pool.put(0, key.line * 64, line).unwrap();
        }
        let recorder = Arc::new(Recorder::default());
        let what = format!("{killed}, keeping {}", image.choice);
        match open_pool(pm(&pool, &recorder), form, 7) {
            Err(why) => wrong.push(format!("{what}: {why}")),
            Ok(fs) => {
                let again = tree(&fs);
                if found.is_some_and(|found| again != *found) {
                    wrong.push(format!("{what}: recovered {found:?}, then {again:?}"));
                } else if let Err(why) = check_opened(&fs) {
                    wrong.push(format!("{what}: {why}"));
                }
            }
        }
        let touched = recorder.take_stored_lines().into_iter();
        for key in touched.chain(image.lines.iter().map(|(key, _)| *key)) {
            pool.put(0, key.line * 64, &hw.durable_line(key)).unwrap();
        }
    }
}

fn show(wrong: &[String]) {
    println!("{} wrong", wrong.len());
    for w in wrong.iter().take(6) {
        println!("  {w}");
    }
    if wrong.len() > 6 {
        for w in wrong.iter().rev().take(4) {
            println!("  {w}");
        }
    }
}

#[test]
fn killed_in_a_create() {
    let wrong = kill_then_cut(Form::Auto, &|_| (), &|fs| {
        fs.create(&ctx(1), Node::ROOT, b"a", &new(FileKind::File)).unwrap();
    });
    show(&wrong);
    assert!(wrong.is_empty());
}
#[test]
fn killed_in_a_create_two() {
    let wrong = kill_then_cut(Form::Two, &|_| (), &|fs| {
        fs.create(&ctx(1), Node::ROOT, b"a", &new(FileKind::File)).unwrap();
    });
    show(&wrong);
    assert!(wrong.is_empty());
}
#[test]
fn killed_in_a_first_write() {
    let wrong = kill_then_cut(
        Form::Auto,
        &|fs| {
            fs.create(&ctx(1), Node::ROOT, b"a", &new(FileKind::File)).unwrap();
        },
        &|fs| {
            let a = fs.lookup(&ctx(1), Node::ROOT, b"a").unwrap();
            fs.write(&ctx(2), a.ino, 0, &[7; 4096]).unwrap();
        },
    );
    show(&wrong);
    assert!(wrong.is_empty());
}
#[test]
fn killed_in_a_write_that_links_a_page() {
    let wrong = kill_then_cut(
        Form::Auto,
        &|fs| {
            let a = fs.create(&ctx(1), Node::ROOT, b"a", &new(FileKind::File)).unwrap();
            for _ in 0..63 {
                fs.write(&ctx(2), a.ino, 0, &[6; 4096]).unwrap();
            }
        },
        &|fs| {
            let a = fs.lookup(&ctx(1), Node::ROOT, b"a").unwrap();
            fs.write(&ctx(2), a.ino, 4096, &[7; 4096]).unwrap();
        },
    );
    show(&wrong);
    assert!(wrong.is_empty());
}

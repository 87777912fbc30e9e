//! Promise: `novale slot add`, `remove` and `replace` change the slots of a pool that nobody uses, and it has
//! all that it had. What would lose something is refused before anything is changed, and a call that was
//! killed is gone on with by the same call.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_core::Serial;
use novale_layout::PmAddr;
use novale_pm::{Observer, PmOptions, Purpose, StoreEvent};
use novale_posix::Pool;
use novale_posix::slots::{Helpers, add, remove, replace};
use rustix::process::{Pid, Signal, getpid, kill_process};
use support::{Scratch, alone, arenas_of, ends, novale};

const BYTES: usize = 600 << 10;
const FILES: usize = 2;
/// What the process is to do that is killed: a change, the slots' folder, and at which event.
const CHILD: &str = "NOVALE_TEST_SLOTS";

fn fill(slots: &[&str]) {
    let pool = Pool::open(slots).unwrap();
    for file in 0..FILES {
        pool.write_file(format!("file{file}"), &vec![7; BYTES]).unwrap();
    }
    pool.close().unwrap();
}

/// Makes a pool of slots of 2 MB, and fills half of it.
fn pool(scratch: &Scratch, names: &[&str]) -> Vec<String> {
    let slots: Vec<String> = names.iter().map(|name| scratch.slot(name)).collect();
    let paths: Vec<&str> = slots.iter().map(String::as_str).collect();
    novale(&[&["mkfs", "--size", "2M", "--quiet"], &paths[..]].concat()).ok();
    fill(&paths);
    slots
}

fn slots_are(slots: &[&str]) {
    let pool = Pool::open(slots).unwrap();
    for file in 0..FILES {
        assert_eq!(pool.read_file(format!("file{file}")).unwrap(), vec![7; BYTES]);
    }
    pool.close().unwrap();
    let checked = novale(&[&["check"], slots].concat()).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

/// A pool was made, or a slot added, whose paths no mount has room for: the kernel takes 4,095 bytes of them.
#[test]
fn paths_that_no_mount_has_room_for_are_refused() {
    let _alone = alone();
    let scratch = Scratch::new();
    let top = PathBuf::from(scratch.slot("top"));
    let folder = [200; 3].iter().fold(top, |folder, len| folder.join("x".repeat(*len)));
    fs::create_dir_all(&folder).unwrap();
    let slots: Vec<String> =
        (0..7).map(|slot| folder.join(slot.to_string()).to_str().unwrap().to_owned()).collect();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    let (new, pool) = slots.split_last().unwrap();
    let mkfs = |slots: &[&str]| novale(&[&["mkfs", "--size", "2M", "--quiet"], slots].concat());
    mkfs(&slots).refused(1, &["paths of the 7 slots", "4095", "shorter"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    mkfs(pool).ok();
    fill(pool);
    novale(&[&["slot", "add", "--size", "2M", new], pool].concat()).refused(1, &["shorter"]);
    slots_are(pool);
    // In the place of another one there is room for it.
    novale(&[&["slot", "replace", "--size", "2M", pool[2], new], pool].concat()).ok();
    slots_are(&[&pool[..2], &[*new], &pool[3..]].concat());
    fs::remove_dir_all(folder.ancestors().nth(2).unwrap()).unwrap();
}

/// The slot that was added was called one that waits, and was to be left out, or given up.
#[test]
fn a_copy_of_slot_0_from_before_another_was_added_is_told() {
    let _alone = alone();
    let scratch = Scratch::new();
    let [first, copy, added] = ["first", "copy", "added"].map(|name| scratch.slot(name));
    novale(&["mkfs", "--size", "4M", "--quiet", &first]).ok();
    fill(&[&first]);
    fs::copy(&first, &copy).unwrap();
    novale(&["slot", "add", "--size", "4M", &added, &first]).ok();
    slots_are(&[&first, &added]);
    fs::copy(&copy, &first).unwrap();
    let old = ["slot 0", "an old copy, from before that slot was added"];
    for command in ["info", "check"] {
        novale(&[command, &first, &added]).refused(if command == "check" { 8 } else { 1 }, &old);
    }
    let dir = scratch.dir();
    for words in ["ro", "rw"] {
        novale(&["mount", "-o", words, &added, &first, &dir]).refused(1, &old);
    }
}

/// What it says of how many slots there are was believed, and one was missing that was taken out.
#[test]
fn a_copy_of_slot_0_from_before_another_was_removed_is_told() {
    let _alone = alone();
    let scratch = Scratch::new();
    let [first, copy, stays, goes] =
        ["first", "copy", "stays", "goes"].map(|name| scratch.slot(name));
    novale(&["mkfs", "--size", "4M", "--quiet", &first, &stays, &goes]).ok();
    fill(&[&first, &stays, &goes]);
    fs::copy(&first, &copy).unwrap();
    novale(&["slot", "remove", &goes, &first, &stays]).ok();
    slots_are(&[&first, &stays]);
    let current = scratch.slot("current");
    fs::rename(&first, &current).unwrap();
    fs::copy(&copy, &first).unwrap();
    let dir = scratch.dir();
    let told = novale(&["mount", &first, &stays, &dir]);
    assert!(!told.err.contains("missing"), "{}", told.err);
    told.refused(1, &["slot 0", "an old copy", "put the slot back"]);
    fs::rename(&current, &first).unwrap();
    slots_are(&[&first, &stays]);
}

#[test]
fn slots_are_added_removed_and_replaced() {
    let _alone = alone();
    let scratch = Scratch::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| scratch.slot(name));
    pool(&scratch, &["a", "b"]);
    let added = novale(&["slot", "add", "--size", "2M", &c, &a, &b]).ok();
    assert!(added.contains("slot 2 is"), "{added}");
    let again = novale(&["slot", "add", &c, &a, &b]).ok();
    assert!(again.contains("already done: added: slot 2 is"), "{again}");
    slots_are(&[&a, &b, &c]);
    // The one in the middle: the last takes its place.
    novale(&["slot", "remove", &b, &a, &c]).ok();
    slots_are(&[&c, &a]);
    novale(&["info", &b]).refused(1, &["holds no pool"]);
    let again = novale(&["slot", "remove", &b, &a, &c]).ok();
    assert!(again.contains("already done: removed"), "{again}");
    let json = novale(&["slot", "replace", "--json", "--size", "3M", &a, &d, &c]).ok();
    assert!(json.contains("\"replaced\"") && json.contains("\"slot\": 0"), "{json}");
    let again = novale(&["slot", "replace", "--json", "--size", "3M", &a, &d, &c]).ok();
    assert!(again.contains("\"already\": true") && again.contains("\"slot\": 0"), "{again}");
    let status = novale(&["slot", "status", &d, &c]).ok();
    assert!(!status.contains('?'), "{status}");
    slots_are(&[&d, &c]);
    novale(&["slot", "remove", &c, &d]).ok();
    slots_are(&[&d]);
    novale(&["slot", "remove", &d, &d]).refused(1, &["the only slot of its pool"]);
    let json = novale(&["slot", "remove", "--json", &c, &d]);
    // What is left is a pool without it.
    assert!(json.code == 0 && json.out.contains("\"already\": true"), "{}{}", json.out, json.err);
    for wrong in
        [&["slot", "add", "--json", &c][..], &["info", "--json"], &["info", "--json", "--x"]]
    {
        let json = novale(wrong);
        assert!(json.code == 2 && json.out.contains("\"error\""), "{}{}", json.out, json.err);
    }
}

/// One that root made was root's alone, and how much the slot endures was forgotten.
#[test]
fn a_new_slot_is_as_the_others_are() {
    let _alone = alone();
    let scratch = Scratch::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| scratch.slot(name));
    novale(&["mkfs", "--size", "2M", "--endurance", "pcm", &a, &b]).ok();
    for slot in [&a, &b] {
        fs::set_permissions(slot, fs::Permissions::from_mode(0o640)).unwrap();
    }
    novale(&["slot", "replace", "--size", "2M", &b, &c, &a]).ok();
    assert_eq!(fs::metadata(&c).unwrap().mode() & 0o7777, 0o640);
    let status = novale(&["slot", "status", "--json", &a, &c]).ok();
    assert_eq!(status.matches("100000000").count(), 2, "{status}");
}

#[test]
fn a_slot_that_is_named_twice_or_in_use_is_refused() {
    let _alone = alone();
    let scratch = Scratch::new();
    let [a, b, link, symbolic] = ["a", "b", "link", "symbolic"].map(|name| scratch.slot(name));
    pool(&scratch, &["a", "b"]);
    let open = Pool::open(&[&a, &b]).unwrap();
    novale(&["slot", "remove", &b, &a]).refused(1, &["is in use by process"]);
    novale(&["slot", "add", "--size", "2M", &link, &a, &b]).refused(1, &["is in use by process"]);
    open.close().unwrap();
    assert!(!Path::new(&link).exists());
    fs::hard_link(&b, &link).unwrap();
    std::os::unix::fs::symlink(&b, &symbolic).unwrap();
    for other in [&b, &link, &symbolic] {
        let twice: &[&str] = if *other == b { &["named twice"] } else { &["are the same"] };
        novale(&["slot", "add", "--force", other, &a, &b]).refused(1, twice);
        novale(&["slot", "replace", "--force", &b, other, &a]).refused(1, twice);
        if *other != b {
            novale(&["slot", "remove", &b, other, &a]).refused(1, twice);
        }
    }
    let copy = scratch.slot("copy");
    fs::copy(&b, &copy).unwrap();
    novale(&["slot", "replace", "--force", &b, &copy, &a]).refused(1, &["slot 1", "a copy of it"]);
    novale(&["slot", "remove", &b, &copy, &a]).refused(1, &["the same slot", "a copy"]);
    slots_are(&[&a, &b]);
}

#[test]
fn what_does_not_fit_or_is_not_there_is_refused() {
    let _alone = alone();
    let scratch = Scratch::new();
    let [a, b, d, other] = ["a", "b", "d", "other"].map(|name| scratch.slot(name));
    pool(&scratch, &["a", "b"]);
    novale(&["mkfs", "--size", "2M", "--quiet", &other]).ok();
    novale(&["slot", "add", &other, &a, &b]).refused(1, &["a slot of another pool", "--force"]);
    novale(&["slot", "replace", &b, &other, &a]).refused(1, &["a slot of another pool", "--force"]);
    novale(&["slot", "add", "--size", "512K", &d, &a, &b]).refused(1, &["needs at least 1.0 MiB"]);
    novale(&["slot", "replace", "--size", "1M", &b, &d, &a])
        .refused(1, &["needs at least 2.0 MiB"]);
    novale(&["slot", "add", &d, &a, &b]).refused(1, &["is not there: give --size"]);
    assert!(!Path::new(&d).exists());
    fs::write(&d, vec![0; 3 << 20]).unwrap();
    let size = novale(&["slot", "add", "--size", "2M", &d, &a, &b]);
    size.refused(1, &["is there and has 3.0 MiB, not 2.0 MiB"]);
    novale(&["slot", "remove", &b, &other]).refused(1, &["a slot of another pool"]);
    novale(&["slot", "add", &d, &a]).refused(1, &["missing: slot 1"]);
    // One of the two slots has room for what is in both, but not for twice as much.
    let open = Pool::open(&[&a, &b]).unwrap();
    open.write_file("more", &vec![1; 900 << 10]).unwrap();
    open.close().unwrap();
    novale(&["slot", "remove", &b, &a]).refused(1, &["KiB in use", "KiB free", "add a slot first"]);
    let status = novale(&["slot", "status", &a, &b]).ok();
    assert!(!status.contains("leaving"), "{status}");
    slots_are(&[&a, &b]);
    File::options().write(true).open(&b).unwrap().set_len(1 << 20).unwrap();
    novale(&["slot", "replace", &b, &d, &a]).refused(1, &["was cut off"]);
    fs::remove_file(&b).unwrap();
    for change in ["remove", "replace"] {
        let call: Vec<&str> = match change {
            "remove" => vec!["slot", change, &b, &a],
            _ => vec!["slot", change, &b, &d, &a],
        };
        novale(&call).refused(1, &["No such file"]);
    }
    patch_out(&scratch, &other);
}

/// A removal of what never was a slot was done already; another pool's slot, a text file and a directory were damaged,
/// or the pool in use; and what was to be taken back was kept.
#[test]
fn what_is_none_of_the_pools_slots_is_called_what_it_is() {
    let Some(scratch) = Scratch::for_mount("what_is_none_of_the_pools_slots") else { return };
    let _alone = alone();
    let names = ["a", "b", "c", "other", "never", "note", "zeroes", "new"];
    let slots = names.map(|name| scratch.slot(name));
    let [a, b, c, other, never, note, zeroes, new] = slots.each_ref().map(String::as_str);
    pool(&scratch, &["a", "b"]);
    novale(&["slot", "add", "--size", "2M", c, a, b]).ok();
    novale(&["slot", "remove", c, a, b]).ok();
    novale(&["mkfs", "--size", "2M", "--quiet", other]).ok();
    fs::write(note, "a text").unwrap();
    fs::write(zeroes, vec![0; 2 << 20]).unwrap();
    let (dir, whole) = (scratch.dir(), "the pool is whole without it");
    let strangers = [
        (never, "is not there"),
        (note, "holds no pool, but 6 bytes"),
        (zeroes, "holds no pool, only zeroes"),
        (other, "is a slot of another pool"),
        (&dir, "is a directory"),
    ];
    for is_mounted in [false, true] {
        let pool = if is_mounted { &[&dir[..]][..] } else { &[a, b] };
        if is_mounted {
            novale(&["mount", a, b, &dir]).ok();
        }
        for (stranger, what) in strangers.into_iter().filter(|(path, _)| *path != pool[0]) {
            let remove = [&["slot", "remove", stranger], pool].concat();
            novale(&remove).refused(1, &[whole, what]);
            novale(&[&remove[..], &["--cancel"]].concat()).refused(1, &[whole, what]);
            let replace = [&["slot", "replace", "--size", "2M", stranger, new], pool].concat();
            novale(&replace).refused(1, &[whole, what]);
        }
        let again = novale(&[&["slot", "remove", c], pool].concat()).ok();
        assert!(again.contains("already done: removed"), "{again}");
        let gone = novale(&[&["slot", "remove", "--cancel", c], pool].concat());
        gone.refused(1, &["out of the pool already", "slot add"]);
        let gone = novale(&[&["slot", "replace", "--size", "2M", c, new], pool].concat());
        gone.refused(1, &["no slot of the pool any more"]);
        let others = if is_mounted { pool } else { &[a] };
        let kept = novale(&[&["slot", "remove", "--cancel", b], others].concat()).ok();
        assert!(kept.contains("nothing to take back"), "{kept}");
        novale(&[&["slot", "add", "--size", "300T", new], pool].concat())
            .refused(1, &["more than a slot may have, 256.0 TiB"]);
        assert!(!Path::new(new).exists());
    }
    fs::create_dir(scratch.in_dir("below")).unwrap();
    let below = scratch.in_dir("below").display().to_string();
    novale(&["slot", "add", "--size", "2M", new, &below])
        .refused(1, &["lies in the pool that is mounted on", "name that directory"]);
    novale(&["umount", &dir]).ok();
    for call in [&["slot", "add", "--size", "2M", new, &dir][..], &["slot", "status", &dir]] {
        novale(call).refused(1, &["a directory on which no pool is mounted"]);
    }
    novale(&["mkfs", "--size", "300T", new]).refused(1, &["more than a slot may have"]);
    // A sound slot of another pool is not the one that is lost: whoever named it by mistake lost the right one.
    novale(&["slot", "replace", "--lost", "--size", "2M", other, new, a])
        .refused(1, &["a slot of another pool"]);
    slots_are(&[a, b]);
}

/// One that is there and is no slot any more.
fn patch_out(scratch: &Scratch, other: &str) {
    let [a, b, d] = ["a", "b", "d"].map(|name| scratch.slot(name));
    fs::copy(other, &b).unwrap();
    let zeroes = vec![0; 2 << 20];
    fs::write(&b, &zeroes).unwrap();
    novale(&["slot", "replace", &b, &d, &a])
        .refused(1, &["nowhere else", "check", "replace --lost"]);
}

/// What a mount had only buffered is in its arena, which is named after the slot that goes.
#[test]
fn what_a_killed_mount_leaves_is_kept_and_its_arena_is_not() {
    let Some(scratch) = Scratch::for_mount("what_a_killed_mount_leaves") else { return };
    let _alone = alone();
    let [a, b, d] = ["a", "b", "d"].map(|name| scratch.slot(name));
    pool(&scratch, &["a", "b"]);
    for (mode, old, new) in [("mode=buffered", &a, &d), ("mode=strict", &d, &a)] {
        novale(&["mount", "-o", mode, old, &b, &scratch.dir()]).ok();
        fs::write(scratch.in_dir("buffered"), [5; 5000]).unwrap();
        let info = novale(&["info", "--json", old, &b]).ok();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let daemon = info["used_by"].as_u64().unwrap();
        let pid = Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        assert!(ends(daemon));
        assert!(Command::new("umount").args(["-l", &scratch.dir()]).status().unwrap().success());
        fs::write(new, vec![0; 2 << 20]).unwrap();
        novale(&["slot", "replace", old, new, &b]).ok();
        let uuid = info["uuid"].as_str().unwrap();
        assert_eq!(arenas_of(uuid), Vec::<PathBuf>::new());
        let open = Pool::open(&[new, &b]).unwrap();
        assert_eq!(open.read_file("buffered").unwrap(), [5; 5000]);
        open.close().unwrap();
    }
    slots_are(&[&a, &b]);
}

/// Ends its process at an event.
struct KilledAt(AtomicU64, u64);

impl KilledAt {
    fn count(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) == self.1 {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    }
}

impl Observer for KilledAt {
    fn store(&self, _event: StoreEvent<'_>) {
        self.count();
    }

    fn write_back(&self, _at: PmAddr, _len: u64, _why: Purpose, _site: &'static Location<'static>) {
        self.count();
    }

    fn fence(&self, _site: &'static Location<'static>) {
        self.count();
    }
}

/// Run by the next test, which has it killed.
#[test]
fn changing_process() {
    let _alone = alone();
    let Ok(call) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = call.split(' ').collect();
    let [change, folder, at] = words[..] else { return };
    let killed = Arc::new(KilledAt(AtomicU64::new(0), at.parse().unwrap()));
    let mapping = |_: &[PathBuf]| {
        let observer = Some(killed.clone() as Arc<dyn Observer>);
        PmOptions { observer, ..PmOptions::default() }
    };
    let helpers = Helpers { exec: &Serial, progress: &|_| (), mapping: &mapping, given_up: &|| () };
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| Path::new(folder).join(name));
    let pool = [a, b.clone(), c];
    match change {
        "add" => add(&pool, &d, 0, &helpers).map(drop),
        "remove" => remove(&pool, &b, &helpers),
        _ => replace(&pool, &b, &d, 0, &helpers).map(drop),
    }
    .unwrap();
    let events = killed.0.load(Ordering::Relaxed);
    fs::write(Path::new(folder).join("events"), events.to_string()).unwrap();
}

/// A pool of three slots, and a file for a fourth; as often as it is wanted.
struct Before {
    scratch: Scratch,
    bytes: Vec<Vec<u8>>,
}

impl Before {
    fn new() -> Self {
        let scratch = Scratch::new();
        let slots = pool(&scratch, &["a", "b", "c"]);
        let mut bytes: Vec<Vec<u8>> = slots.iter().map(|slot| fs::read(slot).unwrap()).collect();
        bytes.push(vec![0; 2 << 20]);
        Self { scratch, bytes }
    }

    fn slots(&self) -> [String; 4] {
        ["a", "b", "c", "d"].map(|name| self.scratch.slot(name))
    }

    /// Has a process change slots, and be killed at an event; whether it was.
    fn is_killed(&self, change: &str, at: u64) -> bool {
        for (slot, bytes) in self.slots().iter().zip(&self.bytes) {
            fs::write(slot, bytes).unwrap();
        }
        let folder = Path::new(&self.slots()[0]).parent().unwrap().to_owned();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "changing_process"]).stdout(Stdio::null());
        command.env(CHILD, format!("{change} {} {at}", folder.display()));
        let status = command.status().unwrap();
        let is_killed = status.signal() == Some(Signal::KILL.as_raw());
        assert!(is_killed || status.success(), "{status}");
        is_killed
    }

    /// How many events a change has.
    fn events(&self, change: &str) -> u64 {
        assert!(!self.is_killed(change, u64::MAX));
        fs::read_to_string(self.scratch.slot("events")).unwrap().parse().unwrap()
    }
}

#[test]
fn the_same_call_goes_on_where_one_was_killed() {
    let _alone = alone();
    let before = Before::new();
    let [a, b, c, d] = before.slots();
    let changes: [(&[&str], &[&str]); 3] = [
        (&["slot", "add", &d, &a, &b, &c], &[&a, &b, &c, &d]),
        (&["slot", "replace", &b, &d, &a, &c], &[&a, &c, &d]),
        (&["slot", "remove", &b, &a, &c], &[&a, &c]),
    ];
    for (call, after) in changes {
        let events = before.events(call[1]);
        // In the middle, and around the commit and what comes after it.
        for at in [events / 3, events / 3 * 2, events - 12, events - 5, events - 2] {
            assert!(before.is_killed(call[1], at), "{call:?} at {at} of {events}");
            novale(call).ok();
            slots_are(after);
        }
    }
}

#[test]
fn a_removal_that_was_killed_is_taken_back() {
    let _alone = alone();
    let before = Before::new();
    let [a, b, c, _] = before.slots();
    let slots = [&a[..], &b, &c];
    let status = || novale(&[&["slot", "status"], &slots[..]].concat()).ok();
    let events = before.events("remove");
    assert!(before.is_killed("remove", events / 3));
    assert!(status().lines().any(|line| line.starts_with("slot 2") && line.contains("leaving")));
    let info = novale(&[&["info"], &slots[..]].concat()).ok();
    assert!(info.contains("is leaving"), "{info}");
    let kept = novale(&["slot", "remove", "--cancel", &b, &a, &c]).ok();
    assert!(kept.contains("kept"), "{kept}");
    assert!(!status().contains("leaving"));
    novale(&["slot", "remove", "--cancel", &b, &a, &c]).ok();
    slots_are(&slots);
    novale(&["slot", "remove", &c, &a, &b]).ok();
    slots_are(&[&a, &b]);
}

/// Both slots could be mounted, and what was written to the old one was lost with the end of the call.
#[test]
fn a_slot_that_is_being_replaced_is_not_written() {
    let _alone = alone();
    let before = Before::new();
    let [a, b, c, d] = before.slots();
    let events = before.events("replace");
    let call = ["slot", "replace", &b, &d, &a, &c];
    // The new slot is complete, and the old one not erased.
    assert!(before.is_killed("replace", events - 5));
    let refused = Pool::open(&[&a, &b, &c]).unwrap_err().to_string();
    assert!(refused.contains("slot 1 is being replaced"), "{refused}");
    let told = novale(&["info", &a, &b, &c, &d]).ok();
    for word in ["has taken its place", "leave it out", &format!("slot remove {b} {a}")] {
        assert!(told.contains(word), "'{word}' is missing in: {told}");
    }
    novale(&["slot", "replace", "--cancel", &b, &d, &a, &c]).refused(1, &["has taken the place"]);
    slots_are(&[&a, &c, &d]);
    novale(&call).ok();
    slots_are(&[&a, &c, &d]);
    // The old one is marked, and the new one has no place yet.
    let at = (1..30).find(|back| {
        assert!(before.is_killed("replace", events - back));
        Pool::open(&[&a, &b, &c]).is_err() && Pool::open(&[&a, &c, &d]).is_err()
    });
    assert!(at.is_some());
    let other = before.scratch.slot("other");
    let to_other = ["slot", "replace", "--size", "2M", &b, &other, &a, &c];
    novale(&to_other).refused(1, &["replaced by another slot", "--cancel"]);
    assert!(!Path::new(&other).exists());
    let cancel = ["slot", "replace", "--cancel", &b, &other, &a, &c];
    novale(&cancel).refused(1, &["is not the slot", "--force"]);
    novale(&["slot", "replace", "--cancel", &b, &d, &a, &c]).ok();
    slots_are(&[&a, &b, &c]);
    novale(&[&call[..], &["--force"]].concat()).ok();
    slots_are(&[&a, &c, &d]);
}

/// Events before a change's end, the slot that is left out then, and what it is called.
type Cut<'a> = (u64, &'a str, &'a str);

/// `info` and `check` took a slot for damaged that was to come or had gone, or showed no pool.
#[test]
fn a_slot_without_a_place_is_called_what_it_is() {
    let _alone = alone();
    let before = Before::new();
    let [a, b, c, d] = before.slots();
    let (pool, more) = ([&a[..], &b, &c], [&a[..], &b, &c, &d]);
    let takes = "it waits to take the place of";
    let waits = "it has no place in the pool";
    let replaced = "has taken its place";
    let erased = "it was erased";
    let cuts: [(&str, &[&str], &[Cut<'_>]); 3] = [
        ("add", &more, &[(30, &d, erased), (8, &d, waits), (3, &d, waits)]),
        (
            "remove",
            &pool,
            &[
                (100, &c, waits),
                (13, &c, takes),
                (9, &c, takes),
                (6, &b, replaced),
                (2, &b, erased),
            ],
        ),
        (
            "replace",
            &more,
            &[(100, &d, waits), (10, &d, takes), (6, &b, replaced), (2, &b, erased)],
        ),
    ];
    for (change, slots, cuts) in cuts {
        let events = before.events(change);
        for (back, path, called) in cuts {
            assert!(before.is_killed(change, events - back));
            for command in ["info", "check"] {
                let told = novale(&[&[command], slots].concat());
                let told = told.out.clone() + &told.err;
                let line = told.lines().find(|line| line.contains(&format!("{path}: ")));
                let line = line.unwrap_or_else(|| panic!("{change} -{back}: {told}"));
                assert!(line.contains(called), "{change} -{back}: {told}");
                assert!(!told.contains("damaged"), "{change} -{back}: {told}");
            }
            let told = novale(&[&["info"], slots].concat()).ok();
            let is_between = told.contains("is being replaced");
            assert_eq!(is_between, *called == takes, "{change} -{back}: {told}");
        }
    }
}

/// The pool could be mounted without the last slot alone, and nothing said which files that were.
#[test]
fn what_a_removal_left_names_files_and_the_call_that_ends_it() {
    let _alone = alone();
    let before = Before::new();
    let [a, b, c, _] = before.slots();
    let events = before.events("remove");
    let at = (1..events).find(|back| {
        assert!(before.is_killed("remove", events - back * 8));
        Pool::open(&[&a, &b]).is_ok()
    });
    assert!(at.is_some());
    let pool = format!("{a} {b}");
    novale(&["stats", &a, &b, &c]).refused(1, &["Leave it out", &pool, "novale slot remove"]);
    novale(&["slot", "remove", &b, &a, &c]).ok();
    slots_are(&[&a, &c]);
}

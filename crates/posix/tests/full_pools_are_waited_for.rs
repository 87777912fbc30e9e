//! Promise: a call that finds no room waits for a removed file that is being given up, whatever makes a name or a file
//! longer.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use novale_core::Ctx;
use novale_posix::{File, Files, OpenOptions, Result};

/// The clock's: it is asked once more where a call is tried again, and a file is given up then.
#[derive(Default)]
struct State {
    asked: u32,
    ends_at: u32,
    held: Option<File>,
}

/// Makes a call until it finds no room.
fn waits(call: impl Fn(&Files, &File, u32) -> Result<()>) {
    let state: Arc<Mutex<State>> = Arc::default();
    let clock = {
        let state = state.clone();
        move || {
            let mut now = state.lock().unwrap();
            now.asked += 1;
            let ended = if now.asked == now.ends_at { now.held.take() } else { None };
            // It asks for the time itself.
            drop(now);
            drop(ended);
            1
        }
    };
    let fs = support::fs(8 << 20);
    let files = Files::with_clock(fs.clone(), clock);
    let options = OpenOptions::new().read(true).write(true).create(true);
    let open = |path| files.open_file(path, &options).unwrap();
    let (held, fill) = (open("/held"), open("/fill"));
    held.write_all(&vec![7; 1 << 20]).unwrap();
    fill.write_all(&[7; 4096]).unwrap();
    state.lock().unwrap().asked = 0;
    call(&files, &fill, 0).unwrap();
    let each = state.lock().unwrap().asked;
    let (ctx, ino) = (Ctx { now_ns: 1, hint: 0 }, fill.attr().unwrap().ino);
    while fs.append(&ctx, ino, &[7; 4096]).is_ok() {}
    files.remove_file("/held").unwrap();
    *state.lock().unwrap() = State { asked: 0, ends_at: each + 1, held: Some(held) };
    let has_ended = |turn| {
        state.lock().unwrap().asked = 0;
        call(&files, &fill, turn).unwrap();
        state.lock().unwrap().held.is_none()
    };
    assert!((1..10_000).any(has_ended), "there was room all the time");
}

#[test]
fn directories_are_made() {
    waits(|files, _, turn| files.create_dir(format!("/{turn}"), 0o755).map(drop));
}

#[test]
fn files_get_names() {
    waits(|files, _, turn| files.hard_link("/fill", format!("/{turn}")).map(drop));
    waits(|files, fill, turn| files.link_file(fill, format!("/{turn}")));
}

#[test]
fn files_without_names_are_made() {
    let made = RefCell::new(Vec::new());
    let unnamed = OpenOptions::new().write(true).unnamed(true);
    waits(|files, _, _| {
        made.borrow_mut().push(files.open_file("/", &unnamed)?);
        Ok(())
    });
}

#[test]
fn ranges_are_copied() {
    waits(|_, fill, turn| {
        let to = u64::from(turn + 10_000) * 4096;
        fill.copy_range(Some(0), (fill, Some(to)), 4096).map(drop)
    });
}

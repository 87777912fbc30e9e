//! Promise: a daemon that is killed while it asks its own mount is gone, and its mount answers that it is dead.

#![allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used, reason = "helpers of a test")]

mod support;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use novale_fuse::{
    Atime, Connection, MountOptions, Novale, Server, ServerConfig, Service, Settings, Transport,
    Unmount, detach_dead, find, unmount,
};
use support::eventually;
use tempfile::TempDir;

/// Tells a process of this test that it is the daemon: where to mount, and the request that stays
/// without an answer.
const DAEMON: &str = "NOVALE_TEST_ASKING_DAEMON";
/// Requests of the FUSE protocol: the first after the handshake, and the first on the way to a `syncfs`.
const STATFS: u32 = 17;
const GETATTR: u32 = 3;

/// Shakes hands, and knows no request. One it never answers.
struct Mute {
    device: File,
    unanswered: u32,
}

impl Mute {
    /// The next request: what it asks, and its number.
    fn next(&mut self) -> io::Result<(u32, u64)> {
        let mut request = vec![0; 1 << 20];
        // Its length, what it asks, its number.
        let _ = self.device.read(&mut request)?;
        let (_, rest) = request.split_first_chunk::<4>().unwrap();
        let (code, rest) = rest.split_first_chunk().unwrap();
        let (number, _) = rest.split_first_chunk().unwrap();
        Ok((u32::from_le_bytes(*code), u64::from_le_bytes(*number)))
    }

    fn answer(&mut self, number: u64, errno: i32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(16 + body.len()).unwrap().to_le_bytes();
        let parts = [&length[..], &(-errno).to_le_bytes(), &number.to_le_bytes(), body];
        self.device.write_all(&parts.concat())
    }
}

impl Connection for Mute {
    fn serve(mut self: Box<Self>) -> io::Result<()> {
        loop {
            let (code, number) = self.next()?;
            if code == self.unanswered {
                println!("asked");
                loop {
                    std::thread::park();
                }
            }
            self.answer(number, libc::ENOSYS, &[])?;
        }
    }
}

/// Connects to a [`Mute`] with this request.
struct Unanswered(u32);

impl Transport for Unanswered {
    fn connect(&self, device: OwnedFd, _: Arc<dyn Service>) -> io::Result<Box<dyn Connection>> {
        let mut connection = Mute { device: device.into(), unanswered: self.0 };
        let (_, number) = connection.next()?;
        // Version 7.31, and nothing else is wanted.
        let mut body = [0; 64];
        body[0] = 7;
        body[4] = 31;
        connection.answer(number, 0, &body)?;
        Ok(Box::new(connection))
    }
}

fn daemon(word: &str) {
    let (unanswered, target) = word.split_once(' ').unwrap();
    let service = Novale::new(Arc::new(support::file_system(Atime::Never)), Settings::default());
    let config = ServerConfig {
        source: "none".into(),
        target: target.into(),
        options: MountOptions::default(),
    };
    let transport = Unanswered(unanswered.parse().unwrap());
    let server = Server::start(Arc::new(service), &transport, &config, || ()).unwrap();
    server.shut_down(Duration::from_secs(60)).unwrap();
}

fn kill_while_it_asks(request: u32, target: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "its_mount_is_dead", "--nocapture"]);
    command.env(DAEMON, format!("{request} {}", target.display()));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap().contains("asked")));
    child.kill().unwrap();
    let has_gone = eventually(|| child.try_wait().unwrap().is_some());
    if !has_gone {
        unmount(&find(target).unwrap(), Unmount::ByForce).unwrap();
        child.wait().unwrap();
        panic!("the daemon stays while it asks for {request}");
    }
    let answer = std::fs::metadata(target).err().and_then(|error| error.raw_os_error());
    assert_eq!(detach_dead(target).unwrap(), 1);
    assert_eq!(answer, Some(libc::ENOTCONN));
}

#[test]
fn its_mount_is_dead() {
    if let Ok(word) = std::env::var(DAEMON) {
        return daemon(&word);
    }
    if let Some(why) = support::unable() {
        println!("skipped: its_mount_is_dead: {why}");
        return;
    }
    let target = TempDir::new().unwrap();
    for request in [STATFS, GETATTR] {
        kill_while_it_asks(request, target.path());
    }
}

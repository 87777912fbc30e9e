//! The mount as a client among others: its daemon, which opens the pool and may be killed.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use novale_pm::PmOptions;
use rustix::mount::{UnmountFlags, unmount};

use super::child::said;
use super::field::{Field, identity};

/// A daemon that serves the field's pool; gone, with all it made, when this goes.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    novale: PathBuf,
    mount: PathBuf,
    arena: PathBuf,
}

impl Daemon {
    /// Makes a pool and mounts it below the field's folder.
    pub(super) fn start(novale: &Path, field: &Field) -> Result<Self, String> {
        field.clear()?;
        let slot = field.slot();
        let made = Command::new(novale).args(["mkfs", "--size", "512M"]).arg(&slot).output();
        let made = made.map_err(|why| format!("{}: {why}", novale.display()))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let mount = field.mount();
        std::fs::create_dir_all(&mount).map_err(|why| why.to_string())?;
        let mut child = Command::new(novale)
            .args(["mount", "--foreground", "-o", "direct"])
            .args([&slot, &mount])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| format!("{}: {why}", novale.display()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // It says a line once the mount can be used, or ends.
            let _read = BufReader::new(stdout).read_line(&mut line);
        }
        let mut this = Self { child, novale: novale.to_owned(), mount, arena: PathBuf::new() };
        if line.is_empty() {
            return Err(format!("no mount: {}", this.said()));
        }
        this.arena = find_arena(field)?;
        symlink(&this.arena, field.arena_name()).map_err(|why| why.to_string())?;
        Ok(this)
    }

    /// Kills it, in whatever it does, and takes the dead mount away.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(|why| why.to_string())?;
        self.child.wait().map_err(|why| why.to_string())?;
        unmount(&self.mount, UnmountFlags::DETACH).map_err(|why| why.to_string())
    }

    /// A command that has a program served in its own process, without this daemon.
    pub(super) fn direct(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.novale);
        command.args(["run", "--strict", "--mount"]).arg(&self.mount).arg("--").arg(program);
        command
    }

    /// Says whether programs can be served in their own processes.
    pub(super) fn serves_directly(&self) -> Result<(), String> {
        let ended = self.direct(Path::new("true")).output().map_err(|why| why.to_string())?;
        if ended.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&ended.stderr).into_owned())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Unmounts as a user does; it is the last client, so it closes the pool.
    pub(super) fn unmount(&mut self) -> Result<(), String> {
        let ended = Command::new(&self.novale).arg("umount").arg(&self.mount).output();
        let ended = ended.map_err(|why| why.to_string())?;
        if !ended.status.success() {
            return Err(format!("umount: {}", String::from_utf8_lossy(&ended.stderr)));
        }
        let status = self.child.wait().map_err(|why| why.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the daemon: {status}, {}", self.said()))
        }
    }

    fn said(&mut self) -> String {
        let _ended = self.child.kill();
        said(&mut self.child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.is_alive() {
            let _killed = self.child.kill();
            let _waited = self.child.wait();
        }
        let _detached = unmount(&self.mount, UnmountFlags::DETACH);
        let _removed = std::fs::remove_file(&self.arena);
    }
}

/// The arena that the daemon made for the field's pool.
fn find_arena(field: &Field) -> Result<PathBuf, String> {
    let pm = field.pm(&PmOptions { read_only: true, ..PmOptions::default() })?;
    let mut uuid = identity(&pm)?.pool_uuid;
    uuid.reverse();
    let hex = format!("{:032x}", u128::from_le_bytes(uuid));
    let folder = std::fs::read_dir("/dev/shm").map_err(|why| why.to_string())?;
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "");
        name.starts_with(&format!("novale{hex}"))
    };
    let found = folder.filter_map(|entry| Some(entry.ok()?.path())).find(is_it);
    found.ok_or_else(|| "the daemon has no arena".to_owned())
}

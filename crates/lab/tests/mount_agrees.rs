//! The promise: on a mount every program sees what it would see on the machine's own file system:
//! the same results, errors, names, attributes and bytes, over closes and kills of the daemon.
//! `NOVALE_LAB_SECONDS` and `NOVALE_LAB_SEED` make it go on longer and elsewhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

mod program;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use novale_lab::diff::{Budget, shrink};
use novale_lab::mounted::{Difference, RealDirectory, compare_directories};
use novale_lab::workload::{Flavor, Generator, Step, print_steps};
use tempfile::TempDir;

const NAME: &str = "mount_agrees";
const POOL_BYTES: &str = "256M";
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs that find a shrunk sequence at most.
const SHRINK_RUNS_MAX: usize = 400;

/// A pool mounted by the program; taken down when dropped, also after a failure.
struct Mount {
    program: PathBuf,
    folder: TempDir,
    daemon: Option<Child>,
}

impl Mount {
    /// Makes a pool and mounts it.
    fn new(program: &Path) -> Self {
        let folder = TempDir::with_prefix("novale-lab.").unwrap();
        fs::create_dir(folder.path().join("mount")).unwrap();
        let mut this = Self { program: program.to_owned(), folder, daemon: None };
        let pool = this.pool();
        this.run(&["mkfs", "--size", POOL_BYTES, pool.to_str().unwrap()]);
        this.start();
        this
    }

    fn pool(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// What the daemons said.
    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn run(&self, arguments: &[&str]) {
        let output = Command::new(&self.program).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "novale {arguments:?}: {said}");
    }

    /// Starts a daemon and waits until its mount is there.
    fn start(&mut self) {
        let (pool, directory, log) = (self.pool(), self.directory(), self.log());
        let daemon = Command::new(&self.program)
            .args(["mount", "--foreground", "-o", "noatime,suid,dev"])
            .args([&pool, &directory])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().append(true).create(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let daemon = self.daemon.insert(daemon);
        let outside = fs::metadata(self.folder.path()).unwrap().dev();
        let start = Instant::now();
        while fs::metadata(&directory).unwrap().dev() == outside {
            let said = fs::read_to_string(&log).unwrap();
            assert!(start.elapsed() < PATIENCE, "no mount after {PATIENCE:?}: {said}");
            let ended = daemon.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon ended at its start, {ended:?}: {said}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn close(&mut self) {
        self.run(&["umount", self.directory().to_str().unwrap()]);
        let status = self.daemon.take().unwrap().wait().unwrap();
        assert!(status.success(), "the daemon ended with {status}");
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        // The kernel still answers from its caches: only without it the next mount is seen.
        self.run(&["umount", self.directory().to_str().unwrap()]);
    }

    fn reopen(&mut self, step: &Step) {
        if *step == Step::Remount {
            self.close();
            self.run(&["check", self.pool().to_str().unwrap()]);
        } else {
            self.kill();
        }
        let said = fs::read_to_string(self.log()).unwrap();
        assert!(!said.contains("panicked"), "a daemon said:\n{said}");
        self.start();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let directory = self.directory();
        let umount =
            Command::new(&self.program).args(["umount", "--force"]).arg(&directory).output();
        let detached = rustix::mount::unmount(&directory, rustix::mount::UnmountFlags::DETACH);
        if let Some(mut daemon) = self.daemon.take() {
            let start = Instant::now();
            while daemon.try_wait().is_ok_and(|ended| ended.is_none()) && start.elapsed() < PATIENCE
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            let (killed, ended) = (daemon.kill(), daemon.wait());
            drop((killed, ended));
        }
        drop((umount, detached));
    }
}

/// Every other sequence opens its files past the kernel's cache.
fn is_direct(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// Runs the steps in a new directory of the mount and in one of the machine's own.
fn compare(mount: &mut Mount, direct: bool, steps: &[Step]) -> Result<(), Box<Difference>> {
    let reference = TempDir::with_prefix("novale-lab.").unwrap();
    let tested = mount.directory().join("tested");
    fs::create_dir(&tested).unwrap();
    for directory in [reference.path(), &tested] {
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    let open = || {
        let opened = RealDirectory::open(&tested).unwrap();
        if direct { opened.past_the_cache() } else { opened }
    };
    let mut ours = open();
    let mut theirs = RealDirectory::open(reference.path()).unwrap();
    let result = compare_directories(&mut ours, &mut theirs, steps, &mut |step, ours| {
        // What is open would keep the mount busy.
        *ours = RealDirectory::open(Path::new("/")).unwrap();
        mount.reopen(step);
        *ours = open();
        Ok(())
    });
    drop(ours);
    fs::remove_dir_all(&tested).unwrap();
    result
}

#[test]
fn with_the_machines_own_file_system() {
    let program = match program::built() {
        Ok(program) => program,
        Err(why) => return println!("skipped: {NAME}: {why}"),
    };
    // What is created has the mode asked for, on both sides.
    rustix::process::umask(rustix::fs::Mode::empty());
    let budget = Budget::from_env(80, 300);
    println!("{NAME}: first seed {}, {}", budget.seed, budget.length);
    let (start, mut sequences) = (Instant::now(), 0);
    let mut mount = Mount::new(&program);
    for seed in budget.seed.. {
        let steps = Generator::plain(seed, Flavor::of_seed(seed)).steps(budget.steps, 60);
        if let Err(difference) = compare(&mut mount, is_direct(seed), &steps) {
            report(&mut mount, seed, steps, *difference);
        }
        sequences += 1;
        fs::write(mount.log(), "").unwrap();
        if !budget.goes_on(sequences, start) {
            break;
        }
    }
    mount.close();
    mount.run(&["check", mount.pool().to_str().unwrap()]);
    println!("{NAME}: {sequences} sequences");
}

fn report(mount: &mut Mount, seed: u64, mut steps: Vec<Step>, mut difference: Difference) {
    steps.truncate(difference.index + 1);
    let steps = shrink(steps, SHRINK_RUNS_MAX, &mut |candidate: &[Step]| {
        compare(mount, is_direct(seed), candidate).is_err_and(|found| {
            difference = *found;
            true
        })
    });
    panic!("seed {seed}: {difference}\nin\n{}", print_steps(&steps));
}

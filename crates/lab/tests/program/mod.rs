//! The program `novale`, for tests of its mount.

use std::fs::File;
use std::path::PathBuf;

/// The program that cargo built next to this test, or why the test cannot run.
pub(crate) fn built() -> Result<PathBuf, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("not root".to_owned());
    }
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device.map_err(|why| format!("/dev/fuse: {why}"))?;
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("novale");
    if program.exists() {
        Ok(program)
    } else {
        Err(format!("no {}: cargo build -p novale-cli", program.display()))
    }
}

//! The folder where programs under `novale run` keep what they have found out about libraries.

use std::cmp::Reverse;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Of the administrator, whose programs may go on as other users, who read there what is theirs too.
const ROOTS_CACHE: &str = "/var/cache";
/// Of folders that are made for it.
const CACHE_MODE: u32 = 0o755;
/// What names begin with, and how many of them are kept: images of libc, one for each of its builds and of
/// this program's, of a megabyte; tables, of each text of a build of a library, of a few bytes to a few
/// KB.
const KEPT: [(&str, usize); 2] = [("text-", 8), ("calls-", 4096)];

/// The user's folder for what can be made again, chosen here once for all that is started: programs set
/// `HOME` to what they like. `None` where there is none. It is of code that programs load, so nobody else may
/// write there, whatever the umask is.
pub(super) fn folder() -> Option<PathBuf> {
    let own = rustix::process::geteuid();
    let given = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = || {
        if own.is_root() {
            Some(PathBuf::from(ROOTS_CACHE))
        } else {
            Some(given("HOME")?.join(".cache"))
        }
    };
    // An administrator may have a user's environment (`su`).
    let is_good = |folder: &PathBuf| !own.is_root() || is_roots(folder);
    let asked = given("XDG_CACHE_HOME").filter(is_good);
    let while_logged_in = || given("XDG_RUNTIME_DIR").filter(is_good);
    let all = [asked.or_else(of_user), while_logged_in()];
    let folder = all.into_iter().flatten().find(|folder| !is_by_fuse(folder))?.join("novale");
    DirBuilder::new().recursive(true).mode(CACHE_MODE).create(&folder).ok()?;
    let found = folder.symlink_metadata().ok()?;
    if !found.is_dir() || ![0, own.as_raw()].contains(&found.uid()) {
        return None;
    }
    // Of an earlier version, under another umask.
    if found.mode() & 0o022 != 0 {
        fs::set_permissions(&folder, Permissions::from_mode(CACHE_MODE)).ok()?;
    }
    if found.uid() == own.as_raw() {
        forget_old(&folder).unwrap_or_default();
    }
    Some(folder)
}

/// Whether what is kept there is read by a daemon: who runs code of it ends with that one.
fn is_by_fuse(folder: &Path) -> bool {
    const FUSE: i64 = 0x6573_5546;
    let there = folder.ancestors().find_map(|folder| rustix::fs::statfs(folder).ok());
    there.is_some_and(|there| there.f_type == FUSE)
}

/// When the folder was last looked through for what is old: the time of a file in it.
const LOOKED: &str = "looked";

/// Whether nothing has come into the folder since it was looked through. With thousands of files that takes longer
/// than a program takes to start.
fn is_as_it_was(folder: &Path) -> bool {
    let changed = |path: &Path| path.symlink_metadata().and_then(|found| found.modified()).ok();
    changed(&folder.join(LOOKED)) >= changed(folder)
}

/// Removes what was made first where there is too much. Programs that use it have it mapped or read it, and
/// one that starts later and finds none makes it again.
fn forget_old(folder: &Path) -> std::io::Result<()> {
    if is_as_it_was(folder) {
        return Ok(());
    }
    let mut kept = KEPT.map(|(kind, most)| (kind, most, Vec::new()));
    for entry in folder.read_dir()?.flatten() {
        let name = entry.file_name();
        let is_of = |kind: &str| name.as_bytes().starts_with(kind.as_bytes());
        kept.iter_mut()
            .filter(|(kind, ..)| is_of(kind))
            .for_each(|(.., all)| all.push(entry.path()));
    }
    for (_, most, all) in kept.iter_mut().filter(|(_, most, all)| all.len() > *most) {
        all.sort_by_cached_key(|file| {
            Reverse(file.symlink_metadata().and_then(|found| found.modified()).ok())
        });
        all.iter().skip(*most).for_each(|file| fs::remove_file(file).unwrap_or_default());
    }
    let looked = folder.join(LOOKED);
    let mut how = fs::OpenOptions::new();
    let file = how.write(true).create(true).truncate(false).mode(0o644).open(looked)?;
    file.set_modified(std::time::SystemTime::now())
}

/// Whether the administrator alone says where a path leads, as far as it is there.
fn is_roots(path: &Path) -> bool {
    let Some(there) = path.ancestors().find_map(|path| path.canonicalize().ok()) else {
        return false;
    };
    path.ancestors().chain(there.ancestors()).all(|folder| match folder.symlink_metadata() {
        // In a sticky one others can't put anything in the place of what is there.
        Ok(found) => found.uid() == 0 && (found.is_symlink() || found.mode() & 0o1002 != 0o002),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    })
}

//! Hashes the sources of all that works on an arena: two programs may share one only if they have the
//! same idea of every word in it, and of the order in which words change; and of the names by which one
//! asks another's mount for an inode.

use std::path::{Path, PathBuf};

/// This crate and those below it, from this crate's folder.
const FOLDERS: [&str; 5] = ["src", "../arena/src", "../layout/src", "../pm/src", "../policy/src"];
/// How a program hands what it has open to the kernel, through the mount.
const NAMES: &str = "../fuse/src/by_number.rs";
/// Folders below another, at most.
const DEPTH_MAX: u32 = 8;

fn main() -> std::io::Result<()> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        println!("cargo:rerun-if-changed={folder}");
        // A crate that was taken out of this tree has its own folder alone.
        if Path::new(folder).is_dir() {
            collect(Path::new(folder), DEPTH_MAX, &mut files)?;
        }
    }
    println!("cargo:rerun-if-changed={NAMES}");
    files.extend(Some(PathBuf::from(NAMES)).filter(|file| file.is_file()));
    files.sort();
    let mut hash = fnv(0xcbf2_9ce4_8422_2325, env!("CARGO_PKG_VERSION").as_bytes());
    for file in files {
        hash = fnv(hash, file.to_string_lossy().as_bytes());
        hash = fnv(hash, &std::fs::read(&file)?);
    }
    println!("cargo:rustc-env=NOVALE_ARENA_ABI={hash}");
    Ok(())
}

fn collect(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && depth > 0 {
            collect(&path, depth - 1, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, carried on.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

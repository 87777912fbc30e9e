//! Operations, each within a function of its own, for `scripts/walk.sh` to count what they run:
//! `walk overwrite|append|create|rename|whole|read COUNT`.

use std::hint::black_box;

use novale_arena::Arena;
use novale_core::{
    Ctx, FileKind, Form, Fs, Ino, NewInode, Node, OpenOptions, RenameMode, Result, Serial, mkfs,
};
use novale_pm::{Pm, PmOptions};

const CTX: Ctx = Ctx { now_ns: 1, hint: 0 };
const NEW: NewInode<'static> =
    NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
const FOLDER: NewInode<'static> = NewInode { kind: FileKind::Directory, mode: 0o755, ..NEW };
const FILE_BYTES: usize = 1 << 20;
/// Operations before those that are counted: logs and directories have grown, views are loaded.
const WARM_UP: u64 = 200;
/// The same of overwrites: each page of the file has its second copy then.
const WARM_UP_PAGES: u64 = 1000;
const PAGES: u64 = FILE_BYTES as u64 / 4096;

type Operation = fn(&Bed, u64) -> Result<()>;

struct Bed {
    fs: Fs,
    file: Ino,
    folders: [Node; 2],
}

fn bed() -> std::result::Result<Bed, Box<dyn std::error::Error>> {
    let pm = Pm::anonymous(&[64 << 20], &PmOptions::default())?;
    mkfs(&pm, &novale_posix::mkfs_options(Some(1), 1))?;
    let options = OpenOptions { form: Form::Single, ..OpenOptions::default() };
    let fs = Fs::open(pm, Arena::anonymous(64 << 20)?, &options, &Serial, &|_| {})?;
    let file = fs.create(&CTX, Node::ROOT, b"file", &NEW)?.ino;
    fs.write(&CTX, file, 0, &vec![1; FILE_BYTES])?;
    let folder = |name: &[u8]| {
        fs.create(&CTX, Node::ROOT, name, &FOLDER).map(|attr| Node::current(attr.ino))
    };
    let folders = [folder(b"one")?, folder(b"other")?];
    let [first, _] = folders;
    fs.create(&CTX, first, b"moved", &NEW)?;
    Ok(Bed { fs, file, folders })
}

fn name_of(step: u64) -> String {
    format!("name{step:04}")
}

/// A line of the page with that number.
fn pair(bed: &Bed, step: u64) -> Result<()> {
    let offset = (step * 4096 + 1920) % FILE_BYTES as u64;
    bed.fs.write(&CTX, bed.file, offset, black_box(&[2; 64])).map(drop)
}

fn overwrite(bed: &Bed, step: u64) -> Result<()> {
    let offset = step * 67 * 64 % FILE_BYTES as u64;
    bed.fs.write(&CTX, bed.file, offset, black_box(&[2; 64])).map(drop)
}

/// A whole page, which has a second copy.
fn whole(bed: &Bed, step: u64) -> Result<()> {
    let offset = step * 4096 % FILE_BYTES as u64;
    bed.fs.write(&CTX, bed.file, offset, black_box(&[2; 4096])).map(drop)
}

/// Sixteen pages, each with a second copy that has a line.
fn read(bed: &Bed, step: u64) -> Result<()> {
    let offset = step * 65_536 % FILE_BYTES as u64;
    bed.fs.read(&CTX, bed.file, offset, black_box(&mut vec![0; 65_536])).map(drop)
}

fn append(bed: &Bed, _: u64) -> Result<()> {
    bed.fs.append(&CTX, bed.file, black_box(&[3; 64])).map(drop)
}

fn create(bed: &Bed, step: u64) -> Result<()> {
    let [folder, _] = bed.folders;
    bed.fs.create(&CTX, folder, name_of(step).as_bytes(), black_box(&NEW)).map(drop)
}

fn rename(bed: &Bed, step: u64) -> Result<()> {
    let [one, other] = bed.folders;
    let (from, to) = if step.is_multiple_of(2) { (one, other) } else { (other, one) };
    bed.fs.rename(&CTX, from, b"moved", to, b"moved", RenameMode::Replace)
}

#[inline(never)]
fn walked_overwrite(bed: &Bed, step: u64) -> Result<()> {
    overwrite(bed, step)
}

#[inline(never)]
fn walked_whole(bed: &Bed, step: u64) -> Result<()> {
    whole(bed, step)
}

#[inline(never)]
fn walked_read(bed: &Bed, step: u64) -> Result<()> {
    read(bed, step)
}

#[inline(never)]
fn walked_append(bed: &Bed, step: u64) -> Result<()> {
    append(bed, step)
}

#[inline(never)]
fn walked_create(bed: &Bed, step: u64) -> Result<()> {
    create(bed, step)
}

#[inline(never)]
fn walked_rename(bed: &Bed, step: u64) -> Result<()> {
    rename(bed, step)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [operation, count] = &arguments[..] else {
        return Err("walk overwrite|append|create|rename|whole|read COUNT".into());
    };
    let (warm, walked): (Operation, Operation) = match operation.as_str() {
        "overwrite" => (overwrite, walked_overwrite),
        // A line of each page is in its second copy then.
        "whole" | "read" => (pair, if operation == "whole" { walked_whole } else { walked_read }),
        "append" => (append, walked_append),
        "create" => (create, walked_create),
        "rename" => (rename, walked_rename),
        other => return Err(format!("no operation `{other}`").into()),
    };
    let (bed, count) = (bed()?, count.parse::<u64>()?);
    let first = match operation.as_str() {
        "overwrite" => WARM_UP_PAGES,
        "whole" | "read" => PAGES,
        _ => WARM_UP,
    };
    for step in 0..first {
        warm(&bed, step)?;
    }
    for step in first..first + count {
        if operation == "whole" {
            pair(&bed, step)?;
        }
        walked(&bed, step)?;
    }
    Ok(())
}

//! Verification of a pool, read-only: every inode's lines and log, every page accounted for exactly
//! once, names against link counts, reachability from the root, the saved allocator.
//!
//! A pool that was not closed clean is judged as recovery would leave it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_layout::{Entry, FileKind, INODES_PER_CHUNK, Ino, PmAddr, Seed};
use novale_pm::Pm;

use crate::error::{Error, Result};
use crate::exec::{Executor, Progress};
use crate::log::{self, Item, LogId};
use crate::pool::Pool;
use crate::recover::coverage::{Mapping, resolve};
use crate::recover::journal::{self, Journal};
use crate::recover::marks::PageMarks;
use crate::recover::{saved, scan, standing};

/// Inodes of one task.
const TASK_INODES: u64 = 256;
/// Findings kept; more are only counted.
const FINDINGS_MAX: usize = 10_000;

/// Something that contradicts the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where it lies; null where no one place is at fault.
    pub at: PmAddr,
    /// What is wrong.
    pub what: String,
}

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// What is wrong, the first 10,000.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_left_out: u64,
    /// The pool was closed clean; otherwise it was judged as recovery would leave it.
    pub clean: bool,
    /// A superblock or slot header had to be read from its replica.
    pub from_replica: bool,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Names in all directories.
    pub names: u64,
    /// Log entries read.
    pub log_entries: u64,
    /// Pages in use.
    pub pages_used: u64,
    /// Pages in all.
    pub pages: u64,
}

/// What the second pass needs of an inode.
struct Seen {
    generation: u32,
    kind: FileKind,
    nlink: u32,
}

/// A live name: directory, and what it says of its inode.
struct NameSeen {
    dir: Ino,
    ino: Ino,
    generation: u32,
    kind: FileKind,
}

#[derive(Default)]
struct Gathered {
    inodes: HashMap<Ino, Seen>,
    names: Vec<NameSeen>,
    findings: Vec<Finding>,
    log_entries: u64,
}

struct Checker<'a> {
    pm: &'a Pm,
    seed: Seed,
    session: u32,
    journal: &'a Journal,
    chunks: &'a [PmAddr],
    pages: &'a PageMarks,
}

/// Checks a pool. Nothing is changed.
///
/// # Errors
/// [`Error::BadPool`] and [`Error::Damaged`] where too little can be read to check the rest; all
/// else is a finding.
pub fn check(
    pm: &Pm,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<CheckReport> {
    let pool = Pool::read(pm)?;
    let (seed, session) = (pool.seed, pool.state.session);
    let lanes = journal::lane_pages(pm, pool.superblock.lane_count)?;
    let (chunks, directory_pages) = scan::chunks(pm, pool.superblock.roots.inode_directory)?;
    let mut journal = Journal::read(pm, seed, &lanes)?;
    journal.judge(pm, seed, session, &|ino| scan::place_in(&chunks, seed, ino))?;
    let pages = PageMarks::new(pool.slots.iter().map(|(header, _)| header.pages).collect());
    let mut gathered = Gathered::default();
    if let Err(error) = scan::mark_fixed(&pool, &pages, &lanes, (&chunks, &directory_pages)) {
        gathered.findings.push(finding(&error));
    }
    let checker = Checker {
        pm,
        seed,
        session,
        journal: &journal,
        chunks: &chunks,
        pages: &pages,
    };
    checker.inodes(exec, progress, &mut gathered);
    check_names(&mut gathered);
    let mut findings = std::mem::take(&mut gathered.findings);
    findings.extend(check_saved(pm, &pool, chunks.len(), &pages, &gathered));
    let kept = findings.len().min(FINDINGS_MAX);
    let left_out = (findings.len() - kept) as u64;
    findings.truncate(kept);
    let is_dir = |seen: &&Seen| seen.kind == FileKind::Directory;
    Ok(CheckReport {
        findings,
        findings_left_out: left_out,
        clean: pool.is_clean(),
        from_replica: pool.from_replica,
        inodes: gathered.inodes.len() as u64,
        directories: gathered.inodes.values().filter(is_dir).count() as u64,
        names: gathered.names.len() as u64,
        log_entries: gathered.log_entries,
        pages_used: pages.used(),
        pages: pool.slots.iter().map(|(header, _)| header.pages).sum(),
    })
}

fn finding(error: &Error) -> Finding {
    let at = match error {
        Error::Damaged { at, .. } => *at,
        _ => PmAddr::NULL,
    };
    Finding {
        at,
        what: error.to_string(),
    }
}

impl Checker<'_> {
    fn inodes(
        &self,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
        all: &mut Gathered,
    ) {
        let total = self.chunks.len() as u64 * INODES_PER_CHUNK;
        let done = AtomicU64::new(0);
        let shared = Mutex::new(std::mem::take(all));
        exec.run(
            usize::try_from(total / TASK_INODES).unwrap_or(usize::MAX),
            &|task| {
                let first = task as u64 * TASK_INODES;
                let mut block = Gathered::default();
                for number in first.max(1)..first + TASK_INODES {
                    if let Err(error) = self.inode(Ino::new(number), &mut block) {
                        block.findings.push(finding(&error));
                    }
                }
                let done = done.fetch_add(TASK_INODES, Ordering::Relaxed) + TASK_INODES;
                progress(Progress {
                    what: "checking inodes",
                    done,
                    total,
                });
                let mut all = shared
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                all.inodes.extend(block.inodes);
                all.names.extend(block.names);
                all.findings.extend(block.findings);
                all.log_entries += block.log_entries;
            },
        );
        *all = shared
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // Tasks end in any order; the report does not show it.
        all.findings.sort_by_key(|finding| finding.at);
    }

    fn inode(&self, ino: Ino, all: &mut Gathered) -> Result<()> {
        let place = scan::place_in(self.chunks, self.seed, ino)?;
        let standing =
            standing::decide(self.pm, self.seed, self.session, self.journal, ino, &place)?;
        let Some(standing) = standing.filter(|standing| standing.line.nlink > 0) else {
            return Ok(());
        };
        let line = standing.line;
        let identity = standing
            .identity
            .map_err(|error| Error::damaged_inode(ino, "identity line", place.addr, error))?;
        let (generation, kind) = (identity.generation, identity.kind);
        all.inodes.insert(
            ino,
            Seen {
                generation,
                kind,
                nlink: line.nlink,
            },
        );
        let id = LogId::new(self.seed, ino, generation);
        let owner = || format!("inode {}", ino.get());
        let mut mappings = Vec::new();
        let mut names = BTreeMap::new();
        log::walk(self.pm, &id, line.log_head, line.log_tail, &mut |item| {
            let Item::Entry {
                addr: at,
                header,
                entry,
                ..
            } = item
            else {
                let Item::Page { addr, .. } = item else {
                    return Ok(());
                };
                return self.pages.mark(addr, 1, &owner);
            };
            all.log_entries += 1;
            if header.op_seq > line.op_seq {
                let found = format!("op_seq {} above the inode's {}", header.op_seq, line.op_seq);
                return Err(Error::damaged_inode(ino, "log entry", at, found));
            }
            let fits = match entry {
                Entry::Write {
                    file_page,
                    addr,
                    count,
                    ..
                } => {
                    let first = file_page.get();
                    let end = if *count == u32::MAX {
                        u64::MAX
                    } else {
                        first + u64::from(*count)
                    };
                    mappings.push(Mapping {
                        first,
                        end,
                        addr: *addr,
                    });
                    kind != FileKind::Directory
                }
                Entry::DentryAdd {
                    cookie,
                    ino,
                    generation,
                    kind: named,
                    name,
                } => {
                    names.insert(
                        *cookie,
                        (*ino, *generation, *named, name.as_bytes().to_vec()),
                    );
                    kind == FileKind::Directory
                }
                Entry::DentryDelete { cookie, .. } => {
                    names.remove(cookie);
                    kind == FileKind::Directory
                }
                Entry::Attributes(_) => true,
                Entry::Words(_) => false,
            };
            if fits {
                return Ok(());
            }
            Err(Error::damaged_inode(
                ino,
                "log entry",
                at,
                format!("{:?} in a {kind:?}", header.kind),
            ))
        })?;
        resolve(&mappings, &mut |_, extent| {
            self.pages.mark(extent.addr, extent.pages, &owner)
        })?;
        if kind == FileKind::Directory && line.size != names.len() as u64 {
            all.findings.push(Finding {
                at: place.addr,
                what: format!(
                    "directory {} counts {} names, its log has {}",
                    ino.get(),
                    line.size,
                    names.len()
                ),
            });
        }
        let mut once = HashSet::new();
        for (ino_named, generation, kind, name) in names.into_values() {
            if !once.insert(name.clone()) {
                let name = String::from_utf8_lossy(&name).into_owned();
                let what = format!("directory {} has the name {name:?} twice", ino.get());
                all.findings.push(Finding {
                    at: place.addr,
                    what,
                });
            }
            all.names.push(NameSeen {
                dir: ino,
                ino: ino_named,
                generation,
                kind,
            });
        }
        Ok(())
    }
}

/// Names against inodes: existence, generation, kind, link counts, reachability.
fn check_names(all: &mut Gathered) {
    let mut found = Vec::new();
    let mut say = |what: String| {
        found.push(Finding {
            at: PmAddr::NULL,
            what,
        })
    };
    let mut links: HashMap<Ino, u32> = HashMap::new();
    let mut subdirs: HashMap<Ino, Vec<Ino>> = HashMap::new();
    for name in &all.names {
        let (dir, ino) = (name.dir.get(), name.ino.get());
        match all.inodes.get(&name.ino) {
            None => say(format!(
                "directory {dir} names inode {ino}, which is not in use"
            )),
            Some(seen) if seen.generation != name.generation || seen.kind != name.kind => {
                say(format!(
                    "directory {dir} names inode {ino} as {:?} of generation {}, it is {:?} of {}",
                    name.kind, name.generation, seen.kind, seen.generation
                ))
            }
            Some(_) => {}
        }
        *links.entry(name.ino).or_default() += 1;
        if name.kind == FileKind::Directory {
            subdirs.entry(name.dir).or_default().push(name.ino);
        }
    }
    for (ino, seen) in &all.inodes {
        let names = links.get(ino).copied().unwrap_or(0);
        let below = subdirs.get(ino).map_or(0, Vec::len);
        let is_dir = seen.kind == FileKind::Directory;
        let is_root = *ino == Ino::ROOT;
        let expected = if is_dir {
            2 + u32::try_from(below).unwrap_or(u32::MAX)
        } else {
            names
        };
        if seen.nlink != expected {
            say(format!(
                "inode {} has {} links, expected {expected}",
                ino.get(),
                seen.nlink
            ));
        }
        if is_dir && names != u32::from(!is_root) {
            say(format!("directory {} has {names} names", ino.get()));
        } else if !is_dir && names == 0 {
            say(format!("inode {} has no name", ino.get()));
        }
    }
    if !all.inodes.contains_key(&Ino::ROOT) {
        say("the root directory is gone".into());
    }
    let mut reached = HashSet::from([Ino::ROOT]);
    let mut open = vec![Ino::ROOT];
    while let Some(dir) = open.pop() {
        for below in subdirs.get(&dir).into_iter().flatten() {
            if reached.insert(*below) {
                open.push(*below);
            }
        }
    }
    for (ino, seen) in &all.inodes {
        if seen.kind == FileKind::Directory && !reached.contains(ino) {
            say(format!(
                "directory {} can't be reached from the root",
                ino.get()
            ));
        }
    }
    found.sort_by(|a, b| a.what.cmp(&b.what));
    all.findings.extend(found);
}

/// The saved allocator must say what the logs say.
fn check_saved(
    pm: &Pm,
    pool: &Pool,
    chunks: usize,
    pages: &PageMarks,
    all: &Gathered,
) -> Vec<Finding> {
    let saved = match saved::read(pm, pool, chunks) {
        Ok(Some(saved)) if pool.is_clean() => saved,
        Ok(_) => return Vec::new(),
        Err(error) => return vec![finding(&error)],
    };
    let mut findings = Vec::new();
    for (slot, (header, _)) in pool.slots.iter().enumerate() {
        let words = header.pages.div_ceil(64);
        let limit = header.pages % 64;
        for index in 0..words {
            let in_slot = if index + 1 == words && limit != 0 {
                (1 << limit) - 1
            } else {
                u64::MAX
            };
            let (said, is) = (
                saved.page_word(slot, index) & in_slot,
                pages.word(slot, index),
            );
            if said != is {
                let at = PmAddr::new(header.index, index * 64 * 4096);
                let (lost, taken) = ((said & !is).count_ones(), (is & !said).count_ones());
                let what = format!(
                    "saved allocator, 64 pages at {at}: {lost} in use without an owner, {taken} with an \
                     owner called free"
                );
                findings.push(Finding { at, what });
            }
        }
    }
    let wrong = (0..chunks as u64 * INODES_PER_CHUNK).filter(|number| {
        let ino = Ino::new(*number);
        let index = usize::try_from(ino.index() / 64).unwrap_or(usize::MAX);
        let chunk = usize::try_from(ino.chunk()).unwrap_or(usize::MAX);
        let said = saved.inode_word(chunk, index) >> (ino.index() % 64) & 1 == 1;
        *number != 0 && said != all.inodes.contains_key(&ino)
    });
    let wrong = wrong.count();
    if wrong > 0 {
        let what = format!("saved allocator: {wrong} inode numbers are wrongly in use or free");
        findings.push(Finding {
            at: pool.state.saved_root,
            what,
        });
    }
    findings
}

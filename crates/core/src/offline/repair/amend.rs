//! What is decided, carried out: copies for those that share pages, names, links, lost+found.
//!
//! Crash points. One commit an inode. A name in lost+found is committed before another of the same
//! inode goes, and the name of lost+found before lost+found itself: a crash between two leaves a
//! name too many, or counts that do not fit, which the next repair finds.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use novale_layout::{
    Attributes, Entry, FileKind, FilePage, IDENTITY_VERSION, INODES_PER_CHUNK, INODES_PER_PAGE,
    IdentityLine, Ino, Name as Text, PmAddr, WORDS_PER_PAGE,
};
use novale_pm::{Flushed, Purpose};

use crate::base::error::{Error, Result};
use crate::inode::media;
use crate::inode::numbers::stream_unwritten;
use crate::inode::state::InodePlace;
use crate::log::coverage::Mappings;
use crate::log::pairs::LoggedPairs;
use crate::offline::repair::gather::{Gathered, Inode};
use crate::offline::repair::names::{GatheredNames, Name};
use crate::offline::repair::salvage::attributes;
use crate::offline::repair::tree::{Plan, TreeNode};
use crate::offline::repair::write::Writer;
use crate::offline::repair::{HeldPages, Repair, tree};
use crate::pool::Pool;

const LOST_AND_FOUND: &str = "lost+found";
const LOST_AND_FOUND_MODE: u32 = 0o700;
/// Of a mode, what all but the owner may do.
const OTHERS_BITS: u32 = 0o077;

/// What is to become of a directory's names.
#[derive(Default)]
struct Edit {
    deleted: BTreeSet<u64>,
    added: Vec<Name>,
}

impl Repair<'_, '_> {
    /// Gives every file whose pages another inode has copies of its own: of what they held when the
    /// repair began, since some of them are no data, and change.
    pub(super) fn separate(
        &mut self,
        pool: &Pool,
        all: &mut Gathered,
        held: &HeldPages,
    ) -> Result<()> {
        for ino in all.sharing.clone() {
            let Some(mut inode) = all.inodes.remove(&ino) else { continue };
            let mut writer = self.writer(pool, all);
            let (mut entries, mut pending) = (Vec::new(), Flushed::none());
            for (file_page, from) in all.shared_pages(&inode) {
                let addr = writer.take_page()?;
                let bytes = match held.get(&(ino, file_page)) {
                    Some(held) => held.clone(),
                    None => inode.page_bytes(self.pm, file_page, from)?,
                };
                pending = pending.and(self.pm.stream(addr, &bytes, Purpose::Data));
                let file_page = FilePage::new(file_page);
                entries.push(Entry::Write { file_page, addr, count: 1, snapshot_epoch: 0 });
            }
            writer.commit_recorded(pool, &mut inode, &entries, pending, |_| ())?;
            let what = format!(
                "inode {ino} had {} pages that others have too: it has copies of its own now",
                entries.len()
            );
            self.changed(inode.place.addr, what);
            all.inodes.insert(ino, inode);
        }
        Ok(())
    }

    /// What the pages hold that files share with others.
    pub(super) fn held(&self, all: &Gathered) -> Result<HeldPages> {
        let mut held = HeldPages::new();
        let sharing = all.sharing.iter().filter_map(|ino| all.inodes.get(ino));
        for inode in sharing {
            for (file_page, from) in all.shared_pages(inode) {
                match inode.page_bytes(self.pm, file_page, from) {
                    Ok(bytes) => drop(held.insert((inode.ino, file_page), bytes)),
                    // In part in a slot that is not there: such pages go.
                    Err(Error::Lost(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(held)
    }

    /// Brings names, links and directories in agreement.
    pub(super) fn amend(&mut self, pool: &Pool, all: &mut Gathered) -> Result<()> {
        let nodes = nodes(all, &self.older);
        let mut plan = tree::solve(&nodes);
        self.tell(&plan);
        let mut edits: BTreeMap<Ino, Edit> = BTreeMap::new();
        for removed in &plan.removed {
            edits.entry(removed.dir).or_default().deleted.insert(removed.name.cookie);
        }
        for (ino, node) in &nodes {
            let twice = node
                .names
                .windows(2)
                .filter(|pair| matches!(pair, [first, second] if first.cookie == second.cookie));
            for cookie in twice.filter_map(|pair| pair.first().map(|name| name.cookie)) {
                edits.entry(*ino).or_default().deleted.insert(cookie);
                let what =
                    format!("directory {ino} has two names of cookie {cookie}: given new ones");
                self.changed(PmAddr::NULL, what);
            }
        }
        readd(&plan, &nodes, &mut edits);
        let made = self.name_the_lost(pool, all, &nodes, &mut plan, &mut edits)?;
        // The root first, which names lost+found, then that one, then where names go.
        let first = [Some(Ino::ROOT), made];
        let rest: Vec<Ino> = edits.keys().copied().collect();
        for ino in first.into_iter().flatten().chain(rest) {
            if let Some(edit) = edits.remove(&ino) {
                self.apply(pool, all, &plan, ino, &edit)?;
            }
        }
        let inos: Vec<Ino> = all.inodes.keys().copied().collect();
        for ino in inos {
            self.apply(pool, all, &plan, ino, &Edit::default())?;
        }
        Ok(())
    }

    fn tell(&mut self, plan: &Plan) {
        for removed in &plan.removed {
            let text = removed.name.text.escape_ascii();
            let what =
                format!("directory {}: name \"{text}\" taken out: {}", removed.dir, removed.why);
            self.changed(PmAddr::NULL, what);
        }
    }

    /// Gives names to what has none, in a lost+found that is made where there is none that who repairs alone may enter: whoever
    /// else has made one, or may look into it, would come to files that lay in directories closed to them. Returns its
    /// number.
    fn name_the_lost(
        &mut self,
        pool: &Pool,
        all: &mut Gathered,
        nodes: &BTreeMap<Ino, TreeNode>,
        plan: &mut Plan,
        edits: &mut BTreeMap<Ino, Edit>,
    ) -> Result<Option<Ino>> {
        if plan.lost.is_empty() {
            return Ok(None);
        }
        let go = plan.removed.iter().filter(|removed| removed.dir == Ino::ROOT);
        let go: HashSet<&Name> = go.map(|removed| &removed.name).collect();
        let root = nodes.get(&Ino::ROOT).map(|node| node.names.as_slice()).unwrap_or_default();
        let kept = |text: &str| {
            root.iter().find(|name| name.text == text.as_bytes() && !go.contains(name)).cloned()
        };
        let is_own = |inode: &Inode| is_alone_of(inode, self.help.owner.0);
        let mut text = LOST_AND_FOUND.to_owned();
        let mut number = 1;
        let found = loop {
            match kept(&text) {
                Some(name) if all.inodes.get(&name.ino).is_some_and(is_own) => {
                    break Some(name.ino);
                }
                None => break None,
                Some(_) => {
                    number += 1;
                    text = format!("{LOST_AND_FOUND}.{number}");
                }
            }
        };
        let dir = match found {
            Some(dir) => dir,
            None => self.make_lost_and_found(pool, all, plan, edits, text.as_bytes())?,
        };
        let known = nodes.get(&dir).map(|node| node.names.as_slice()).unwrap_or_default();
        let mut taken: BTreeSet<Vec<u8>> = known.iter().map(|name| name.text.clone()).collect();
        for ino in plan.lost.clone() {
            let Some(node) = nodes.get(&ino) else { continue };
            let mut name = format!("#{ino}");
            while !taken.insert(name.clone().into_bytes()) {
                name.push_str(".2");
            }
            self.changed(
                PmAddr::NULL,
                format!("inode {ino} had no name: it is /{text}/{name} now"),
            );
            let (generation, kind) = (node.generation, node.kind);
            let name = Name { cookie: 0, ino, generation, kind, text: name.into_bytes() };
            edits.entry(dir).or_default().added.push(name);
            if kind == FileKind::Directory {
                *plan.links.entry(dir).or_default() += 1;
            }
        }
        Ok(Some(dir))
    }

    /// A new directory, with its name in the root; it is committed with its own names.
    fn make_lost_and_found(
        &mut self,
        pool: &Pool,
        all: &mut Gathered,
        plan: &mut Plan,
        edits: &mut BTreeMap<Ino, Edit>,
        text: &[u8],
    ) -> Result<Ino> {
        let (ino, place) = self.free_number(pool, all)?;
        let (state, generation) = media::free_inode(self.pm, &place, ino, pool.state.session)?;
        let kind = FileKind::Directory;
        let generation = generation + 1;
        let (uid, gid) = self.help.owner;
        let identity = IdentityLine {
            version: IDENTITY_VERSION,
            kind,
            policy: 0,
            ino,
            generation,
            mode: LOST_AND_FOUND_MODE,
            uid,
            gid,
            birth_ns: self.help.now_ns,
            rdev: 0,
            flags: 0,
            project: 0,
            xattr_root: PmAddr::NULL,
        };
        let line = state.line(pool.state.session, None);
        let times = (self.help.now_ns, self.help.now_ns);
        let line = novale_layout::CommitLine {
            log_head: PmAddr::NULL,
            log_tail: PmAddr::NULL,
            size: 0,
            mtime_ns: times.0,
            ctime_ns: times.1,
            nlink: 0,
            ..line
        };
        all.inodes.insert(
            ino,
            Inode {
                ino,
                place,
                identity: Some(identity),
                line,
                slot: Some(state.slot),
                is_torn: false,
                op_seq_max: state.op_seq,
                page_seq: 0,
                read_to: PmAddr::NULL,
                attributes: None,
                is_xattr_harmless: true,
                features: 0,
                own_pages: Vec::new(),
                names: GatheredNames::default(),
                mappings: Mappings::default(),
                pairs: LoggedPairs::default(),
                owed: Vec::new(),
                torn_lines: Vec::new(),
                damage: None,
            },
        );
        plan.links.insert(ino, 2);
        *plan.links.entry(Ino::ROOT).or_default() += 1;
        let name = Name { cookie: 0, ino, generation, kind, text: text.to_vec() };
        edits.entry(Ino::ROOT).or_default().added.push(name);
        self.changed(place.addr, format!("/{} is made", text.escape_ascii()));
        Ok(ino)
    }

    /// A number that is not in use, and its place, which is made where there is none.
    fn free_number(&mut self, pool: &Pool, all: &mut Gathered) -> Result<(Ino, InodePlace)> {
        let total = all.chunks.len() as u64 * INODES_PER_CHUNK;
        let free = (1..total).map(Ino::new).filter(|ino| !all.inodes.contains_key(ino));
        let mut placed = free.filter_map(|ino| Some((ino, all.chunks.place(pool.seed, ino)?)));
        if let Some(found) = placed.next() {
            return Ok(found);
        }
        let tables = (0..).zip(all.chunks.iter()).flat_map(|(number, chunk): (u64, _)| {
            let empty = (0..WORDS_PER_PAGE).zip(&chunk.pages).filter(|(_, page)| page.is_null());
            empty.map(move |(index, _)| (number, chunk.table, index))
        });
        let (chunk, table, index) = tables.into_iter().next().ok_or(Error::NoSpace)?;
        let page = self.writer(pool, all).take_page()?;
        // Number 0 is nobody's, and its page is made with the pool.
        let ino = Ino::new(chunk * INODES_PER_CHUNK + index * INODES_PER_PAGE);
        self.pm.fence(stream_unwritten(self.pm, pool.seed, ino, page)).end();
        let word = self.pm.store_u64(table.add(index * 8), page.raw(), Purpose::Inode);
        self.pm.fence(self.pm.write_back(word)).end();
        Ok((ino, InodePlace::new(pool.seed, ino, page)))
    }

    pub(super) fn writer<'w>(&self, pool: &Pool, all: &'w Gathered) -> Writer<'w>
    where
        Self: 'w,
    {
        let slots = pool.slots.iter().map(|(header, _)| header.pages).collect();
        Writer::new(self.pm, pool.state.session, &all.marks, slots)
    }

    /// Commits what is to become of an inode, if anything is.
    fn apply(
        &mut self,
        pool: &Pool,
        all: &mut Gathered,
        plan: &Plan,
        ino: Ino,
        edit: &Edit,
    ) -> Result<()> {
        let Some(links) = plan.links.get(&ino).copied() else { return Ok(()) };
        let Some(mut inode) = all.inodes.remove(&ino) else { return Ok(()) };
        let is_new = !inode.is_in_use();
        let entries = entries(&mut inode, edit)?;
        let is_dir = inode.kind() == Some(FileKind::Directory);
        let size = if is_dir { inode.names.list.len() as u64 } else { inode.line.size };
        let same = (links, size) == (inode.line.nlink, inode.line.size) && entries.is_empty();
        if !same && !inode.is_used_up() {
            if inode.line.nlink != links && !is_new && edit.added.is_empty() {
                let found = inode.line.nlink;
                let what =
                    format!("inode {ino} has {links} links by its names, its line said {found}");
                self.changed(inode.place.addr, what);
            }
            if is_dir && entries.is_empty() && inode.line.size != size {
                let found = inode.line.size;
                let what = format!("directory {ino} has {size} names, its line said {found}");
                self.changed(inode.place.addr, what);
            }
            let identity = inode.identity.filter(|_| is_new);
            let pending = identity.map_or_else(Flushed::none, |identity| {
                inode.place.store_identity(self.pm, &identity.encode(inode.place.seed))
            });
            let mut writer = self.writer(pool, all);
            writer.commit_recorded(pool, &mut inode, &entries, pending, |line| {
                (line.nlink, line.size) = (links, size);
            })?;
        }
        all.inodes.insert(ino, inode);
        Ok(())
    }
}

/// Names that stay and share a cookie with one that goes are added anew.
fn readd(plan: &Plan, nodes: &BTreeMap<Ino, TreeNode>, edits: &mut BTreeMap<Ino, Edit>) {
    let go: HashSet<(Ino, &Name)> =
        plan.removed.iter().map(|removed| (removed.dir, &removed.name)).collect();
    for (dir, edit) in edits.iter_mut() {
        let Some(node) = nodes.get(dir) else { continue };
        let stay = node.names.iter().filter(|name| edit.deleted.contains(&name.cookie));
        let stay: Vec<Name> = stay.filter(|name| !go.contains(&(*dir, name))).cloned().collect();
        edit.added.extend(stay);
    }
}

/// The inodes in use as the decisions see them; `older` are those whose state may be an older one.
fn nodes(all: &Gathered, older: &BTreeSet<Ino>) -> BTreeMap<Ino, TreeNode> {
    let in_use = all.inodes.values().filter(|inode| inode.is_in_use());
    let node = |inode: &Inode| {
        let (generation, names) = (inode.generation(), inode.names.list.clone());
        let (links, is_older) = (inode.line.nlink, older.contains(&inode.ino));
        Some((inode.ino, TreeNode { generation, kind: inode.kind()?, links, names, is_older }))
    };
    in_use.filter_map(node).collect()
}

/// Whether it is a directory that only `user` may enter, or write to.
fn is_alone_of(inode: &Inode, user: u32) -> bool {
    let Attributes { uid, mode, .. } = attributes(inode);
    inode.kind() == Some(FileKind::Directory) && uid == user && mode & OTHERS_BITS == 0
}

/// The entries that carry out an edit; the inode's names are brought up to it.
fn entries(inode: &mut Inode, edit: &Edit) -> Result<Vec<Entry>> {
    let mut named: BTreeMap<u64, (Ino, u32)> = BTreeMap::new();
    inode.names.list.retain(|name| {
        let goes = edit.deleted.contains(&name.cookie);
        if goes {
            named.entry(name.cookie).or_insert((name.ino, name.generation));
        }
        !goes
    });
    let delete = |cookie: &u64| {
        let (ino, generation) = named.get(cookie).copied().unwrap_or((Ino::ROOT, 0));
        Entry::DentryDelete { ino, cookie: *cookie, generation }
    };
    let mut entries: Vec<Entry> = edit.deleted.iter().map(delete).collect();
    for name in &edit.added {
        let cookie = inode.names.take_cookie();
        let text = Text::new(&name.text)
            .map_err(|error| Error::damaged_inode(inode.ino, "name", inode.place.addr, error))?;
        let (ino, generation, kind) = (name.ino, name.generation, name.kind);
        entries.push(Entry::DentryAdd { ino, cookie, generation, kind, name: text });
        inode.names.list.push(Name { cookie, ..name.clone() });
    }
    Ok(entries)
}

//! An inode's extended attributes in memory: read from their chain of pages, changed, stored as a new
//! chain (docs/SPEC.md, "Extended attributes").
//!
//! Crash points. A new chain, and the pages of new values, are stored to pages that nothing names,
//! and fenced before the commit that names their root is stored. Before that commit is durable the old
//! root stands, with all its pages; after it the new one, and only then are the pages free that it
//! does not share.

use novale_layout::{
    Crc32c, FileKind, Ino, LayoutError, PAGE, PmAddr, XATTR_CHAIN_PAGES_MAX,
    XATTR_INLINE_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_PAYLOAD_BYTES_MAX, XATTR_PAYLOAD_OFFSET,
    XattrExtent, XattrNamespace, XattrPageHeader, XattrRecord, XattrValue,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::acl::Acl;
use crate::base::error::{Error, Result};
use crate::base::extent::{Extent, Extents, page_at};
use crate::fs::Fs;
use crate::inode::state::LogId;
use crate::inode::words::XattrSet;
use crate::op::call::Call;
use crate::space::{Need, Wanted};

const LINE_BYTES: usize = 64;
const PAYLOAD_BYTES: usize = XATTR_PAYLOAD_BYTES_MAX as usize;
const INLINE_BYTES: usize = XATTR_INLINE_BYTES_MAX as usize;
const CAPABILITY: &[u8] = b"capability";

impl XattrSet {
    /// Reads the first line of the chain at `root`, if there is one.
    pub(crate) fn read(pm: &Pm, id: &LogId, root: PmAddr) -> Result<Self> {
        if root.is_null() {
            return Ok(Self::default());
        }
        let header = read_header(pm, id, root)?;
        Ok(Self { root, pages: header.pages, summary: header.summary })
    }
}

fn damaged(id: &LogId, at: PmAddr, found: impl std::fmt::Display) -> Error {
    Error::damaged_inode(id.ino, "extended attributes", at, found)
}

fn read_header(pm: &Pm, id: &LogId, page: PmAddr) -> Result<XattrPageHeader> {
    if !page.is_page_aligned() || !pm.may_hold(page, PAGE) {
        return Err(damaged(id, page, "a page that is not in the pool"));
    }
    let line = pm.load_line(page)?;
    let header = XattrPageHeader::decode(&line, id.seed.addr(page))
        .map_err(|error| damaged(id, page, error))?;
    if (header.ino, header.generation) != (id.ino, id.generation) {
        let found = format!("those of inode {}", header.ino.get());
        return Err(damaged(id, page, found));
    }
    Ok(header)
}

/// The attributes of an inode, in ascending order of namespace and name.
///
/// While they are changed a value of any length may be `Inline`: [`Fs::ready_xattrs`] gives long ones
/// pages.
#[derive(Debug, Default)]
pub(crate) struct Xattrs {
    records: Vec<XattrRecord>,
    /// Pages that the changed attributes no longer have.
    dropped: Extents,
}

impl Xattrs {
    /// Reads and checks the chain at `root`; values in pages are left where they are. A page that
    /// changes meanwhile is refused, or the caller's sequence counter tells.
    pub(crate) fn read(pm: &Pm, id: &LogId, root: PmAddr) -> Result<Self> {
        let mut this = Self::default();
        if root.is_null() {
            return Ok(this);
        }
        let (first, chain, payload) = read_chain(pm, id, root)?;
        let mut rest = &payload[..];
        let mut pages = chain.len() as u64;
        while !rest.is_empty() {
            let at = payload.len() - rest.len();
            let page = chain.get(at / PAYLOAD_BYTES).copied().unwrap_or(root);
            let at = page.add(XATTR_PAYLOAD_OFFSET + (at % PAYLOAD_BYTES) as u64);
            let damaged = |error: LayoutError| damaged(id, at, error);
            let (record, behind) = XattrRecord::decode(rest).map_err(damaged)?;
            pages += check_extents(pm, id, at, &record.value)?;
            if this.records.last().is_some_and(|last| key_of(last) >= key_of(&record)) {
                return Err(self::damaged(id, at, "a name that is not behind the one before it"));
            }
            this.records.push(record);
            rest = behind;
        }
        if pages != u64::from(first.pages) || this.summary() != first.summary {
            let found = format!(
                "{pages} pages and summary {:#x}, the header says {} and {:#x}",
                this.summary(),
                first.pages,
                first.summary
            );
            return Err(damaged(id, root, found));
        }
        for page in chain {
            this.dropped.push_page(page);
        }
        Ok(this)
    }

    /// Every page of the attributes as they were read: those of the chain, and those of values.
    pub(crate) fn for_each_page(&self, visit: &mut dyn FnMut(Extent) -> Result<()>) -> Result<()> {
        let values = self.records.iter().flat_map(|record| extents_of(&record.value));
        self.dropped.iter().chain(values).try_for_each(visit)
    }

    /// The value of an attribute.
    pub(crate) fn get(&self, namespace: XattrNamespace, name: &[u8]) -> Option<&XattrValue> {
        let index = self.find(namespace, name).ok()?;
        self.records.get(index).map(|record| &record.value)
    }

    fn find(&self, namespace: XattrNamespace, name: &[u8]) -> Result<usize, usize> {
        self.records.binary_search_by(|record| key_of(record).cmp(&(namespace, name)))
    }

    /// Sets an attribute, whether it is there or not.
    pub(crate) fn set(&mut self, namespace: XattrNamespace, name: &[u8], value: &[u8]) {
        let value = XattrValue::Inline(value.to_vec());
        match self.find(namespace, name) {
            Ok(index) => {
                if let Some(record) = self.records.get_mut(index) {
                    let old = std::mem::replace(&mut record.value, value);
                    extents_of(&old).for_each(|extent| self.dropped.push(extent));
                }
            }
            Err(index) => {
                let record = XattrRecord { namespace, name: name.to_vec(), value };
                self.records.insert(index, record);
            }
        }
    }

    /// Names and values of those that have pages in a slot.
    pub(crate) fn in_slot(&self, slot: u8) -> Vec<(XattrNamespace, Vec<u8>, XattrValue)> {
        let has = |value| extents_of(value).any(|extent| extent.addr.slot() == slot);
        let records = self.records.iter().filter(|record| has(&record.value));
        records.map(|of| (of.namespace, of.name.clone(), of.value.clone())).collect()
    }

    /// Removes an attribute; says whether it was there.
    pub(crate) fn remove(&mut self, namespace: XattrNamespace, name: &[u8]) -> bool {
        let Ok(index) = self.find(namespace, name) else { return false };
        let record = self.records.remove(index);
        extents_of(&record.value).for_each(|extent| self.dropped.push(extent));
        true
    }

    /// Removes the file capabilities, as a change of owner, size or contents does.
    pub(crate) fn remove_capability(&mut self) {
        self.remove(XattrNamespace::Security, CAPABILITY);
    }

    /// All names with their prefixes, each ended by a NUL.
    pub(crate) fn names(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let shown = |record: &&XattrRecord| record.namespace != XattrNamespace::Quotas;
        for record in self.records.iter().filter(shown) {
            names.extend_from_slice(record.namespace.prefix());
            names.extend_from_slice(&record.name);
            names.push(0);
        }
        names
    }

    /// Whether any gives rights to who has or runs the inode, or to others.
    pub(crate) fn give_rights(&self) -> bool {
        self.records.iter().any(|record| match record.namespace {
            XattrNamespace::AclAccess | XattrNamespace::AclDefault | XattrNamespace::Security => {
                true
            }
            XattrNamespace::User | XattrNamespace::Trusted | XattrNamespace::Quotas => false,
        })
    }

    fn summary(&self) -> u32 {
        let bit = |record: &XattrRecord| match record.namespace {
            XattrNamespace::Security if record.name == CAPABILITY => {
                XattrPageHeader::HAS_CAPABILITY
            }
            XattrNamespace::AclAccess => XattrPageHeader::HAS_ACL_ACCESS,
            XattrNamespace::AclDefault => XattrPageHeader::HAS_ACL_DEFAULT,
            XattrNamespace::User
            | XattrNamespace::Trusted
            | XattrNamespace::Security
            | XattrNamespace::Quotas => 0,
        };
        self.records.iter().fold(0, |bits, record| bits | bit(record))
    }

    /// Checks the bytes of every value that lies in pages.
    pub(crate) fn check_values(&self, pm: &Pm, id: &LogId) -> Result<()> {
        self.records.iter().try_for_each(|record| value_bytes(pm, id, &record.value).map(drop))
    }

    /// Refuses an access control list that is none, and attributes that an inode of this kind, or any
    /// but the root, can't have.
    pub(crate) fn check_acls(&self, pm: &Pm, id: &LogId, kind: FileKind) -> Result<()> {
        for record in &self.records {
            let wrong = match record.namespace {
                XattrNamespace::AclDefault if kind != FileKind::Directory => true,
                XattrNamespace::AclAccess | XattrNamespace::AclDefault => {
                    let bytes = value_bytes(pm, id, &record.value)?;
                    !matches!(Acl::decode(&bytes), Ok(Some(_)))
                }
                XattrNamespace::Quotas => id.ino != Ino::ROOT,
                XattrNamespace::User | XattrNamespace::Trusted | XattrNamespace::Security => false,
            };
            if wrong {
                let found = format!("{:?} with what it can't be", record.namespace);
                return Err(damaged(id, self.root(), found));
            }
        }
        Ok(())
    }

    /// The first page of the chain, as it was read; null where there was none.
    fn root(&self) -> PmAddr {
        self.dropped.iter().next().map_or(PmAddr::NULL, |extent| extent.addr)
    }
}

fn key_of(record: &XattrRecord) -> (XattrNamespace, &[u8]) {
    (record.namespace, &record.name)
}

fn extents_of(value: &XattrValue) -> impl Iterator<Item = Extent> + '_ {
    let extents = match value {
        XattrValue::Inline(_) => &[][..],
        XattrValue::Paged { extents, .. } => extents,
    };
    extents.iter().map(|extent| Extent { addr: extent.addr, pages: extent.count.into() })
}

/// Refuses extents beyond the pool; returns their pages.
fn check_extents(pm: &Pm, id: &LogId, at: PmAddr, value: &XattrValue) -> Result<u64> {
    let mut pages = 0;
    for extent in extents_of(value) {
        if !pm.may_hold(extent.addr, extent.pages * PAGE) {
            let found =
                format!("{} pages at {}, which are not in the pool", extent.pages, extent.addr);
            return Err(damaged(id, at, found));
        }
        pages += extent.pages;
    }
    Ok(pages)
}

/// Reads a chain: the first header, the pages, the payload.
fn read_chain(
    pm: &Pm,
    id: &LogId,
    root: PmAddr,
) -> Result<(XattrPageHeader, Vec<PmAddr>, Vec<u8>)> {
    let first = read_header(pm, id, root)?;
    let (mut chain, mut payload) = (Vec::new(), Vec::new());
    let mut page = root;
    // Numbers that count on from 0 keep a damaged chain from being walked in a circle.
    for index in 0..XATTR_CHAIN_PAGES_MAX {
        let header = read_header(pm, id, page)?;
        let fits = header.page_index == index
            && (header.op_seq, header.pages, header.summary)
                == (first.op_seq, first.pages, first.summary);
        if !fits {
            let found = format!("page {} of another chain in place {index}", header.page_index);
            return Err(damaged(id, page, found));
        }
        let from = payload.len();
        payload.resize(from + header.payload_bytes as usize, 0);
        let bytes = payload.get_mut(from..).unwrap_or_default();
        pm.load(page.add(XATTR_PAYLOAD_OFFSET), bytes)?;
        let crc = crc_of(bytes);
        if crc != header.payload_crc {
            let found = format!(
                "payload checksum {:#010x}, its bytes have {crc:#010x}",
                header.payload_crc
            );
            return Err(damaged(id, page, found));
        }
        chain.push(page);
        if header.next.is_null() {
            return Ok((first, chain, payload));
        }
        if header.payload_bytes < XATTR_PAYLOAD_BYTES_MAX {
            return Err(damaged(id, page, "a page that is not full, and not the last"));
        }
        page = header.next;
    }
    Err(damaged(id, root, format!("more than {XATTR_CHAIN_PAGES_MAX} pages")))
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(bytes);
    crc.finish()
}

/// The bytes of a value, read from its pages where it has some.
pub(crate) fn value_bytes(pm: &Pm, id: &LogId, value: &XattrValue) -> Result<Vec<u8>> {
    let (len, crc, extents) = match value {
        XattrValue::Inline(bytes) => return Ok(bytes.clone()),
        XattrValue::Paged { len, crc, extents } => (*len as usize, *crc, extents),
    };
    let mut bytes = vec![0; len];
    let mut rest = &mut bytes[..];
    for extent in extents {
        let room = usize::try_from(u64::from(extent.count) * PAGE).unwrap_or(usize::MAX);
        let (now, later) = rest.split_at_mut(room.min(rest.len()));
        pm.load(extent.addr, now)?;
        rest = later;
    }
    let found = crc_of(&bytes);
    if found != crc {
        let at = extents.first().map_or(PmAddr::NULL, |extent| extent.addr);
        let found = format!("value checksum {crc:#010x}, its bytes have {found:#010x}");
        return Err(damaged(id, at, found));
    }
    Ok(bytes)
}

/// Changed attributes with pages to lie in, taken and not stored yet.
#[derive(Debug, Default)]
pub(crate) struct ReadyXattrs {
    pub(crate) set: XattrSet,
    payload: Vec<u8>,
    chain: Extents,
    values: Vec<(Extents, Vec<u8>)>,
    /// The pages that the commit frees.
    pub(crate) freed: Extents,
}

impl Fs {
    /// Takes the pages that changed attributes need: all that can fail. Nothing is stored.
    ///
    /// # Errors
    /// [`Error::NoSpace`], also for more names or records than an inode may have.
    pub(crate) fn ready_xattrs(&self, call: &Call<'_>, mut xattrs: Xattrs) -> Result<ReadyXattrs> {
        if xattrs.names().len() > XATTR_LIST_BYTES_MAX {
            return Err(Error::NoSpace);
        }
        let mut ready = ReadyXattrs::default();
        match self.take_xattr_pages(call, &mut xattrs, &mut ready) {
            Ok(()) => {
                ready.freed = xattrs.dropped;
                Ok(ready)
            }
            Err(error) => {
                self.unready_xattrs(call, &ready)?;
                Err(error)
            }
        }
    }

    fn take_xattr_pages(
        &self,
        call: &Call<'_>,
        xattrs: &mut Xattrs,
        ready: &mut ReadyXattrs,
    ) -> Result<()> {
        let summary = xattrs.summary();
        let mut pages = 0;
        // What takes no more pages than it gives back may use the reserve.
        let need = if xattrs.growth() > 0 { Need::Growth } else { Need::Release };
        for record in &mut xattrs.records {
            if let XattrValue::Inline(bytes) = &mut record.value
                && bytes.len() > INLINE_BYTES
            {
                let len = bytes.len() as u64;
                let taken = self.take_pages(call, Wanted::once(len.div_ceil(PAGE)), need)?;
                let bytes = std::mem::take(bytes);
                record.value = paged_value(&bytes, &taken);
                ready.values.push((taken, bytes));
            }
            pages += extents_of(&record.value).map(|extent| extent.pages).sum::<u64>();
            record.encode(&mut ready.payload);
        }
        if ready.payload.is_empty() {
            return Ok(());
        }
        let chain = ready.payload.len().div_ceil(PAYLOAD_BYTES) as u64;
        if chain > XATTR_CHAIN_PAGES_MAX.into() {
            return Err(Error::NoSpace);
        }
        ready.chain = self.take_pages(call, Wanted::once(chain), need)?;
        // A chain of 256 pages has no room for 2^28 pages of values.
        let pages = u32::try_from(pages + chain).unwrap_or(u32::MAX);
        ready.set = XattrSet { root: page_at(&ready.chain, 0), pages, summary };
        Ok(())
    }

    /// Gives the pages back: nothing is stored to them after all.
    pub(crate) fn unready_xattrs(&self, call: &Call<'_>, ready: &ReadyXattrs) -> Result<()> {
        self.give(call, &ready.chain)?;
        ready.values.iter().try_for_each(|(extents, _)| self.give(call, extents))
    }
}

impl Xattrs {
    /// Pages that a new chain and new values will take, about: how many extents a value will have is
    /// not known yet.
    fn needed_pages(&self) -> u64 {
        let (mut pages, mut payload) = (0, 0);
        for record in &self.records {
            match &record.value {
                XattrValue::Inline(bytes) if bytes.len() > INLINE_BYTES => {
                    pages += (bytes.len() as u64).div_ceil(PAGE);
                    payload += record.encoded_bytes() - bytes.len() + LINE_BYTES;
                }
                XattrValue::Inline(_) | XattrValue::Paged { .. } => {
                    payload += record.encoded_bytes();
                }
            }
        }
        pages + payload.div_ceil(PAYLOAD_BYTES) as u64
    }

    /// By how many pages the attributes grow, about, by what was changed.
    pub(crate) fn growth(&self) -> u64 {
        self.needed_pages().saturating_sub(self.dropped.pages())
    }
}

fn paged_value(bytes: &[u8], taken: &Extents) -> XattrValue {
    // Values end at 64 KB.
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let extents = taken
        .iter()
        .map(|extent| XattrExtent { addr: extent.addr, count: count(extent.pages) })
        .collect();
    XattrValue::Paged { len: count(bytes.len() as u64), crc: crc_of(bytes), extents }
}

impl ReadyXattrs {
    /// Whether there is anything to be stored before the commit.
    pub(crate) fn has_pages(&self) -> bool {
        !self.chain.is_empty()
    }

    /// Stores new values and the chain, for the commit of `op_seq`.
    pub(crate) fn store(&self, pm: &Pm, id: &LogId, op_seq: u64) -> Flushed {
        let mut pending = Flushed::none();
        for (extents, bytes) in &self.values {
            let mut rest = &bytes[..];
            for extent in extents.iter() {
                let room = usize::try_from(extent.pages * PAGE).unwrap_or(usize::MAX);
                let (now, later) = rest.split_at(room.min(rest.len()));
                pending = pending.and(pm.stream(extent.addr, now, Purpose::Data));
                rest = later;
            }
        }
        for (index, payload) in (0..).zip(self.payload.chunks(PAYLOAD_BYTES)) {
            let page = page_at(&self.chain, u64::from(index));
            let is_last = u64::from(index) + 1 == self.chain.pages();
            let header = XattrPageHeader {
                ino: id.ino,
                generation: id.generation,
                page_index: index,
                next: if is_last {
                    PmAddr::NULL
                } else {
                    page_at(&self.chain, u64::from(index) + 1)
                },
                op_seq,
                payload_bytes: u32::try_from(payload.len()).unwrap_or(u32::MAX),
                payload_crc: crc_of(payload),
                pages: self.set.pages,
                summary: self.set.summary,
            };
            let mut image = Vec::with_capacity(LINE_BYTES + payload.len());
            image.extend_from_slice(&header.encode(id.seed.addr(page)));
            image.extend_from_slice(payload);
            // Whole lines: a part of one would have to be read first.
            image.resize(image.len().next_multiple_of(LINE_BYTES), 0);
            pending = pending.and(pm.stream(page, &image, Purpose::Inode));
        }
        pending
    }
}

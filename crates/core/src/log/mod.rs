//! Inode logs: linked lists of 4 KB pages, walked from the head to the committed tail and
//! appended to after it (NOVA 3 and 4.1).
//!
//! Nothing after the tail is ever read, so entries may be stored there before their commit. The
//! word that links a page to the next one says where its entries end, which may be early, where the
//! next entry did not fit: nothing that is missing before that place passes for the end. Pages that a
//! log will need are taken ahead, doubling its length up to a step of 16, and linked only when used.

pub(crate) mod coverage;
pub(crate) mod covered;
pub(crate) mod entries;
pub(crate) mod pairs;
pub(crate) mod redo;
pub(crate) mod replay;

use novale_layout::{
    Crc32c, DataCrc, Entry, EntryHeader, LINE, LINES_PER_PAGE, LOG_NEXT_OFFSET, LayoutError,
    LogLink, LogPageHeader, PAGE, PmAddr,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extent, Extents};
use crate::inode::state::{LogId, State};
use crate::inode::view::View;
use crate::seeded::{self, Bug};
use crate::space::{Need, PageSource, Wanted};

/// Most pages by which a log grows at once.
pub(crate) const GROWTH_PAGES_MAX: u64 = 16;
/// Greatest number of pages of a file: 2^47 bytes.
pub(crate) const FILE_PAGES_MAX: u64 = 1 << 35;
const PAGE_BYTES: usize = 4096;
/// A log that ends by here in its page is read without room for the whole page.
const SHORT_LOG_BYTES: usize = 512;
const LINE_BYTES: usize = 64;

/// What a walk meets.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// A page of the log, before its entries.
    Page { addr: PmAddr, seq: u64 },
    /// An entry.
    Entry(Logged<'a>, &'a Entry),
}

/// Where an entry stands in its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Logged<'a> {
    pub(crate) addr: PmAddr,
    pub(crate) header: EntryHeader,
    pub(crate) bytes: &'a [u8],
    /// The link to its page, where it is the first there: of the log's first page its address alone.
    pub(crate) opens: Option<LogLink>,
}

impl Logged<'_> {
    /// The last line of the entry.
    pub(crate) fn last_line(&self) -> PmAddr {
        self.addr.add((u64::from(self.header.lines) - 1) * LINE)
    }
}

/// The page that holds `addr`.
pub(crate) fn page_of(addr: PmAddr) -> PmAddr {
    PmAddr::new(addr.slot(), addr.byte() & !(PAGE - 1))
}

/// Walks a log from `head` to the line `tail`.
pub(crate) fn walk(
    pm: &Pm,
    id: &LogId,
    head: PmAddr,
    tail: PmAddr,
    visit: &mut dyn FnMut(Item<'_>) -> Result<()>,
) -> Result<()> {
    if tail.is_null() {
        return Ok(());
    }
    walk_range(pm, id, head, Until::Line(tail), visit)?;
    Ok(())
}

/// Where a walk ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// With the entry whose last line this is.
    Line(PmAddr),
    /// Before this page. Its entries were checked, or written, in this session: their checksums
    /// are not looked at again.
    Page(PmAddr),
}

/// Walks from page `head` until the end given. Returns the `page_seq` of the last page seen.
pub(crate) fn walk_range(
    pm: &Pm,
    id: &LogId,
    head: PmAddr,
    until: Until,
    visit: &mut dyn FnMut(Item<'_>) -> Result<()>,
) -> Result<u64> {
    let (mut before, mut page, mut link) = (PmAddr::NULL, head, LogLink::page(head));
    let mut last_seq = None;
    let mut last_op = 0;
    // Most logs are a few lines: clearing a page for each would cost more than reading them.
    let (mut short, mut whole) = ([0; SHORT_LOG_BYTES], None::<Box<[u8; PAGE_BYTES]>>);
    loop {
        if matches!(until, Until::Page(end) if end == page) {
            return Ok(last_seq.unwrap_or(0));
        }
        let tail_end = match until {
            Until::Line(tail) if page_of(tail) == page => Some(offset_in_page(tail) + LINE_BYTES),
            Until::Line(_) | Until::Page(_) => None,
        };
        let len = tail_end.unwrap_or(PAGE_BYTES);
        let bytes = if len <= short.len() {
            short.get_mut(..len)
        } else {
            whole.get_or_insert_with(|| Box::new([0; PAGE_BYTES])).get_mut(..len)
        };
        let bytes = bytes.unwrap_or_default();
        if page.is_null() {
            return Err(Error::damaged_inode(id.ino, "log", before, "it ends before its tail"));
        }
        let loaded = pm.load(page, bytes);
        if let Err(error) = loaded
            && error.is_lost
        {
            return Err(error.into());
        }
        if !page.is_page_aligned() || loaded.is_err() {
            let found = "a page that is not in the pool";
            return Err(Error::damaged_inode(id.ino, "log", page, found));
        }
        let header = decode_header(bytes, id, page)?;
        // Rising numbers keep a damaged chain from being walked in a circle.
        if last_seq.is_some_and(|last| header.page_seq <= last) {
            let found = format!("page number {} behind {last_seq:?}", header.page_seq);
            return Err(Error::damaged_inode(id.ino, "log page", page, found));
        }
        last_seq = Some(header.page_seq);
        visit(Item::Page { addr: page, seq: header.page_seq })?;
        // A page that an earlier build filled may say nothing of its end: a blank line is there then.
        let end = tail_end.or(header.next.lines().map(end_of_lines));
        let entries = bytes.get(..end.unwrap_or(len)).unwrap_or_default();
        let walk = PageWalk { pm, trusted: matches!(until, Until::Page(_)), id, page, link };
        let reached = walk.entries(entries, &mut last_op, visit)?;
        if let Some(end) = end.filter(|end| *end != reached) {
            let by = if tail_end.is_some() { "tail" } else { "page" };
            let found = format!("entries end at byte {reached}, the {by} at {end}");
            return Err(Error::damaged_inode(id.ino, "log page", page, found));
        }
        if tail_end.is_some() {
            return Ok(header.page_seq);
        }
        (before, page, link) = (page, header.next.next(), header.next);
    }
}

fn offset_in_page(addr: PmAddr) -> usize {
    usize::try_from(addr.byte() % PAGE).unwrap_or(0)
}

/// The checked header of a log page whose bytes were read.
pub(crate) fn decode_header(bytes: &[u8], id: &LogId, page: PmAddr) -> Result<LogPageHeader> {
    let line = bytes.first_chunk::<LINE_BYTES>().ok_or(Error::Invalid("short log page"))?;
    LogPageHeader::decode(line, id.seed.addr(page))
        .map_err(|error| Error::damaged_inode(id.ino, "log page", page, error))
}

/// The offset in a page after so many lines of entries.
fn end_of_lines(lines: u64) -> usize {
    usize::try_from((lines + 1) * LINE).unwrap_or(PAGE_BYTES)
}

/// The bytes of a page up to where its header says that its entries end.
pub(crate) fn used_bytes(page: &[u8; PAGE_BYTES], header: LogPageHeader) -> &[u8] {
    page.get(..header.next.lines().map_or(PAGE_BYTES, end_of_lines)).unwrap_or(page)
}

/// A page of a log that is walked.
struct PageWalk<'a> {
    pm: &'a Pm,
    /// Its entries' checksums are not looked at.
    trusted: bool,
    id: &'a LogId,
    page: PmAddr,
    /// What led to it.
    link: LogLink,
}

impl PageWalk<'_> {
    /// Visits its entries; returns the offset after the last one.
    fn entries(
        &self,
        bytes: &[u8],
        last_op: &mut u64,
        visit: &mut dyn FnMut(Item<'_>) -> Result<()>,
    ) -> Result<usize> {
        let &Self { pm, trusted, id, page, link } = self;
        let mut at = LINE_BYTES;
        let mut entry = Entry::NONE;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let addr = page.add(at as u64);
            let decoded =
                if trusted { entry.reread_here(rest) } else { entry.decode_here(rest, id.seed) };
            let header = match decoded {
                Ok(decoded) => decoded,
                // Where the page's end is known the caller sees that it is not here.
                Err(LayoutError::Blank) => break,
                Err(error) => return Err(Error::damaged_inode(id.ino, "log entry", addr, error)),
            };
            // A page may hold entries of an earlier use of it by the same log: those are older.
            if header.op_seq < *last_op {
                let found = format!("op_seq {} behind {last_op}", header.op_seq);
                return Err(Error::damaged_inode(id.ino, "log entry", addr, found));
            }
            *last_op = header.op_seq;
            replay::check_extent(pm, id, addr, &entry)?;
            let len = usize::from(header.lines) * LINE_BYTES;
            let bytes = rest.get(..len).unwrap_or_default();
            let opens = (at == LINE_BYTES).then_some(link);
            visit(Item::Entry(Logged { addr, header, bytes, opens }, &entry))?;
            at += len;
        }
        Ok(at)
    }
}

/// Adds an entry to what a commit covers, with the whole link to its page where it is the first
/// there: of a link that a lost operation has left behind an earlier tail the end is another one.
pub(crate) fn cover_entry(crc: &mut DataCrc, opens: Option<LogLink>, bytes: &[u8]) {
    if let Some(link) = opens {
        let page_alone = seeded::is_on(Bug::PageEndUncovered);
        crc.link(if page_alone { LogLink::page(link.next()) } else { link });
    }
    crc.bytes(bytes);
}

/// The checksum of a data page.
pub(crate) fn page_crc(page: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(page);
    crc.finish()
}

/// Log pages made ready for entries that are about to be stored.
#[derive(Debug, Default)]
pub(crate) struct LogRoom {
    /// Pages, where the tail's has not enough lines left: boxed, since that is seldom.
    grown: Option<Box<Grown>>,
    /// What is left over for the next time.
    spare: Extent,
}

/// New pages of a log.
#[derive(Debug, Default)]
struct Grown {
    pages: Extents,
    /// Pages taken from the allocator: to be given back if nothing is stored.
    taken: Extents,
}

/// Lines left in the tail's page.
fn lines_left(tail: PmAddr) -> u64 {
    if tail.is_null() { 0 } else { LINES_PER_PAGE - 1 - tail.byte() % PAGE / LINE }
}

/// The link from the page of `tail`, whose entries end there, to `next`.
pub(crate) fn link_behind(tail: PmAddr, next: PmAddr) -> LogLink {
    LogLink::new(next, tail.byte() % PAGE / LINE)
}

/// Visits the pages of a log, in order, by their headers alone.
pub(crate) fn pages(
    pm: &Pm,
    id: &LogId,
    head: PmAddr,
    tail: PmAddr,
    visit: &mut dyn FnMut(PmAddr),
) -> Result<()> {
    let mut page = head;
    let mut last_seq = None;
    while !tail.is_null() {
        let header = decode_header(&pm.load_line(page)?, id, page)?;
        if last_seq.is_some_and(|last| header.page_seq <= last) {
            return Err(Error::damaged_inode(id.ino, "log page", page, "its number does not rise"));
        }
        last_seq = Some(header.page_seq);
        visit(page);
        if page == page_of(tail) {
            break;
        }
        page = header.next.next();
    }
    Ok(())
}

/// New pages needed for entries of these sizes, in lines.
fn pages_needed(tail: PmAddr, lines: impl Iterator<Item = u64>) -> u64 {
    let mut left = lines_left(tail);
    let mut pages = 0;
    for count in lines {
        if count > left {
            pages += 1;
            left = LINES_PER_PAGE - 1;
        }
        left -= count;
    }
    pages
}

impl LogRoom {
    /// Takes the pages that entries of these sizes (in lines) will need; nothing is stored.
    pub(crate) fn make(
        env: &PageSource<'_>,
        view: &View<'_>,
        lines: impl Iterator<Item = u64>,
        need: Need,
    ) -> Result<Self> {
        let mut spare = view.spare();
        let mut this = Self::default();
        let missing = pages_needed(view.log_tail(), lines);
        let mut missing_now = missing;
        while missing_now > 0 {
            if spare.pages == 0 {
                let step = if env.allocator.is_roomy(env.arena)? {
                    view.log_pages().clamp(1, GROWTH_PAGES_MAX)
                } else {
                    1
                };
                let want = missing_now.max(step);
                let wanted = Wanted::once(want);
                match env.allocator.take(env.arena, env.op, env.hint, wanted, need) {
                    Ok(extent) => {
                        this.grown().taken.push(extent);
                        spare = extent;
                    }
                    Err(error) => {
                        this.give_back(env)?;
                        return Err(error);
                    }
                }
            }
            let pages = spare.pages.min(missing_now);
            this.grown().pages.push(Extent { pages, ..spare });
            spare = Extent { addr: spare.addr.add(pages * PAGE), pages: spare.pages - pages };
            missing_now -= pages;
        }
        this.spare = spare;
        Ok(this)
    }

    /// Gives the pages back: the operation stores nothing after all.
    pub(crate) fn give_back(self, env: &PageSource<'_>) -> Result<()> {
        match self.grown {
            Some(grown) => env.allocator.give(env.arena, env.op, env.hint, &grown.taken),
            None => Ok(()),
        }
    }

    fn grown(&mut self) -> &mut Grown {
        self.grown.get_or_insert_default()
    }
}

/// Stores entries after a log's tail. Nothing is committed by it.
pub(crate) struct Appender<'a> {
    pm: &'a Pm,
    id: LogId,
    session: u32,
    op_seq: u64,
    head: PmAddr,
    tail: PmAddr,
    page_seq: u64,
    pages: u64,
    room: LogRoom,
    taken: u64,
    /// The link to the tail's page, where that is one of this operation's.
    link: LogLink,
    crc: DataCrc,
    pending: Flushed,
}

/// What an append has left to be committed and published.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) head: PmAddr,
    pub(crate) tail: PmAddr,
    page_seq: u64,
    pages: u64,
    spare: Extent,
    grown_pages: u64,
    /// The checksum of everything covered, for the single-fence form.
    pub(crate) crc: u32,
    pub(crate) pending: Flushed,
}

impl<'a> Appender<'a> {
    pub(crate) fn new(
        pm: &'a Pm,
        id: LogId,
        session: u32,
        view: &View<'_>,
        op_seq: u64,
        room: LogRoom,
    ) -> Self {
        let State { log_head, log_tail, .. } = view.state();
        Self {
            pm,
            id,
            session,
            op_seq,
            head: log_head,
            tail: log_tail,
            page_seq: view.tail_page_seq(),
            pages: view.log_pages(),
            room,
            taken: 0,
            link: LogLink::NONE,
            crc: DataCrc::new(id.seed, op_seq),
            pending: Flushed::none(),
        }
    }

    fn also(&mut self, flushed: Flushed) {
        let pending = std::mem::replace(&mut self.pending, Flushed::none());
        self.pending = pending.and(flushed);
    }

    /// Stores an entry; returns its address.
    pub(crate) fn push(&mut self, entry: &Entry) -> PmAddr {
        let mut bytes = [0; 5 * LINE_BYTES];
        let len = entry.encode(self.op_seq, self.id.seed, &mut bytes);
        let bytes = bytes.get(..len).unwrap_or_default();
        let lines = len as u64 / LINE;
        if lines > lines_left(self.tail) {
            if self.taken > 0 {
                // The tail's page is one of this operation's: its header, streamed, has the word that
                // names the next page.
                self.pm.fence(std::mem::replace(&mut self.pending, Flushed::none())).end();
            }
            self.link_page();
        }
        let addr = self.tail.add(LINE);
        let opens = (addr.byte() % PAGE == LINE).then_some(self.link);
        cover_entry(&mut self.crc, opens, bytes);
        let stored = if bytes.len() > LINE_BYTES && seeded::is_on(Bug::LongNamesCut) {
            seeded::stream_but_a_line(self.pm, addr, bytes, LINE_BYTES)
        } else {
            self.pm.stream(addr, bytes, Purpose::Log)
        };
        self.also(stored);
        self.tail = addr.add(len as u64 - LINE);
        addr
    }

    /// Adds the checksum ([`page_crc`]) of the next page that the last entry maps.
    pub(crate) fn cover_page(&mut self, crc: u32) {
        if !seeded::is_on(Bug::DataNotSummed) {
            self.crc.crc(crc);
        }
    }

    /// Links the next page of the room after the tail's page, whose entries end at the tail; the tail
    /// moves to its header.
    fn link_page(&mut self) {
        let mut index = self.taken;
        let pages = || self.room.grown.iter().flat_map(|grown| grown.pages.iter());
        let page = pages().find_map(|extent| {
            if index < extent.pages {
                return Some(extent.addr.add(index * PAGE));
            }
            index -= extent.pages;
            None
        });
        // The room was made for just these entries.
        let page = page.unwrap_or(PmAddr::NULL);
        self.taken += 1;
        self.page_seq += 1;
        self.pages += 1;
        let header = LogPageHeader {
            ino: self.id.ino,
            generation: self.id.generation,
            session: self.session,
            page_seq: self.page_seq,
            next: LogLink::NONE,
        };
        let line = header.encode(self.id.seed.addr(page));
        self.pm.expect_stores(page, PAGE);
        let stored = self.pm.stream(page, &line, Purpose::Log);
        self.also(stored);
        if self.tail.is_null() {
            self.head = page;
            self.link = LogLink::page(page);
        } else {
            self.link = link_behind(self.tail, page);
            let next = page_of(self.tail).add(LOG_NEXT_OFFSET);
            let word = self.pm.store_u64(next, self.link.raw(), Purpose::Log);
            let stored = self.pm.write_back(word);
            self.also(stored);
        }
        self.tail = page;
    }

    /// Gives the room back: no commit follows.
    pub(crate) fn give_back(self, env: &PageSource<'_>) -> Result<()> {
        self.room.give_back(env)
    }

    /// What was appended; nothing more is.
    pub(crate) fn finish(&mut self) -> Appended {
        let grown = self.room.grown.take();
        Appended {
            head: self.head,
            tail: self.tail,
            page_seq: self.page_seq,
            pages: self.pages,
            spare: self.room.spare,
            grown_pages: grown.map_or(0, |grown| grown.taken.pages()),
            crc: self.crc.finish(),
            pending: std::mem::replace(&mut self.pending, Flushed::none()),
        }
    }
}

impl Appended {
    /// Pages that were taken for the log: the time to look for some to give back.
    pub(crate) fn grown_pages(&self) -> u64 {
        self.grown_pages
    }

    /// Publishes the log's new shape; the caller's commit is durable.
    pub(crate) fn publish(&self, view: &View<'_>) {
        view.set_tail_page_seq(self.page_seq);
        view.set_log_pages(self.pages);
        view.set_spare(self.spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_do_not_fit_start_a_page() {
        let page = PmAddr::new(0, 64 * PAGE);
        let at = |line: u64| page.add(line * LINE);
        assert_eq!(pages_needed(PmAddr::NULL, [1].into_iter()), 1);
        assert_eq!(pages_needed(at(62), [1].into_iter()), 0);
        assert_eq!(pages_needed(at(63), [1].into_iter()), 1);
        assert_eq!(pages_needed(at(60), [5].into_iter()), 1);
        assert_eq!(pages_needed(at(58), [5].into_iter()), 0);
        assert_eq!(pages_needed(at(58), [5, 1, 62, 1].into_iter()), 2);
    }
}

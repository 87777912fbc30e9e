//! An inode's log, page by page and entry by entry, and what lies after its tail.
//!
//! A log that is sound is read as the file system reads it. After what is refused the look goes on,
//! line by line and by the links as they lie there: what it shows then is raw, and says so.

use std::collections::HashSet;

use novale_layout::{
    Entry, EntryHeader, LINE, LINES_PER_PAGE, LayoutError, LogLink, LogPageHeader, PAGE, PmAddr,
    Structure,
};

use crate::inode::state::LogId;
use crate::log::replay::say;
use crate::log::{Logged, page_of};
use crate::offline::dump::names::ReplayedLog;
use crate::offline::dump::shown::Shown;
use crate::offline::dump::{Dump, DumpLimits};

const LINE_BYTES: usize = 64;
/// Pages after the tail's that are looked at: as many as a log grows by at once.
const BEHIND_PAGES_MAX: usize = 16;

/// A log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogDump {
    /// Its pages in order, up to the tail.
    pub pages: Vec<LogPageDump>,
    /// Pages and entries that are left out, since they are too many.
    pub left_out: u64,
    /// How it ends.
    pub end: String,
    /// What lies after the tail, uncommitted or left over: asked for by [`DumpLimits::behind`].
    pub behind: Vec<LogPageDump>,
}

/// A page of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPageDump {
    /// Its header, next pointer included.
    pub header: Shown,
    /// Its entries.
    pub entries: Vec<Shown>,
}

/// A walk that takes everything as it is.
struct Walk<'a> {
    dump: &'a Dump<'a>,
    id: &'a LogId,
    limits: DumpLimits,
    shown: usize,
    left_out: u64,
    seen: HashSet<PmAddr>,
    last_seq: Option<u64>,
    last_op: u64,
}

impl Dump<'_> {
    /// The log of `id` from `head` to `tail`, and what it comes to.
    pub(super) fn log(
        &self,
        id: &LogId,
        head: PmAddr,
        tail: PmAddr,
        limits: DumpLimits,
        replay: &mut ReplayedLog,
    ) -> LogDump {
        let mut walk = Walk {
            dump: self,
            id,
            limits,
            shown: 0,
            left_out: 0,
            seen: HashSet::new(),
            last_seq: None,
            last_op: 0,
        };
        let mut log = LogDump::default();
        if tail.is_null() {
            log.end = "empty".into();
            return log;
        }
        let mut page = head;
        log.end = loop {
            if let Some(why) = walk.refuse(page) {
                break why;
            }
            let end = (page_of(tail) == page).then_some(tail);
            let (shown, next) = walk.page(page, page.add(LINE), end, Some(&mut *replay));
            log.pages.extend(shown);
            if page_of(tail) == page {
                break format!("with the committed tail {tail}");
            }
            page = next;
        };
        log.left_out = walk.left_out;
        if limits.behind && self.is_page(page_of(tail)) {
            log.behind = walk.behind(tail);
        }
        log
    }
}

fn last_line(page: PmAddr) -> PmAddr {
    page.add((LINES_PER_PAGE - 1) * LINE)
}

impl Walk<'_> {
    /// Why a log can't go on with a page.
    fn refuse(&mut self, page: PmAddr) -> Option<String> {
        if page.is_null() {
            return Some("before its tail: the last next pointer is null".to_owned());
        }
        if !self.dump.is_page(page) {
            let raw = page.raw();
            return Some(format!(
                "before its tail: it leads to {page} ({raw:#x}), no page of the pool"
            ));
        }
        (!self.seen.insert(page))
            .then(|| format!("before its tail: it comes back to page {page}: a circle"))
    }

    /// A page with its entries from a line on, and where its link leads. Of a log they end at `end`, of a
    /// page that is not the tail's where its header says.
    fn page(
        &mut self,
        page: PmAddr,
        first: PmAddr,
        end: Option<PmAddr>,
        mut replay: Option<&mut ReplayedLog>,
    ) -> (Option<LogPageDump>, PmAddr) {
        let mut bytes = [0; 4096];
        // It was asked for before.
        let _there = self.dump.pm.load(page, &mut bytes);
        let (header, link) = self.header(page, &bytes);
        let said = link.lines().filter(|_| replay.is_some()).map(|lines| page.add(lines * LINE));
        let end = end.or(said);
        let last = end.unwrap_or_else(|| last_line(page));
        let mut entries = Vec::new();
        let mut at = first;
        while at <= last {
            let offset = usize::try_from(at.byte() % PAGE).unwrap_or(0);
            let rest = bytes.get(offset..).unwrap_or_default();
            let judged = Entry::decode(rest, self.id.seed);
            // Before the end it is damage, and shown.
            if judged == Err(LayoutError::Blank) && end.is_none() {
                if replay.is_some() {
                    break;
                }
                at = PmAddr::from_raw(at.raw() + LINE);
                continue;
            }
            let lines = rest.first_chunk().and_then(|line| EntryHeader::peek(line).ok());
            let len = lines.map_or(LINE_BYTES, |header| usize::from(header.lines) * LINE_BYTES);
            let mut shown =
                Shown::entry(at, rest.get(..len.min(rest.len())).unwrap_or(rest), &judged);
            if let Ok((header, entry)) = &judged {
                if header.op_seq < self.last_op && replay.is_some() {
                    shown.refused =
                        Some(format!("op_seq {} behind {}", header.op_seq, self.last_op));
                } else if let Some(replay) = &mut replay {
                    self.last_op = header.op_seq;
                    let bytes = rest.get(..len).unwrap_or_default();
                    let at = Logged { addr: at, header: *header, bytes, opens: None };
                    // It takes everything in.
                    let _taken = say(&at, entry, *replay);
                }
            }
            let step = if judged.is_ok() { len } else { LINE_BYTES };
            if self.keeps() {
                entries.push(shown);
            }
            // Raw, since a page's last line may be an address's last one.
            at = PmAddr::from_raw(at.raw() + step as u64);
        }
        let keeps = self.limits.items > self.left_out_pages();
        (keeps.then_some(LogPageDump { header, entries }), link.next())
    }

    /// Whether one more entry is kept.
    fn keeps(&mut self) -> bool {
        let keeps = self.shown < self.limits.items;
        self.shown += usize::from(keeps);
        self.left_out += u64::from(!keeps);
        keeps
    }

    /// So many pages are kept as entries.
    fn left_out_pages(&self) -> usize {
        self.seen.len().saturating_sub(1)
    }

    fn header(&mut self, page: PmAddr, bytes: &[u8]) -> (Shown, LogLink) {
        let line = bytes.first_chunk::<LINE_BYTES>().copied().unwrap_or([0; LINE_BYTES]);
        let judged = LogPageHeader::decode(&line, self.id.seed.addr(page));
        let mut shown = Shown::new(Structure::LogPage, page, &line, &judged);
        let leads = shown.number("next").map_or(LogLink::NONE, LogLink::from_raw);
        if let Some(lines) = leads.lines() {
            shown.note(format!("followed by {}, its entries end with line {lines}", leads.next()));
        }
        if let Ok(header) = judged {
            if self.last_seq.is_some_and(|last| header.page_seq <= last) {
                let last = self.last_seq.unwrap_or_default();
                shown.refused = Some(format!("page_seq {} behind {last}", header.page_seq));
            }
            self.last_seq = Some(header.page_seq);
        }
        (shown, leads)
    }

    /// What lies after the tail, in its page and in those that its next pointer leads to.
    fn behind(&mut self, tail: PmAddr) -> Vec<LogPageDump> {
        self.seen.clear();
        (self.last_seq, self.shown) = (None, 0);
        let mut found = Vec::new();
        let (mut page, mut first) = (page_of(tail), PmAddr::from_raw(tail.raw() + LINE));
        while found.len() <= BEHIND_PAGES_MAX && self.refuse(page).is_none() {
            let (shown, next) = self.page(page, first, None, None);
            found.extend(shown);
            if next.is_null() || !self.dump.is_page(next) {
                break;
            }
            (page, first) = (next, next.add(LINE));
        }
        found
    }
}

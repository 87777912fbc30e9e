//! What was found as text: a structure a paragraph, its fields in the order in which they lie.

use anyhow::Result;
use novale_core::dump::{
    InodeDump, LaneDump, LogPageDump, PageDump, RecordDump, SavedDump, Shown, SlotDump, XattrsDump,
};
use novale_layout::PmAddr;

use super::Content;
use crate::base::size::show_size;

/// Columns of a line of fields.
const WIDTH: usize = 100;
/// Bytes of a line of a hex dump.
const HEX_BYTES: usize = 16;

pub(super) fn show(found: &Content, remarks: &[String]) -> Result<()> {
    for remark in remarks {
        say!("note: {remark}")?;
    }
    match found {
        Content::Pool(pool) => all(pool.superblocks.iter().chain(&pool.states), 0),
        Content::Slots(slots) => slots.iter().try_for_each(slot),
        Content::Lanes(lanes) => lanes.iter().try_for_each(lane),
        Content::Saved(saved) => self::saved(saved),
        Content::Inode(inode) => self::inode(inode),
        Content::Page { page, hex } => self::page(page, *hex),
    }
}

fn all<'s>(structures: impl IntoIterator<Item = &'s Shown>, indent: usize) -> Result<()> {
    structures.into_iter().try_for_each(|shown| structure(shown, indent))
}

fn structure(shown: &Shown, indent: usize) -> Result<()> {
    let notes = if shown.notes.is_empty() { String::new() } else { shown.notes.join("; ") };
    let colon = if notes.is_empty() { "" } else { ": " };
    say!("{:indent$}{} at {}{colon}{notes}", "", shown.structure, shown.at)?;
    let indent = indent + 4;
    if let Some(why) = &shown.refused {
        say!("{:indent$}refused: {why}", "")?;
        if why.starts_with("blank") {
            return Ok(());
        }
    }
    let mut line = String::new();
    for (name, value) in &shown.fields {
        let field = format!("{name} {value}");
        if !line.is_empty() && indent + line.len() + field.len() + 2 > WIDTH {
            say!("{:indent$}{line}", "")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push_str("  ");
        }
        line.push_str(&field);
    }
    if line.is_empty() { Ok(()) } else { say!("{:indent$}{line}", "") }
}

fn slot(slot: &SlotDump) -> Result<()> {
    match slot.bytes {
        0 => return say!("slot {}: missing", slot.index),
        bytes => say!("slot {}: {}", slot.index, show_size(bytes))?,
    }
    all(slot.headers.iter().chain(&slot.states).chain(&slot.wear), 2)
}

fn lane(lane: &LaneDump) -> Result<()> {
    match &lane.page {
        Ok(page) => say!("lane {}: page {page}", lane.lane)?,
        Err(why) => return say!("lane {}: refused: {why}", lane.lane),
    }
    lane.records.iter().try_for_each(record)
}

fn record(record: &RecordDump) -> Result<()> {
    let is_blank = record.verdict.starts_with("blank");
    if let (true, Some(first)) = (is_blank, record.header.first()) {
        return say!("  record at {}: {}", first.at, record.verdict);
    }
    let at = record.header.first().map_or(PmAddr::NULL, |first| first.at);
    say!("  record at {at}: {}", record.verdict)?;
    all(&record.header, 4)?;
    all(&record.lines, 6)
}

fn saved(saved: &SavedDump) -> Result<()> {
    say!("saved allocator: {}", saved.verdict)?;
    for (slot, used) in saved.pages_used.iter().enumerate() {
        say!("  slot {slot}: {used} pages in use")?;
    }
    if !saved.pages_used.is_empty() {
        say!("  {} inode numbers in use, 0 among them", saved.inodes_used)?;
    }
    all(&saved.pages, 2)?;
    left_out(saved.left_out)
}

fn left_out(count: u64) -> Result<()> {
    if count == 0 { Ok(()) } else { say!("  {count} more left out: see --limit") }
}

fn inode(inode: &InodeDump) -> Result<()> {
    let place = if inode.at.is_null() { String::new() } else { format!(" at {}", inode.at) };
    say!("inode {}{place}: {}", inode.ino, inode.verdict)?;
    all(&inode.lines, 2)?;
    for record in &inode.records {
        say!("  journal record at {}: op_seq {:#x}; {}", record.at, record.op_seq, record.verdict)?;
    }
    if inode.at.is_null() {
        return Ok(());
    }
    if !inode.log.end.is_empty() {
        say!("  log: ends {}", inode.log.end)?;
    }
    inode.log.pages.iter().try_for_each(log_page)?;
    left_out(inode.log.left_out)?;
    if !inode.log.behind.is_empty() {
        say!("  behind the tail, uncommitted or left over:")?;
        inode.log.behind.iter().try_for_each(log_page)?;
    }
    xattrs(&inode.xattrs)?;
    for name in &inode.names {
        let (text, kind) = (name.name.escape_ascii(), name.kind);
        let (ino, generation) = (name.ino, name.generation);
        let (cookie, at) = (name.cookie, name.at);
        say!(
            "  name \"{text}\": {kind:?} {ino} of generation {generation}, cookie {cookie}, at {at}"
        )?;
    }
    for extent in &inode.extents {
        say!("  file page {}: {} pages at {}", extent.file_page, extent.pages, extent.addr)?;
    }
    left_out(inode.left_out)
}

fn xattrs(xattrs: &XattrsDump) -> Result<()> {
    if let Some(why) = &xattrs.refused {
        say!("  extended attributes are refused: {why}")?;
    }
    all(&xattrs.pages, 2)?;
    xattrs.names.iter().try_for_each(|name| say!("    attribute {}", name.escape_ascii()))
}

fn log_page(page: &LogPageDump) -> Result<()> {
    structure(&page.header, 4)?;
    all(&page.entries, 6)
}

fn page(page: &PageDump, hex: bool) -> Result<()> {
    let owners: Vec<String> = page.owners.iter().map(ToString::to_string).collect();
    match owners.as_slice() {
        [] => say!("page {}: free", page.at)?,
        [owner] => say!("page {}: {owner}", page.at)?,
        several => {
            say!("page {}: {} owners, which is damage", page.at, several.len())?;
            for owner in several {
                say!("  {owner}")?;
            }
        }
    }
    if let Some(used) = page.saved {
        say!("  the saved allocator calls it {}", if used { "used" } else { "free" })?;
    }
    for remark in &page.remarks {
        say!("  not asked, and perhaps an owner: {remark}")?;
    }
    if hex { hex_dump(page.at, &page.bytes) } else { Ok(()) }
}

/// Sixteen bytes a line with their address; lines of zeros are left out after the first.
fn hex_dump(at: PmAddr, bytes: &[u8]) -> Result<()> {
    let mut zeros = 0;
    for (index, line) in (0..).zip(bytes.chunks(HEX_BYTES)) {
        let is_zero = line.iter().all(|byte| *byte == 0);
        zeros = if is_zero { zeros + 1 } else { 0 };
        if zeros > 1 {
            if zeros == 2 {
                say!("*")?;
            }
            continue;
        }
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let printable = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        let text: String = line.iter().map(printable).collect();
        say!("{}  {}  {text}", at.add(index * HEX_BYTES as u64), hex.join(" "))?;
    }
    Ok(())
}

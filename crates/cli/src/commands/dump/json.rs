//! What was found as JSON: addresses as `slot:0xoffset`, fields by their names in `docs/SPEC.md`.

use novale_core::dump::{
    InodeDump, LaneDump, LogPageDump, NameDump, PageDump, RecordDump, SavedDump, Shown, SlotDump,
    Value,
};
use novale_layout::PmAddr;
use serde_json::{Map, Value as Json, json};

use super::Content;

pub(super) fn of(found: &Content, remarks: &[String]) -> Json {
    let mut json = match found {
        Content::Pool(pool) => json!({
            "superblocks": all(&pool.superblocks, structure),
            "states": all(&pool.states, structure),
        }),
        Content::Slots(slots) => json!({ "slots": all(slots, slot) }),
        Content::Lanes(lanes) => json!({ "lanes": all(lanes, lane) }),
        Content::Saved(saved) => self::saved(saved),
        Content::Inode(inode) => self::inode(inode),
        Content::Page { page, hex } => self::page(page, *hex),
    };
    if let Some(object) = json.as_object_mut() {
        object.insert("remarks".to_owned(), json!(remarks));
    }
    json
}

fn all<T>(items: &[T], each: impl Fn(&T) -> Json) -> Vec<Json> {
    items.iter().map(each).collect()
}

fn address(at: PmAddr) -> Json {
    if at.is_null() { Json::Null } else { json!(at.to_string()) }
}

/// A name as text; bytes that are no UTF-8 are escaped.
fn name(bytes: &[u8]) -> Json {
    std::str::from_utf8(bytes).map_or_else(|_| json!(bytes.escape_ascii().to_string()), Json::from)
}

fn value(value: &Value) -> Json {
    match value {
        Value::Number(value) | Value::Hex(value) | Value::Octal(value) => json!(value),
        Value::Time(value) => json!(value),
        Value::Addr(addr) => address(*addr),
        Value::Name(bytes) => name(bytes),
        Value::Inos(inos) => json!(inos),
        Value::Bytes(_) => json!(value.to_string()),
    }
}

fn structure(shown: &Shown) -> Json {
    let fields: Map<String, Json> =
        shown.fields.iter().map(|(name, field)| (name.clone(), value(field))).collect();
    json!({
        "structure": shown.structure,
        "at": shown.at.to_string(),
        "fields": fields,
        "refused": shown.refused,
        "notes": shown.notes,
    })
}

fn slot(slot: &SlotDump) -> Json {
    json!({
        "index": slot.index,
        "bytes": slot.bytes,
        "headers": all(&slot.headers, structure),
        "states": all(&slot.states, structure),
        "wear": all(&slot.wear, structure),
    })
}

fn lane(lane: &LaneDump) -> Json {
    json!({
        "lane": lane.lane,
        "page": lane.page.as_ref().map_or(Json::Null, |page| address(*page)),
        "refused": lane.page.as_ref().err(),
        "records": all(&lane.records, record),
    })
}

fn record(record: &RecordDump) -> Json {
    json!({
        "header": all(&record.header, structure),
        "lines": all(&record.lines, structure),
        "verdict": record.verdict,
    })
}

fn saved(saved: &SavedDump) -> Json {
    json!({
        "verdict": saved.verdict,
        "pages_used": saved.pages_used,
        "inodes_used": saved.inodes_used,
        "pages": all(&saved.pages, structure),
        "left_out": saved.left_out,
    })
}

fn log_page(page: &LogPageDump) -> Json {
    json!({ "header": structure(&page.header), "entries": all(&page.entries, structure) })
}

fn dentry(dentry: &NameDump) -> Json {
    json!({
        "name": name(&dentry.name),
        "ino": dentry.ino.get(),
        "generation": dentry.generation,
        "kind": format!("{:?}", dentry.kind),
        "cookie": dentry.cookie,
        "at": address(dentry.at),
    })
}

fn inode(inode: &InodeDump) -> Json {
    let records = inode.records.iter().map(|record| {
        json!({
            "at": address(record.at),
            "op_seq": record.op_seq,
            "verdict": record.verdict,
        })
    });
    let extents = inode.extents.iter().map(|extent| {
        json!({
            "file_page": extent.file_page,
            "pages": extent.pages,
            "at": address(extent.addr),
        })
    });
    json!({
        "ino": inode.ino.get(),
        "at": address(inode.at),
        "verdict": inode.verdict,
        "lines": all(&inode.lines, structure),
        "records": records.collect::<Vec<_>>(),
        "log": {
            "end": inode.log.end,
            "pages": all(&inode.log.pages, log_page),
            "behind": all(&inode.log.behind, log_page),
            "left_out": inode.log.left_out,
        },
        "xattrs": {
            "refused": inode.xattrs.refused,
            "names": all(&inode.xattrs.names, |bytes| name(bytes)),
            "pages": all(&inode.xattrs.pages, structure),
        },
        "names": all(&inode.names, dentry),
        "extents": extents.collect::<Vec<_>>(),
        "left_out": inode.left_out,
    })
}

fn page(page: &PageDump, hex: bool) -> Json {
    let owners: Vec<String> = page.owners.iter().map(ToString::to_string).collect();
    let hex = hex.then(|| Value::Bytes(page.bytes.clone()).to_string());
    json!({
        "at": page.at.to_string(),
        "free": page.owners.is_empty(),
        "owners": owners,
        "saved_allocator_says_used": page.saved,
        "not_asked": page.remarks,
        "hex": hex,
    })
}

//! The text of extended attributes: `acl=u:7,u1000:6,g:4,m:5,o:1`, or a length and a fill.

use novale_model::XattrMode;

use super::step::{AclEntry, Value};

pub(super) const XATTR_MODES: [(XattrMode, &str); 3] =
    [(XattrMode::Any, "any"), (XattrMode::Create, "create"), (XattrMode::Replace, "replace")];

/// A tag's number and letter, and whether it names a user or group.
const TAGS: [(u16, &str, bool); 6] = [
    (1, "u", false),
    (2, "u", true),
    (4, "g", false),
    (8, "g", true),
    (16, "m", false),
    (32, "o", false),
];

pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::Fill { len, fill } => format!("len={len} fill={fill}"),
        Value::Acl(entries) if entries.is_empty() => "acl=%".to_owned(),
        Value::Acl(entries) => {
            let entries: Vec<String> = entries.iter().copied().map(entry_text).collect();
            format!("acl={}", entries.join(","))
        }
    }
}

fn entry_text(entry: AclEntry) -> String {
    let tag = TAGS.iter().find(|(tag, ..)| *tag == entry.tag);
    let (_, letter, named) = tag.copied().unwrap_or((0, "?", false));
    let id = if named { entry.id.to_string() } else { String::new() };
    format!("{letter}{id}:{}", entry.perm)
}

pub(super) fn parse_acl(word: &str) -> Result<Vec<AclEntry>, String> {
    if word == "%" {
        return Ok(Vec::new());
    }
    word.split(',').map(|entry| parse_entry(entry).ok_or(format!("{entry} is no entry"))).collect()
}

fn parse_entry(entry: &str) -> Option<AclEntry> {
    let (who, perm) = entry.split_once(':')?;
    let (letter, id) = who.split_at_checked(1)?;
    let is_named = !id.is_empty();
    let (tag, ..) = TAGS.iter().find(|(_, text, named)| *text == letter && *named == is_named)?;
    let id = if is_named { id.parse().ok()? } else { u32::MAX };
    Some(AclEntry { tag: *tag, perm: perm.parse().ok()?, id })
}

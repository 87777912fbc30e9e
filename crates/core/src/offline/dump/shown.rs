//! A structure with all its fields as they lie on media, whether or not it is refused.

use std::fmt;

use novale_layout::{EntryHeader, Field, LayoutError, PmAddr, Structure};

/// Fields that are addresses in the pool.
const ADDRESSES: [&str; 18] = [
    "log_head",
    "log_tail",
    "next",
    "addr",
    "home",
    "partner",
    "saved_root",
    "xattr_root",
    "bad_page_root",
    "inode_directory",
    "lane_table",
    "pair_tables",
    "undo_tables",
    "descriptor_tables",
    "page_checksums",
    "shared_pages",
    "snapshots",
    "quota",
];
/// Fields whose bits or bytes say more than their value.
const HEX: [&str; 11] = [
    "magic",
    "crc",
    "line_crc",
    "data_crc",
    "saved_crc",
    "word",
    "changed",
    "op_seq",
    "atime_seq",
    "install_seq",
    "flags_version",
];

/// A structure as it lies on media.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its heading in `docs/SPEC.md`.
    pub structure: &'static str,
    /// Where it lies.
    pub at: PmAddr,
    /// Its fields, raw; reserved ones only where they are not zero.
    pub fields: Vec<(String, Value)>,
    /// Why it is refused; none where it validates.
    pub refused: Option<String>,
    /// What else there is to say of it.
    pub notes: Vec<String>,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A count, a size, a number.
    Number(u64),
    /// A number that is read by its bits.
    Hex(u64),
    /// Mode bits.
    Octal(u64),
    /// A time in nanoseconds since 1970.
    Time(i64),
    /// An address; null is 0. The low bits may be flags.
    Addr(PmAddr),
    /// Bytes without a meaning of their own here.
    Bytes(Vec<u8>),
    /// A name.
    Name(Vec<u8>),
    /// Inode numbers.
    Inos(Vec<u64>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => write!(f, "{value}"),
            Self::Hex(value) => write!(f, "{value:#x}"),
            Self::Octal(value) => write!(f, "{value:#o}"),
            Self::Time(value) => write!(f, "{value}"),
            Self::Addr(addr) if addr.is_null() => write!(f, "null"),
            Self::Addr(addr) if !addr.reserved_bits_clear() => {
                write!(f, "{addr} (reserved bits set: raw {:#x})", addr.raw())
            }
            Self::Addr(addr) => write!(f, "{addr}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Name(name) => write!(f, "\"{}\"", name.escape_ascii()),
            Self::Inos(inos) => {
                let inos: Vec<String> = inos.iter().map(ToString::to_string).collect();
                write!(f, "{}", inos.join(","))
            }
        }
    }
}

impl Shown {
    /// Reads `bytes`, which lie at `at`, as a structure; `judged` is what decoding made of them.
    pub(super) fn new<T>(
        structure: Structure,
        at: PmAddr,
        bytes: &[u8],
        judged: &Result<T, LayoutError>,
    ) -> Self {
        let mut fields = Vec::new();
        add_fields(structure, bytes, &mut fields);
        let refused = judged.as_ref().err().map(ToString::to_string);
        Self { structure: structure.title(), at, fields, refused, notes: Vec::new() }
    }

    /// What can't be read: it lies in no slot that is there.
    pub(super) fn unreadable(structure: Structure, at: PmAddr, why: impl fmt::Display) -> Self {
        let refused = Some(why.to_string());
        let structure = structure.title();
        Self { structure, at, fields: Vec::new(), refused, notes: Vec::new() }
    }

    /// A log entry by its kind; one of an unknown kind as bytes.
    pub(super) fn entry<T>(at: PmAddr, bytes: &[u8], judged: &Result<T, LayoutError>) -> Self {
        let header = bytes.first_chunk().map(EntryHeader::peek);
        let Some(Ok(header)) = header else {
            let mut this = Self::new(Structure::EntryHeader, at, bytes, judged);
            let line = bytes.get(..64).unwrap_or(bytes);
            this.fields.push(("bytes".to_owned(), Value::Bytes(line.to_vec())));
            return this;
        };
        let mut this = Self::new(Structure::of_entry(header.kind), at, bytes, judged);
        this.whole_name(bytes);
        this
    }

    /// A name goes on after its structure's first line.
    fn whole_name(&mut self, bytes: &[u8]) {
        let offset = Structure::DentryAdd.fields().iter().find(|field| field.name == "name");
        let len = self.number("name_length").and_then(|len| usize::try_from(len).ok());
        let place = self.fields.iter_mut().find(|(name, _)| name == "name");
        let (Some(offset), Some(len), Some((_, value))) = (offset, len, place) else { return };
        let end = bytes.len().min(offset.offset + len);
        *value = Value::Name(bytes.get(offset.offset..end).unwrap_or_default().to_vec());
    }

    /// The value of a field that is a number or an address.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let (_, value) = self.fields.iter().find(|(field, _)| field == name)?;
        match value {
            Value::Number(value) | Value::Hex(value) | Value::Octal(value) => Some(*value),
            Value::Addr(addr) => Some(addr.raw()),
            Value::Time(_) | Value::Bytes(_) | Value::Name(_) | Value::Inos(_) => None,
        }
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

fn add_fields(structure: Structure, bytes: &[u8], fields: &mut Vec<(String, Value)>) {
    for field in structure.fields() {
        let Some(raw) = field.of(bytes) else { return };
        if field.name == "header" {
            add_fields(Structure::EntryHeader, raw, fields);
            continue;
        }
        let unused = matches!(field.name, "reserved" | "pad");
        if !unused || raw.iter().any(|byte| *byte != 0) {
            fields.push((field.name.to_owned(), value(field, bytes, raw)));
        }
    }
}

fn value(field: &Field, structure: &[u8], raw: &[u8]) -> Value {
    let numbers = field.numbers(structure);
    if field.name == "inos" {
        return Value::Inos(numbers);
    }
    let is_bytes = matches!(field.name, "reserved" | "pad" | "name");
    let number = match numbers.as_slice() {
        [number] if !is_bytes => *number,
        _ => return Value::Bytes(raw.to_vec()),
    };
    if field.name.ends_with("_ns") {
        return Value::Time(number.cast_signed());
    }
    if field.name == "mode" {
        return Value::Octal(number);
    }
    if field.bytes == 8 && ADDRESSES.contains(&field.name) {
        return Value::Addr(PmAddr::from_raw(number));
    }
    if HEX.contains(&field.name) || field.name.starts_with("features_") {
        return Value::Hex(number);
    }
    Value::Number(number)
}

#[cfg(test)]
mod tests {
    use novale_layout::{CommitLine, Seed};

    use super::*;

    #[test]
    fn what_is_refused_is_shown_all_the_same() {
        let seed = Seed::pool(&[7; 16]);
        let line = CommitLine { op_seq: 0x1_0000_0007, size: 5, nlink: 2, ..CommitLine::default() };
        let mut bytes = line.encode(seed);
        bytes[48] = 9;
        let at = PmAddr::new(0, 0x9040);
        let shown = Shown::new(Structure::Commit, at, &bytes, &CommitLine::decode(&bytes, seed));
        assert!(shown.refused.as_ref().is_some_and(|why| why.contains("checksum")), "{shown:?}");
        assert_eq!((shown.number("nlink"), shown.number("size")), (Some(9), Some(5)));
        let values: Vec<String> = shown.fields.iter().map(|(_, value)| value.to_string()).collect();
        assert_eq!(values.first().map(String::as_str), Some("0x100000007"));
        // What is zero is shown, too, but for what nobody uses.
        assert_eq!(shown.number("session"), Some(0));
    }

    #[test]
    fn a_known_address_is_a_field_somewhere() {
        let known = |name: &str| {
            Structure::ALL.iter().any(|s| s.fields().iter().any(|field| field.name == name))
        };
        for name in ADDRESSES.iter().chain(&HEX) {
            assert!(known(name), "{name} is a field of no structure");
        }
    }
}

//! The text of steps, a line each, to be pasted from a failed run into a test.
//!
//! `write /d/a offset=4090 len=12 fill=7`. A name is written as it is but for bytes other than
//! letters, digits, dot, dash and underscore (`%2F`), long runs (`n*255`) and the empty name (`%`).
//! `@2` is what slot 2 holds. Lines that start with `#` say nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use novale_model::{Kind, NewInode, RangeOp, RenameMode, SetAttr};

use super::step::{Action, Path, Step, Target, Value};
use super::xattr_text::{XATTR_MODES, parse_acl, value_text};

/// The steps' text.
pub fn print_steps(steps: &[Step]) -> String {
    steps.iter().flat_map(|step| [step.to_string(), "\n".to_owned()]).collect()
}

/// The steps that a text describes.
///
/// # Errors
/// What is wrong, with the line's number.
pub fn parse_steps(text: &str) -> Result<Vec<Step>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let parse = |(number, line): (usize, &str)| {
        line.parse().map_err(|why| format!("line {}: {why}: {line}", number + 1))
    };
    lines.map(parse).collect()
}

/// The text of a sequence of `sequences.txt`; nothing by another name.
pub fn sequence(name: &str) -> &'static str {
    let sections = include_str!("sequences.txt").split("\n[").skip(1);
    let found = sections.filter_map(|section| section.split_once("]\n"));
    found.filter(|(title, _)| *title == name).map(|(_, text)| text).next().unwrap_or_default()
}

/// The keys of numbers that say where and how much.
const NUMBERS: [&str; 10] =
    ["offset", "len", "from", "to", "count", "apart", "page", "pages", "size", "fill"];

/// The key and value of a word that says where or how much.
pub fn number_of(word: &str) -> Option<(&str, u64)> {
    let (key, value) = word.split_once('=').filter(|(key, _)| NUMBERS.contains(key))?;
    Some((key, value.parse().ok()?))
}

impl Step {
    /// The same with other numbers: `change` has the verb, and the key and value of each. Where one does
    /// not fit, all are as they were.
    #[must_use]
    pub fn with_numbers(&self, mut change: impl FnMut(&str, &str, u64) -> u64) -> Self {
        let text = self.to_string();
        let (verb, _) = text.split_once(' ').unwrap_or((&text, ""));
        let words = text.split(' ').map(|word| match number_of(word) {
            Some((key, number)) => format!("{key}={}", change(verb, key, number)),
            None => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ").parse().unwrap_or_else(|_| self.clone())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { path, new } => {
                write!(f, "create {path} ")?;
                write_new(f, new)
            }
            Self::Unnamed { dir, new, slot } => {
                write!(f, "unnamed {dir} slot={slot} ")?;
                write_new(f, new)
            }
            Self::Link { target, path } => write!(f, "link {target} {path}"),
            Self::Unlink(path) => write!(f, "unlink {path}"),
            Self::Rmdir(path) => write!(f, "rmdir {path}"),
            Self::Rename { from, to, mode } => {
                write!(f, "rename {from} {to} mode={}", text_in(&MODES, mode))
            }
            Self::On { target, action } => write_action(f, target, action),
            Self::Copy { from, from_offset, to, to_offset, len } => {
                write!(f, "copy {from} {to} from={from_offset} to={to_offset} len={len}")
            }
            Self::Hold { path, slot } => write!(f, "hold {path} slot={slot}"),
            Self::Map { target, slot } => write!(f, "map {target} slot={slot}"),
            Self::Release(slot) => write!(f, "release slot={slot}"),
            Self::Compare => write!(f, "compare"),
            Self::Remount => write!(f, "remount"),
            Self::Die => write!(f, "die"),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words = &mut Words::new(line);
        let step = match words.next()? {
            "create" => Self::Create { path: words.path()?, new: parse_new(words)? },
            "unnamed" => Self::Unnamed {
                dir: words.path()?,
                slot: words.number("slot")?,
                new: parse_new(words)?,
            },
            "link" => Self::Link { target: words.target()?, path: words.path()? },
            "unlink" => Self::Unlink(words.path()?),
            "rmdir" => Self::Rmdir(words.path()?),
            "rename" => Self::Rename {
                from: words.path()?,
                to: words.path()?,
                mode: named_in(&MODES, words.value("mode")?)?,
            },
            "copy" => Self::Copy {
                from: words.target()?,
                to: words.target()?,
                from_offset: words.number("from")?,
                to_offset: words.number("to")?,
                len: words.number("len")?,
            },
            "hold" => Self::Hold { path: words.path()?, slot: words.number("slot")? },
            "map" => Self::Map { target: words.target()?, slot: words.number("slot")? },
            "release" => Self::Release(words.number("slot")?),
            "compare" => Self::Compare,
            "remount" => Self::Remount,
            "die" => Self::Die,
            verb => Self::On { target: words.target()?, action: parse_action(verb, words)? },
        };
        words.end()?;
        Ok(step)
    }
}

fn write_new(f: &mut fmt::Formatter<'_>, new: &NewInode) -> fmt::Result {
    let NewInode { kind, mode, uid, gid, rdev, target } = new;
    let (kind, target) = (text_in(&KINDS, kind), name_text(target));
    write!(f, "kind={kind} mode={mode:o} uid={uid} gid={gid} rdev={rdev} target={target}")
}

fn parse_new(words: &mut Words<'_>) -> Result<NewInode, String> {
    Ok(NewInode {
        kind: named_in(&KINDS, words.value("kind")?)?,
        mode: parse_octal(words.value("mode")?)?,
        uid: words.number("uid")?,
        gid: words.number("gid")?,
        rdev: words.number("rdev")?,
        target: parse_name(words.value("target")?)?,
    })
}

/// Actions of which each field is a number behind its key: both ways, a line each.
macro_rules! plain_actions {
    ($($verb:literal $name:ident { $($key:ident),* })*) => {
        #[allow(clippy::wildcard_enum_match_arm, reason = "the others are below")]
        fn write_action(f: &mut fmt::Formatter<'_>, target: &Target, action: &Action) -> fmt::Result {
            match action {
                $(Action::$name { $($key),* } => {
                    write!(f, concat!($verb, " {}"), target)?;
                    $(write!(f, concat!(" ", stringify!($key), "={}"), $key)?;)*
                    Ok(())
                })*
                other => write_other_action(f, target, other),
            }
        }

        fn parse_action(verb: &str, words: &mut Words<'_>) -> Result<Action, String> {
            Ok(match verb {
                $($verb => Action::$name { $($key: words.number(stringify!($key))?),* },)*
                _ => return parse_other_action(verb, words),
            })
        }
    };
}

plain_actions! {
    "stat" Stat {}
    "readlink" Readlink {}
    "read" Read { offset, len }
    "write" Write { offset, len, fill }
    "append" Append { len, fill }
    "store" Store { offset, len, fill }
    "flush" Flush { page, pages }
    "scatter" Scatter { offset, len, fill, count, apart }
    "list" List { at_a_time }
    "listxattr" ListXattr {}
    "limit" Limit { inodes }
    "parent" Parent {}
    "sync" Sync {}
    "leave" Leave { stays }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the others are in the list")]
fn write_other_action(f: &mut fmt::Formatter<'_>, target: &Target, action: &Action) -> fmt::Result {
    match action {
        Action::Set(set) => write!(f, "set {target}{}", set_text(set)),
        Action::Allocate { extend, offset, len } => {
            let extend = u8::from(*extend);
            write!(f, "allocate {target} extend={extend} offset={offset} len={len}")
        }
        Action::Seek { offset, data } => {
            write!(f, "seek {target} offset={offset} data={}", u8::from(*data))
        }
        Action::Range { how, offset, len } => {
            write!(f, "{} {target} offset={offset} len={len}", text_in(&RANGES, how))
        }
        Action::SetXattr { name, value, mode } => {
            let (name, mode) = (name_text(name), text_in(&XATTR_MODES, mode));
            write!(f, "setxattr {target} name={name} mode={mode} {}", value_text(value))
        }
        Action::GetXattr(name) => write!(f, "getxattr {target} name={}", name_text(name)),
        Action::RemoveXattr(name) => write!(f, "removexattr {target} name={}", name_text(name)),
        _ => Err(fmt::Error),
    }
}

fn parse_other_action(verb: &str, words: &mut Words<'_>) -> Result<Action, String> {
    Ok(match verb {
        "set" => Action::Set(parse_set(words)?),
        "allocate" => Action::Allocate {
            extend: words.flag("extend")?,
            offset: words.number("offset")?,
            len: words.number("len")?,
        },
        "seek" => Action::Seek { offset: words.number("offset")?, data: words.flag("data")? },
        "punch" | "zero" | "zero_keep_size" | "collapse" | "insert" => Action::Range {
            how: named_in(&RANGES, verb)?,
            offset: words.number("offset")?,
            len: words.number("len")?,
        },
        "setxattr" => Action::SetXattr {
            name: parse_name(words.value("name")?)?,
            value: parse_value(words)?,
            mode: named_in(&XATTR_MODES, words.value("mode")?)?,
        },
        "getxattr" => Action::GetXattr(parse_name(words.value("name")?)?),
        "removexattr" => Action::RemoveXattr(parse_name(words.value("name")?)?),
        _ => return Err(format!("unknown step {verb}")),
    })
}

const RANGES: [(RangeOp, &str); 5] = [
    (RangeOp::Punch, "punch"),
    (RangeOp::Zero, "zero"),
    (RangeOp::ZeroKeepSize, "zero_keep_size"),
    (RangeOp::Collapse, "collapse"),
    (RangeOp::Insert, "insert"),
];

/// A line's words: some in their place, then some with their key.
struct Words<'a> {
    places: std::vec::IntoIter<&'a str>,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(line: &'a str) -> Self {
        let (values, places): (Vec<_>, Vec<_>) =
            line.split_whitespace().partition(|word| word.contains('='));
        let values = values.into_iter().filter_map(|word| word.split_once('=')).collect();
        Self { places: places.into_iter(), values }
    }

    fn next(&mut self) -> Result<&'a str, String> {
        self.places.next().ok_or_else(|| "a word is missing".to_owned())
    }

    fn path(&mut self) -> Result<Path, String> {
        self.next()?.parse()
    }

    fn target(&mut self) -> Result<Target, String> {
        let word = self.next()?;
        match word.strip_prefix('@') {
            Some(slot) => Ok(Target::Slot(parse(slot)?)),
            None => Ok(Target::Path(word.parse()?)),
        }
    }

    fn optional(&mut self, key: &str) -> Option<&'a str> {
        self.values.remove(key)
    }

    fn value(&mut self, key: &str) -> Result<&'a str, String> {
        self.optional(key).ok_or_else(|| format!("{key}= is missing"))
    }

    fn number<T: FromStr>(&mut self, key: &str) -> Result<T, String> {
        parse(self.value(key)?)
    }

    fn flag(&mut self, key: &str) -> Result<bool, String> {
        Ok(self.number::<u8>(key)? != 0)
    }

    fn end(&mut self) -> Result<(), String> {
        match (self.places.next(), self.values.keys().next()) {
            (None, None) => Ok(()),
            (word, key) => Err(format!("too many words: {word:?} {key:?}")),
        }
    }
}

fn parse<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is no number in range"))
}

fn parse_value(words: &mut Words<'_>) -> Result<Value, String> {
    match words.optional("acl") {
        Some(entries) => parse_acl(entries).map(Value::Acl),
        None => Ok(Value::Fill { len: words.number("len")?, fill: words.number("fill")? }),
    }
}

fn parse_octal(word: &str) -> Result<u32, String> {
    u32::from_str_radix(word, 8).map_err(|why| format!("{word}: {why}"))
}

fn set_text(set: &SetAttr) -> String {
    let text = |key: &str, value: Option<String>| match value {
        Some(value) => format!(" {key}={value}"),
        None => String::new(),
    };
    [
        text("mode", set.mode.map(|mode| format!("{mode:o}"))),
        text("uid", set.uid.map(|uid| uid.to_string())),
        text("gid", set.gid.map(|gid| gid.to_string())),
        text("size", set.size.map(|size| size.to_string())),
        text("atime", set.atime_ns.map(|time| time.to_string())),
        text("mtime", set.mtime_ns.map(|time| time.to_string())),
        text("project", set.project.map(|project| project.to_string())),
        text("method", set.method.map(|method| method.to_string())),
        text("clear_set_id", set.clear_set_id.then(|| "1".to_owned())),
    ]
    .concat()
}

fn parse_set(words: &mut Words<'_>) -> Result<SetAttr, String> {
    Ok(SetAttr {
        mode: words.optional("mode").map(parse_octal).transpose()?,
        uid: words.optional("uid").map(parse).transpose()?,
        gid: words.optional("gid").map(parse).transpose()?,
        size: words.optional("size").map(parse).transpose()?,
        atime_ns: words.optional("atime").map(parse).transpose()?,
        mtime_ns: words.optional("mtime").map(parse).transpose()?,
        project: words.optional("project").map(parse).transpose()?,
        method: words.optional("method").map(parse).transpose()?,
        clear_set_id: words.optional("clear_set_id").is_some(),
    })
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{path}"),
            Self::Slot(slot) => write!(f, "@{slot}"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "/");
        }
        self.0.iter().try_for_each(|name| write!(f, "/{}", name_text(name)))
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let names = word.strip_prefix('/').ok_or_else(|| format!("{word} is no path"))?;
        if names.is_empty() {
            return Ok(Self::default());
        }
        names.split('/').map(parse_name).collect::<Result<_, _>>().map(Self)
    }
}

/// A run of at least so many equal bytes is written as a count.
const RUN_BYTES_MIN: usize = 8;
/// Longest name or target that a count makes: far beyond what any of them may have.
const NAME_BYTES_MAX: usize = 1 << 16;

fn name_text(name: &[u8]) -> String {
    let Some(first) = name.first() else {
        return "%".to_owned();
    };
    if name.len() >= RUN_BYTES_MIN && name.iter().all(|byte| byte == first) {
        return format!("{}*{}", byte_text(*first), name.len());
    }
    name.iter().map(|byte| byte_text(*byte)).collect()
}

fn byte_text(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(byte).into(),
        _ => format!("%{byte:02X}"),
    }
}

fn parse_name(word: &str) -> Result<Vec<u8>, String> {
    if word == "%" {
        return Ok(Vec::new());
    }
    match word.split_once('*') {
        Some((bytes, count)) => {
            let (bytes, count) = (parse_name_bytes(bytes)?, parse(count)?);
            match bytes.len().checked_mul(count) {
                Some(len) if len <= NAME_BYTES_MAX => Ok(bytes.repeat(count)),
                _ => Err(format!("{word} is more than {NAME_BYTES_MAX} bytes")),
            }
        }
        None => parse_name_bytes(word),
    }
}

fn parse_name_bytes(word: &str) -> Result<Vec<u8>, String> {
    let mut bytes = word.bytes();
    let mut name = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next(), bytes.next()].map(Option::unwrap_or_default);
            let digits = str::from_utf8(&digits).map_err(|why| why.to_string())?;
            name.push(u8::from_str_radix(digits, 16).map_err(|why| format!("{word}: {why}"))?);
        } else {
            name.push(byte);
        }
    }
    Ok(name)
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::File, "file"),
    (Kind::Directory, "directory"),
    (Kind::Symlink, "symlink"),
    (Kind::Fifo, "fifo"),
    (Kind::Socket, "socket"),
    (Kind::CharDevice, "char"),
    (Kind::BlockDevice, "block"),
];

const MODES: [(RenameMode, &str); 3] = [
    (RenameMode::Replace, "replace"),
    (RenameMode::NoReplace, "noreplace"),
    (RenameMode::Exchange, "exchange"),
];

/// How a table calls a value.
pub(super) fn text_in<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> &'static str {
    table.iter().find(|(named, _)| named == value).map_or("?", |(_, text)| text)
}

/// The value of a table's that a word names.
pub(super) fn named_in<T: Copy>(table: &[(T, &str)], word: &str) -> Result<T, String> {
    let found = table.iter().find(|(_, text)| *text == word).map(|(value, _)| *value);
    found.ok_or_else(|| {
        format!(
            "{word} is none of {}",
            table.iter().map(|(_, text)| *text).collect::<Vec<_>>().join(", ")
        )
    })
}

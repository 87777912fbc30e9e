//! What of which pool is to be shown, from the words of the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use novale_layout::PmAddr;

/// What can be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Superblock,
    Slots,
    Lanes,
    Saved,
    Inode(u64),
    Path(Vec<u8>),
    Page(PmAddr),
}

const KNOWN: &str = "superblock, slots, lanes, saved, inode NUMBER, path PATH, page ADDRESS";

/// The slots in front of the first word that says what is wanted, and what is.
pub(super) fn split(words: &[OsString]) -> Result<(Vec<PathBuf>, What)> {
    let is_what = |word: &OsString| {
        let words = ["superblock", "slots", "lanes", "saved", "inode", "path", "page"];
        words.into_iter().any(|known| *word == *known)
    };
    let at = words.iter().position(is_what);
    let at = at.with_context(|| format!("what is to be shown? Behind the slots: {KNOWN}"))?;
    let (slots, rest) = words.split_at(at);
    if slots.is_empty() {
        bail!("no slot is named: name the slots of the pool in front of what is to be shown");
    }
    let slots = slots.iter().map(PathBuf::from).collect();
    Ok((slots, parse(rest)?))
}

fn parse(words: &[OsString]) -> Result<What> {
    let [what, of @ ..] = words else { bail!("expected one of {KNOWN}") };
    let what = what.to_string_lossy();
    let simple = match what.as_ref() {
        "superblock" => Some(What::Superblock),
        "slots" => Some(What::Slots),
        "lanes" => Some(What::Lanes),
        "saved" => Some(What::Saved),
        _ => None,
    };
    match (simple, of) {
        (Some(simple), []) => Ok(simple),
        (None, [of]) if what == "path" => Ok(What::Path(of.clone().into_vec())),
        (None, [of]) => {
            let of = of.to_string_lossy();
            if what == "inode" {
                let number = of.parse().with_context(|| format!("'{of}' is no inode number"))?;
                return Ok(What::Inode(number));
            }
            Ok(What::Page(address(&of)?))
        }
        (Some(_), [more, ..]) => {
            bail!("'{}' behind {what}: nothing goes there", more.to_string_lossy())
        }
        (None, []) => bail!("{what} of what? Expected one of {KNOWN}"),
        (None, _) => bail!("too many words behind {what}: expected one of {KNOWN}"),
    }
}

/// An address as all messages spell it: `slot:0xoffset`.
fn address(text: &str) -> Result<PmAddr> {
    let wanted = || format!("'{text}' is no address: expected SLOT:0xOFFSET, such as 0:0x8000");
    let (slot, offset) = text.split_once(':').with_context(wanted)?;
    let slot: u8 = slot.parse().with_context(wanted)?;
    let digits = offset.strip_prefix("0x").with_context(wanted)?;
    let offset = u64::from_str_radix(digits, 16).with_context(wanted)?;
    if offset >= 1 << 48 {
        bail!("'{text}' is no address: an offset has 48 bits");
    }
    Ok(PmAddr::new(slot, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(Vec<PathBuf>, What)> {
        split(&text.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn slots_come_first_and_then_what_is_wanted() {
        let (slots, what) = of("a b inode 7").unwrap();
        assert_eq!((slots, what), (vec!["a".into(), "b".into()], What::Inode(7)));
        assert_eq!(of("a page 1:0x8040").unwrap().1, What::Page(PmAddr::new(1, 0x8040)));
        assert_eq!(of("./inode path slots").unwrap().1, What::Path(b"slots".to_vec()));
        for (text, words) in [
            ("a b", "what is to be shown"),
            ("slots", "no slot is named"),
            ("a slots b", "nothing goes there"),
            ("a inode", "of what"),
            ("a inode seven", "no inode number"),
            ("a page 0x8000", "expected SLOT:0xOFFSET"),
            ("a page 0:8000", "expected SLOT:0xOFFSET"),
            ("a page 0:0x1000000000000", "48 bits"),
            ("a path b c", "too many words"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}

//! The product's source as the lab reads it: its files, and the numbers that its constants have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Larger numbers are no border that a sequence comes to.
const BORDER_MAX: u64 = 70_000;

/// The files of a crate's source, by their paths from there, with their text.
///
/// # Errors
/// When the source is not where this program was built.
pub fn files(name: &str) -> io::Result<Vec<(PathBuf, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let (mut files, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path)?;
                files.push((path.strip_prefix(&root).unwrap_or(&path).to_owned(), text));
            }
        }
    }
    Ok(files)
}

/// The constants of core and layout that may be borders, ascending; 64 without the source.
pub fn numbers() -> &'static [u64] {
    static NUMBERS: LazyLock<Vec<u64>> = LazyLock::new(|| {
        let files = ["core", "layout"].map(|name| files(name).unwrap_or_default());
        let found: BTreeSet<u64> = constants(&files.concat()).into_values().collect();
        found.into_iter().filter(|number| (2..=BORDER_MAX).contains(number)).chain([64]).collect()
    });
    &NUMBERS
}

/// The constants whose values are sums, products and shifts of numbers and of each other.
fn constants(files: &[(PathBuf, String)]) -> BTreeMap<(usize, &str), u64> {
    let mut known: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    loop {
        let before = known.len();
        for (file, (_, text)) in files.iter().enumerate() {
            for part in text.split("const ").skip(1) {
                let Some((front, _)) = part.split_once(';') else { continue };
                let Some((name, value)) = front.split_once('=') else { continue };
                let Some((name, _)) = name.split_once(':') else { continue };
                if let Some(number) = value_of(value, file, &known) {
                    known.insert((file, name), number);
                }
            }
        }
        if known.len() == before {
            return known;
        }
    }
}

/// The value of a constant's text, from left to right, in which names are of the same file or another.
fn value_of(text: &str, file: usize, known: &BTreeMap<(usize, &str), u64>) -> Option<u64> {
    let number = |word: &str| {
        let plain = word.replace('_', "");
        let radix = |prefix, radix| u64::from_str_radix(plain.strip_prefix(prefix)?, radix).ok();
        let literal = plain.parse().ok().or_else(|| radix("0x", 16)).or_else(|| radix("0o", 8));
        let name = word.rsplit("::").next().unwrap_or(word);
        let named = || known.iter().find(|((_, known), _)| *known == name).map(|(_, value)| *value);
        literal.or_else(|| known.get(&(file, name)).copied()).or_else(named)
    };
    let text = text.replace(" as usize", "").replace(" as u64", "");
    let mut words = text.split_whitespace();
    let mut value = number(words.next()?)?;
    while let Some(operator) = words.next() {
        let next = number(words.next()?)?;
        value = match operator {
            "+" => value.checked_add(next)?,
            "-" => value.checked_sub(next)?,
            "*" => value.checked_mul(next)?,
            "/" => value.checked_div(next)?,
            "<<" => value.checked_shl(u32::try_from(next).ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_found_however_they_are_written() {
        let text = "const A: u64 = 1 << 4;\npub const B: usize = A as usize * 2 + 1;\nconst C: u32 = 0x1_0;\n\
                    const D: u64 = crate::a::B - 3;\nconst F: u64 = f(A);\nconst S: &str = \"a\";\n";
        let files = [(PathBuf::new(), text.to_owned())];
        let found: Vec<_> = constants(&files).into_iter().map(|((_, name), n)| (name, n)).collect();
        assert_eq!(found, [("A", 16), ("B", 33), ("C", 16), ("D", 30)]);
    }

    #[test]
    fn the_source_has_borders() {
        let found = numbers();
        // Pages, a line, a name, a value within its record, entries in few, pages of a window.
        for border in [4096, 64, 255, 1024, 8, 16] {
            assert!(found.contains(&border), "{border} is not in {found:?}");
        }
    }
}

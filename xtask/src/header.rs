//! `novale.h`, made of the declarations in `crates/capi/src` and their comments.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const FOLDER: &str = "crates/capi";
const HEADER: &str = "crates/capi/include/novale.h";
/// The files with declarations, in the order of the header.
const SOURCES: &[&str] = &[
    "border/version",
    "border/text",
    "calls/pool",
    "calls/file",
    "calls/map",
    "calls/method",
    "calls/names",
    "calls/directory",
    "calls/attributes",
    "calls/xattr",
];

/// Writes the header.
pub(crate) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(HEADER), make(root)?).context(HEADER)
}

fn make(root: &Path) -> Result<Vec<u8>> {
    let folder = root.join(FOLDER);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"));
    let config = config.map_err(anyhow::Error::msg).context("cbindgen.toml")?;
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(folder.join("src").join(source).with_extension("rs"));
    }
    let mut header = Vec::new();
    builder.generate().context("reading crates/capi/src")?.write(&mut header);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workspace_root;

    #[test]
    fn the_header_is_what_the_code_says() {
        let header = fs::read_to_string(workspace_root().join(HEADER)).unwrap();
        let made = String::from_utf8(make(workspace_root()).unwrap()).unwrap();
        assert!(header == made, "{HEADER} differs from the code: run `cargo xtask header`");
    }

    /// All names like `novale_x` in a text that `is_one` takes.
    fn names(text: &str, is_one: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words
            .filter(|word| word.starts_with("novale_") && is_one(word))
            .map(str::to_owned)
            .collect()
    }

    /// A file of declarations that is missing above would leave its calls out without a word.
    #[test]
    fn each_exported_call_is_in_the_header_and_the_manual() {
        let mut exported = BTreeSet::new();
        let source = workspace_root().join(FOLDER).join("src");
        let files = ["border", "calls"].map(|room| fs::read_dir(source.join(room)).unwrap());
        for entry in files.into_iter().flatten() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let calls = text.split("no_mangle)]").skip(1);
            let name = |call: &str| call.split("fn ").nth(1)?.split('(').next().map(str::to_owned);
            exported.extend(calls.filter_map(name));
        }
        assert!(exported.len() > 50, "only {} calls were found", exported.len());
        let is_type = |word: &str| word.ends_with("_t");
        let header = fs::read_to_string(workspace_root().join(HEADER)).unwrap();
        assert_eq!(names(&header, |word| !is_type(word)), exported);
        let manual =
            fs::read_to_string(workspace_root().join(FOLDER).join("man/novale.3")).unwrap();
        let told = names(&manual, |word| !is_type(word));
        assert_eq!(told, exported, "crates/capi/man/novale.3");
        let types = names(&header, is_type);
        assert_eq!(names(&manual, is_type), types, "crates/capi/man/novale.3");
    }
}

//! What programs do with names and files, below one folder, however it is called. `file` is there before, has
//! four bytes, and stays.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// Calls that open nothing.
pub(crate) fn names(folder: &Path) {
    let at = |name: &str| folder.join(name);
    fs::create_dir(at("made")).unwrap();
    assert!(at("made").is_dir());
    fs::rename(at("file"), at("made/moved")).unwrap();
    assert_eq!(fs::metadata(at("made/moved")).unwrap().len(), 4);
    assert!(fs::metadata(at("file")).is_err());
    fs::hard_link(at("made/moved"), at("file")).unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap().nlink(), 2);
    symlink("made/moved", at("made-link")).unwrap();
    assert_eq!(fs::read_link(at("made-link")).unwrap(), Path::new("made/moved"));
    assert_eq!(fs::metadata(at("made-link")).unwrap().len(), 4);
    fs::remove_file(at("made-link")).unwrap();
    fs::remove_file(at("made/moved")).unwrap();
    fs::remove_dir(at("made")).unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap().nlink(), 1);
}

/// Calls that open files and directories, and go up from one.
pub(crate) fn files(folder: &Path) {
    let at = |name: &str| folder.join(name);
    let count = |name: &str| fs::read_dir(at(name)).unwrap().flatten().count();
    let before = count("");
    fs::write(at("new"), "text").unwrap();
    assert_eq!(fs::read(at("new")).unwrap(), b"text", "{}", folder.display());
    fs::create_dir(at("made")).unwrap();
    fs::hard_link(at("new"), at("made/linked")).unwrap();
    symlink("../new", at("made/link")).unwrap();
    assert_eq!(fs::read(at("made/../made/link")).unwrap(), b"text");
    assert_eq!((count(""), count("made")), (before + 2, 2));
    fs::remove_dir_all(at("made")).unwrap();
    fs::remove_file(at("new")).unwrap();
    assert_eq!(count(""), before);
}

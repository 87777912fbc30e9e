//! The promise: the model does what POSIX and renameat2(2) say. Each rule here was read there,
//! and none was taken from the product.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use novale_model::{
    Atime, Attr, Error, Ino, Kind, Model, NewInode, RenameMode, Result, SetAttr, Tree,
};

const START: i64 = 1_000;

struct Case {
    model: Model,
    now: i64,
}

impl Case {
    fn new() -> Self {
        Self { model: Model::new(0o755, 0, 0, START, Atime::Noatime), now: START }
    }

    fn tick(&mut self) -> i64 {
        self.now += 1;
        self.now
    }

    fn make(&mut self, parent: Ino, name: &str, kind: Kind) -> Ino {
        let new = NewInode { kind, mode: 0o644, uid: 5, gid: 6, rdev: 0, target: Vec::new() };
        let now = self.tick();
        self.model.create(parent, name.as_bytes(), &new, now).unwrap().ino
    }

    fn file(&mut self, name: &str) -> Ino {
        self.make(Ino::ROOT, name, Kind::File)
    }

    fn directory(&mut self, parent: Ino, name: &str) -> Ino {
        self.make(parent, name, Kind::Directory)
    }

    fn rename(&mut self, from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Result<()> {
        let now = self.tick();
        self.model.rename((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), mode, now)
    }

    fn attr(&self, ino: Ino) -> Attr {
        self.model.getattr(ino).unwrap()
    }

    fn names(&self, directory: Ino) -> Vec<String> {
        let entries = self.model.readdir(directory).unwrap();
        entries.into_iter().map(|(name, _)| String::from_utf8(name).unwrap()).collect()
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.model.contradictions(), Vec::<String>::new());
        }
    }
}

#[test]
fn nlink_of_a_directory_counts_its_subdirectories() {
    let mut case = Case::new();
    let a = case.directory(Ino::ROOT, "a");
    let b = case.directory(a, "b");
    case.make(a, "file", Kind::File);
    assert_eq!(case.attr(Ino::ROOT).nlink, 3);
    assert_eq!(case.attr(a).nlink, 3);
    assert_eq!(case.attr(b).nlink, 2);
    case.rename((a, "b"), (Ino::ROOT, "b"), RenameMode::Replace).unwrap();
    assert_eq!(case.attr(Ino::ROOT).nlink, 4);
    assert_eq!(case.attr(a).nlink, 2);
    assert_eq!(case.model.parent(b), Ok(Ino::ROOT));
    let now = case.tick();
    case.model.rmdir(Ino::ROOT, b"b", now).unwrap();
    assert_eq!(case.attr(Ino::ROOT).nlink, 3);
    assert_eq!(case.model.getattr(b), Err(Error::Stale));
}

#[test]
fn names_change_the_times_of_their_directory_and_inode() {
    let mut case = Case::new();
    let file = case.file("file");
    let made = case.now;
    let now = case.tick();
    case.model.link(file, Ino::ROOT, b"other", now).unwrap();
    assert_eq!(case.attr(file).ctime_ns, now);
    assert_eq!(case.attr(file).mtime_ns, made);
    assert_eq!((case.attr(Ino::ROOT).mtime_ns, case.attr(Ino::ROOT).ctime_ns), (now, now));
    let now = case.tick();
    case.model.unlink(Ino::ROOT, b"file", now).unwrap();
    assert_eq!((case.attr(file).nlink, case.attr(file).ctime_ns), (1, now));
    assert_eq!(case.attr(Ino::ROOT).mtime_ns, now);
    let directory = case.directory(Ino::ROOT, "d");
    case.rename((Ino::ROOT, "other"), (directory, "moved"), RenameMode::Replace).unwrap();
    for changed in [Ino::ROOT, directory] {
        assert_eq!(case.attr(changed).mtime_ns, case.now);
        assert_eq!(case.attr(changed).ctime_ns, case.now);
    }
    assert_eq!((case.attr(file).ctime_ns, case.attr(file).mtime_ns), (case.now, made));
}

#[test]
fn a_held_file_outlives_its_name() {
    let mut case = Case::new();
    let file = case.file("file");
    case.model.hold(file).unwrap();
    let now = case.tick();
    case.model.write(file, 0, b"bytes", now).unwrap();
    case.model.unlink(Ino::ROOT, b"file", now).unwrap();
    assert_eq!(case.attr(file).nlink, 0);
    assert_eq!(case.model.read(file, 1, 9, now).unwrap(), b"ytes");
    assert_eq!(case.model.link(file, Ino::ROOT, b"back", now), Err(Error::NotFound));
    case.model.release(file, 1);
    assert_eq!(case.model.getattr(file), Err(Error::Stale));
    assert_eq!(case.model.inode_count(), 1);
}

#[test]
fn nothing_is_made_in_a_removed_directory() {
    let mut case = Case::new();
    let directory = case.directory(Ino::ROOT, "d");
    case.file("file");
    case.model.hold(directory).unwrap();
    let now = case.tick();
    case.model.rmdir(Ino::ROOT, b"d", now).unwrap();
    assert_eq!(case.attr(directory).nlink, 0);
    let new = NewInode { kind: Kind::File, mode: 0, uid: 0, gid: 0, rdev: 0, target: Vec::new() };
    assert_eq!(case.model.create(directory, b"x", &new, now), Err(Error::NotFound));
    let into = case.rename((Ino::ROOT, "file"), (directory, "x"), RenameMode::Replace);
    assert_eq!(into, Err(Error::NotFound));
    assert_eq!(case.names(directory), Vec::<String>::new());
}

#[test]
fn rename_replaces_like_kinds_only() {
    let mut case = Case::new();
    let file = case.file("file");
    let other = case.file("other");
    let directory = case.directory(Ino::ROOT, "d");
    let full = case.directory(Ino::ROOT, "full");
    case.make(full, "x", Kind::File);
    let mut try_rename =
        |from, to| case.rename((Ino::ROOT, from), (Ino::ROOT, to), RenameMode::Replace);
    assert_eq!(try_rename("file", "d"), Err(Error::IsDirectory));
    assert_eq!(try_rename("d", "file"), Err(Error::NotDirectory));
    assert_eq!(try_rename("d", "full"), Err(Error::NotEmpty));
    assert_eq!(try_rename("absent", "d"), Err(Error::NotFound));
    assert_eq!(try_rename("full", "d"), Ok(()));
    assert_eq!(try_rename("file", "other"), Ok(()));
    assert_eq!(case.names(Ino::ROOT), ["d", "other"]);
    assert_eq!(case.attr(file).nlink, 1);
    assert_eq!(case.model.getattr(other), Err(Error::Stale));
    assert_eq!(case.model.getattr(directory), Err(Error::Stale));
    assert_eq!(case.attr(Ino::ROOT).nlink, 3);
}

#[test]
fn rename_of_two_names_of_one_inode_does_nothing() {
    let mut case = Case::new();
    let file = case.file("a");
    let now = case.tick();
    case.model.link(file, Ino::ROOT, b"b", now).unwrap();
    let before = Tree::of(&case.model).unwrap();
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        case.rename((Ino::ROOT, "a"), (Ino::ROOT, "b"), mode).unwrap();
        case.rename((Ino::ROOT, "a"), (Ino::ROOT, "a"), mode).unwrap();
    }
    let no_replace = case.rename((Ino::ROOT, "a"), (Ino::ROOT, "b"), RenameMode::NoReplace);
    assert_eq!(no_replace, Err(Error::Exists));
    assert_eq!(Tree::of(&case.model).unwrap().difference(&before, ("after", "before")), "");
}

#[test]
fn no_directory_comes_to_lie_below_itself() {
    let mut case = Case::new();
    let a = case.directory(Ino::ROOT, "a");
    let b = case.directory(a, "b");
    let file = case.make(b, "file", Kind::File);
    let below = case.rename((Ino::ROOT, "a"), (b, "x"), RenameMode::Replace);
    assert_eq!(below, Err(Error::Invalid));
    let onto_parent = case.rename((b, "file"), (Ino::ROOT, "a"), RenameMode::Replace);
    assert_eq!(onto_parent, Err(Error::IsDirectory));
    let exchange = case.rename((b, "file"), (Ino::ROOT, "a"), RenameMode::Exchange);
    assert_eq!(exchange, Err(Error::Invalid));
    let itself = case.rename((Ino::ROOT, "a"), (a, "b"), RenameMode::Exchange);
    assert_eq!(itself, Err(Error::Invalid));
    assert_eq!(case.model.lookup(b, b"file").unwrap().ino, file);
}

#[test]
fn exchange_swaps_a_file_and_a_directory_of_two_parents() {
    let mut case = Case::new();
    let a = case.directory(Ino::ROOT, "a");
    let inner = case.directory(a, "inner");
    let file = case.file("file");
    let absent = case.rename((a, "inner"), (Ino::ROOT, "absent"), RenameMode::Exchange);
    assert_eq!(absent, Err(Error::NotFound));
    case.rename((a, "inner"), (Ino::ROOT, "file"), RenameMode::Exchange).unwrap();
    assert_eq!(case.model.lookup(a, b"inner").unwrap().ino, file);
    assert_eq!(case.model.lookup(Ino::ROOT, b"file").unwrap().ino, inner);
    assert_eq!(case.model.parent(inner), Ok(Ino::ROOT));
    assert_eq!((case.attr(a).nlink, case.attr(Ino::ROOT).nlink), (2, 4));
    for changed in [a, Ino::ROOT, inner, file] {
        assert_eq!(case.attr(changed).ctime_ns, case.now);
    }
}

#[test]
fn a_set_gid_directory_hands_on_its_group() {
    let mut case = Case::new();
    let directory = case.directory(Ino::ROOT, "d");
    let set = SetAttr { mode: Some(0o2755), gid: Some(77), ..SetAttr::default() };
    let now = case.tick();
    case.model.setattr(directory, &set, now).unwrap();
    let file = case.make(directory, "file", Kind::File);
    let sub = case.directory(directory, "sub");
    assert_eq!((case.attr(file).gid, case.attr(file).mode), (77, 0o644));
    assert_eq!((case.attr(sub).gid, case.attr(sub).mode), (77, 0o2644));
}

#[test]
fn clearing_set_id_bits_spares_mandatory_locking() {
    let mut case = Case::new();
    let file = case.file("file");
    for (before, after) in [(0o6755, 0o755), (0o6745, 0o2745), (0o1777, 0o1777)] {
        let now = case.tick();
        let set = SetAttr { mode: Some(before), ..SetAttr::default() };
        case.model.setattr(file, &set, now).unwrap();
        let set = SetAttr { clear_set_id: true, uid: Some(9), ..SetAttr::default() };
        assert_eq!(case.model.setattr(file, &set, now).unwrap().mode, after);
    }
}

#[test]
fn sizes_change_the_times_of_files_alone() {
    let mut case = Case::new();
    let file = case.file("file");
    let directory = case.directory(Ino::ROOT, "d");
    let symlink = case.make(Ino::ROOT, "s", Kind::Symlink);
    let now = case.tick();
    let cut = SetAttr { size: Some(100), ..SetAttr::default() };
    let attr = case.model.setattr(file, &cut, now).unwrap();
    assert_eq!((attr.size, attr.mtime_ns, attr.ctime_ns), (100, now, now));
    assert_eq!(case.model.setattr(directory, &cut, now), Err(Error::IsDirectory));
    assert_eq!(case.model.setattr(symlink, &cut, now), Err(Error::Invalid));
    let far = SetAttr { size: Some(1 << 48), ..SetAttr::default() };
    assert_eq!(case.model.setattr(file, &far, now), Err(Error::TooLarge));
    let later = case.tick();
    let both = SetAttr { size: Some(1), mtime_ns: Some(-3), ..SetAttr::default() };
    let attr = case.model.setattr(file, &both, later).unwrap();
    assert_eq!((attr.size, attr.mtime_ns, attr.ctime_ns), (1, -3, later));
    case.model.write(file, 9, b"", later + 1).unwrap();
    assert_eq!((case.attr(file).size, case.attr(file).ctime_ns), (1, later));
    assert_eq!(case.model.append(file, b"ab", later + 1), Ok(1));
    assert_eq!((case.attr(file).size, case.attr(file).mtime_ns), (3, later + 1));
}

#[test]
fn bad_names_are_refused_before_anything_else() {
    let mut case = Case::new();
    case.file("file");
    let long = "n".repeat(255);
    case.file(&long);
    let now = case.tick();
    for (name, error) in [
        ("", Error::InvalidName),
        ("a/b", Error::InvalidName),
        ("a\0", Error::InvalidName),
        ("n".repeat(256).as_str(), Error::NameTooLong),
    ] {
        assert_eq!(case.model.lookup(Ino::ROOT, name.as_bytes()), Err(error));
        assert_eq!(case.model.unlink(Ino::ROOT, name.as_bytes(), now), Err(error));
        let to = case.rename((Ino::ROOT, "file"), (Ino::ROOT, name), RenameMode::Replace);
        assert_eq!(to, Err(error));
    }
    assert_eq!(case.names(Ino::ROOT), ["file", long.as_str()]);
}

#[test]
fn relatime_writes_an_old_access_time_only() {
    let mut model = Model::new(0o755, 0, 0, 0, Atime::Relatime);
    let new = NewInode { kind: Kind::File, mode: 0, uid: 0, gid: 0, rdev: 0, target: Vec::new() };
    let file = model.create(Ino::ROOT, b"f", &new, 10).unwrap().ino;
    for (now, expected) in [(20, 20), (30, 20), (20 + 86_400_000_000_000, 86_400_000_000_020)] {
        model.read(file, 0, 1, now).unwrap();
        assert_eq!(model.getattr(file).unwrap().atime_ns, expected);
    }
}

#[test]
fn a_tree_tells_hard_links_from_equal_files() {
    let mut linked = Case::new();
    let file = linked.file("a");
    linked.model.link(file, Ino::ROOT, b"b", 1).unwrap();
    let mut equal = Case::new();
    equal.file("a");
    equal.file("b");
    let (linked, equal) = (Tree::of(&linked.model).unwrap(), Tree::of(&equal.model).unwrap());
    assert_ne!(linked, equal);
    let difference = linked.difference(&equal, ("linked", "equal"));
    assert!(difference.contains("/b: same file as: linked /a, equal /b\n"), "{difference}");
    assert!(difference.contains("/a: nlink: linked 2, equal 1\n"), "{difference}");
}

#[test]
fn an_access_time_may_go_until_it_is_set_or_found() {
    let mut model = Model::new(0o755, 0, 0, 0, Atime::Strict);
    let new =
        NewInode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: Vec::new() };
    let file = model.create(Ino::ROOT, b"f", &new, 10).unwrap().ino;
    model.write(file, 0, b"x", 10).unwrap();
    let tree = |model: &Model| Tree::of(model).unwrap();
    let before = tree(&model);
    model.read(file, 0, 1, 20).unwrap();
    let first = tree(&model);
    model.read(file, 0, 1, 30).unwrap();
    let second = tree(&model);
    assert!(second.allows(&before) && second.allows(&first) && !first.allows(&second));
    let mut found = model.clone();
    found.turn_out(&first, true);
    assert!(tree(&found).allows(&first) && !tree(&found).allows(&second));
    found = model.clone();
    found.turn_out(&first, false);
    assert!(tree(&found).allows(&second));
    model.setattr(file, &SetAttr { atime_ns: Some(5), ..SetAttr::default() }, 40).unwrap();
    let set = tree(&model);
    model.setattr(file, &SetAttr { atime_ns: Some(30), ..SetAttr::default() }, 40).unwrap();
    assert!(!tree(&model).allows(&set));
}

//! Random steps over a small namespace, so that they meet each other often.
//!
//! The generator runs what it makes on a model of its own and picks most targets from what exists
//! there; about one step in eight names something at random, existing or not.

use fastrand::Rng;
use novale_model::{
    Atime, Attr, Ino, Kind, Model, NewInode, RangeOp, RenameMode, SetAttr, XattrMode,
};

use super::step::{AclEntry, Action, Path, Step, Target, Value};
use super::subject::{Outcome, Session, run_step};

/// What a sequence is mostly about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// Names and bytes alike.
    Mixed,
    /// Creating, removing and moving names.
    Names,
    /// Reading, writing and cutting a few files.
    Bytes,
}

impl Flavor {
    /// Seeds in a row take turns.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        match seed % 3 {
            0 => Self::Mixed,
            1 => Self::Names,
            _ => Self::Bytes,
        }
    }
}

/// Makes steps from a seed; the same seed makes the same steps.
#[derive(Debug)]
pub struct Generator {
    random: Rng,
    flavor: Flavor,
    model: Model,
    session: Session,
    made: u32,
    /// Makes only what any file system can be asked through the kernel.
    is_plain: bool,
    /// Maps files.
    maps: bool,
}

/// Directories nest at most so deep; names in the deepest are files and the like.
const DEPTH_MAX: usize = 3;

/// A file beyond this many bytes is rather cut than extended.
const FILE_BYTES_AIMED: u64 = 3 << 20;

const SLOTS: u8 = 4;

/// Lengths around the borders that matter: a word, a line, half a page, a page, several pages.
const LENGTHS: [u32; 32] = [
    0, 1, 7, 8, 9, 15, 63, 64, 65, 100, 127, 128, 511, 512, 1000, 1024, 2047, 2048, 2049, 4032,
    4095, 4096, 4097, 5000, 8191, 8192, 8193, 10_000, 12_288, 16_384, 20_001, 40_960,
];

const RANGES: [RangeOp; 5] =
    [RangeOp::Punch, RangeOp::Zero, RangeOp::ZeroKeepSize, RangeOp::Collapse, RangeOp::Insert];

/// Lengths around the borders of an extended attribute's value: in its record, in pages, at most.
const XATTR_LENGTHS: [u32; 12] =
    [0, 1, 10, 100, 1000, 1024, 1025, 4096, 4097, 9000, 65_536, 65_537];

/// The borders of a dentry's lines: 24 bytes of a name fit the first, 64 each further one.
const NAME_LENGTHS: [usize; 12] = [23, 24, 25, 87, 88, 89, 152, 153, 216, 217, 254, 255];

impl Generator {
    /// A generator for one sequence.
    #[must_use]
    pub fn new(seed: u64, flavor: Flavor) -> Self {
        let model = Model::new(0o755, 0, 0, 0, Atime::Noatime);
        let session = Session::default();
        let random = Rng::with_seed(seed);
        Self { random, flavor, model, session, made: 0, is_plain: false, maps: false }
    }

    /// A generator of what any file system can be asked through the kernel.
    #[must_use]
    pub fn plain(seed: u64, flavor: Flavor) -> Self {
        Self { is_plain: true, ..Self::new(seed, flavor) }
    }

    /// A generator that maps files, too.
    #[must_use]
    pub fn mapping(seed: u64, flavor: Flavor) -> Self {
        Self { maps: true, ..Self::new(seed, flavor) }
    }

    /// A generator whose steps go on from what these leave; it maps files if these do.
    #[must_use]
    pub fn behind(seed: u64, flavor: Flavor, steps: &[Step]) -> Self {
        let maps = steps.iter().any(|step| matches!(step, Step::Map { .. }));
        let mut generator = Self { maps, ..Self::new(seed, flavor) };
        for step in steps {
            generator.follow(step);
        }
        generator
    }

    /// A sequence of `count` steps; every `compare_every`-th compares all.
    pub fn steps(&mut self, count: usize, compare_every: usize) -> Vec<Step> {
        let step = |index: usize| {
            if (index + 1).is_multiple_of(compare_every) { Step::Compare } else { self.step() }
        };
        (0..count).map(step).collect()
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        let step = self.pick_step();
        self.follow(&step);
        step
    }

    fn follow(&mut self, step: &Step) {
        self.made += 1;
        if matches!(step, Step::Remount | Step::Die) {
            self.session.forget_all();
            self.model.release_all();
        }
        // A failed step is wanted as well: both sides must fail alike.
        let _outcome: Outcome =
            run_step(&mut self.model, &mut self.session, step, i64::from(self.made));
    }

    fn pick_step(&mut self) -> Step {
        let (names, bytes) = match self.flavor {
            Flavor::Mixed => (40, 50),
            Flavor::Names => (75, 10),
            Flavor::Bytes => (12, 78),
        };
        match self.random.u32(0..100) {
            roll if roll < names => self.name_step(),
            roll if roll < names + bytes => self.bytes_step(),
            _ => self.other_step(),
        }
    }

    fn name_step(&mut self) -> Step {
        match self.random.u32(0..100) {
            0..35 => Step::Create { path: self.new_path(), new: self.new_inode() },
            35..47 => Step::Link { target: self.target(not_directory), path: self.new_path() },
            47..63 => Step::Unlink(self.path(not_directory)),
            63..70 => Step::Rmdir(self.path(is_directory)),
            _ => self.rename(),
        }
    }

    fn rename(&mut self) -> Step {
        let mode = match self.random.u32(0..10) {
            0..6 => RenameMode::Replace,
            6 => RenameMode::NoReplace,
            _ => RenameMode::Exchange,
        };
        let from = self.path(any);
        let existing = mode == RenameMode::Exchange || self.random.bool();
        let to = if existing { self.path(any) } else { self.new_path() };
        Step::Rename { from, to, mode }
    }

    fn bytes_step(&mut self) -> Step {
        let target = self.file();
        if self.maps && self.random.u32(0..3) == 0 {
            return self.mapping_step(target);
        }
        let size = self.size_of(&target);
        if self.random.u32(0..20) == 0 {
            return self.copy(target, size);
        }
        let action = match self.random.u32(0..100) {
            0..30 => self.write(size),
            30..40 => self.range(size),
            40..52 => {
                Action::Append { len: self.length_within(size), fill: self.random.u32(0..250) }
            }
            52..70 => Action::Read { offset: self.offset(size), len: self.length() },
            70..88 => {
                let set =
                    if self.random.u32(0..5) == 0 { self.some_set() } else { SetAttr::default() };
                Action::Set(SetAttr { size: Some(self.new_size(size)), ..set })
            }
            88..93 => Action::Allocate {
                extend: self.random.bool(),
                offset: self.offset(size),
                len: u64::from(self.length()),
            },
            93..98 => Action::Seek { offset: self.offset(size), data: self.random.bool() },
            _ => Action::Sync,
        };
        Step::On { target, action }
    }

    /// A file; where files are mapped, often one that is.
    fn file(&mut self) -> Target {
        let mapped: Vec<u8> = self.session.mapped().collect();
        if !mapped.is_empty() && self.random.u32(0..3) > 0 {
            return Target::Slot(self.choose(&mapped));
        }
        self.target(is_file)
    }

    /// A file is mapped, stored to, flushed, or published to.
    fn mapping_step(&mut self, target: Target) -> Step {
        let size = self.size_of(&target);
        let is_mapped = match &target {
            Target::Slot(slot) => self.session.mapped().any(|mapped| mapped == *slot),
            Target::Path(_) => false,
        };
        let action = match self.random.u32(0..100) {
            0..25 => return Step::Map { target, slot: self.random.u8(0..SLOTS) },
            25..65 if is_mapped || self.random.u32(0..8) == 0 => {
                let offset = self.random.u64(0..size.clamp(1, FILE_BYTES_AIMED));
                Action::Store { offset, len: self.length(), fill: self.random.u32(0..250) }
            }
            65..85 if is_mapped => Action::Flush {
                page: self.random.u64(0..=size.min(FILE_BYTES_AIMED) / 4096),
                pages: self.random.u64(1..4),
            },
            _ if is_mapped && self.random.u32(0..4) > 0 => {
                Action::Store { offset: 0, len: self.length(), fill: self.random.u32(0..250) }
            }
            _ => Action::Scatter {
                offset: self.random.u64(0..=size.min(FILE_BYTES_AIMED)),
                len: self.length_within(size).min(9000),
                fill: self.random.u32(0..250),
                count: self.random.u32(1..5),
                apart: self.random.u64(0..20_000),
            },
        };
        Step::On { target, action }
    }

    /// A copy from a file, mostly to another, sometimes within it.
    fn copy(&mut self, from: Target, size: u64) -> Step {
        let to = if self.random.u32(0..3) == 0 { from.clone() } else { self.target(is_file) };
        let to_size = self.size_of(&to);
        let to_offset = match self.offset(to_size) {
            offset if offset > FILE_BYTES_AIMED => self.random.u64(0..FILE_BYTES_AIMED),
            offset => offset,
        };
        Step::Copy {
            from,
            from_offset: self.offset(size),
            to,
            to_offset,
            len: self.length_within(to_size),
        }
    }

    /// A range to punch, zero, collapse or insert: some pages of the file, or any bytes.
    fn range(&mut self, size: u64) -> Action {
        let how = self.random.choice(RANGES).unwrap_or(RangeOp::Punch);
        let shifts = matches!(how, RangeOp::Collapse | RangeOp::Insert);
        if self.random.u32(0..8) < if shifts { 7 } else { 3 } {
            let pages = size.min(FILE_BYTES_AIMED) / 4096;
            let offset = self.random.u64(0..=pages) * 4096;
            let len = self.random.u64(1..=(pages / 2).clamp(1, 6)) * 4096;
            return Action::Range { how, offset, len };
        }
        Action::Range { how, offset: self.offset(size), len: u64::from(self.length()) }
    }

    fn write(&mut self, size: u64) -> Action {
        let len = self.length_within(size);
        let offset = if size > FILE_BYTES_AIMED {
            self.random.u64(0..FILE_BYTES_AIMED)
        } else {
            self.offset(size)
        };
        Action::Write { offset, len, fill: self.random.u32(0..1000) }
    }

    fn other_step(&mut self) -> Step {
        match self.random.u32(0..100) {
            0..8 if !self.is_plain => {
                // No tree here has an inode's number: that of one differs in core.
                let project = Some(self.random.u32(0..4) << 20);
                let set = SetAttr { project, ..SetAttr::default() };
                let target = if self.random.u32(0..4) > 0 {
                    self.target(is_directory)
                } else {
                    self.target(any)
                };
                Step::On { target, action: Action::Set(set) }
            }
            0..30 => {
                let set = self.some_set();
                Step::On { target: self.target(not_symlink), action: Action::Set(set) }
            }
            30..34 => Step::On { target: self.target(any), action: Action::Stat },
            34..48 => self.xattr_step(),
            48..55 => Step::On {
                target: self.target(is_directory),
                action: Action::List { at_a_time: self.random.u32(1..20) },
            },
            55..60 => Step::On { target: self.target(is_symlink), action: Action::Readlink },
            60..65 => Step::On { target: self.target(is_directory), action: Action::Parent },
            65..79 => Step::Hold { path: self.path(any), slot: self.random.u8(0..SLOTS) },
            79..82 => Step::Unnamed {
                dir: self.path(is_directory),
                new: NewInode { kind: Kind::File, target: Vec::new(), ..self.new_inode() },
                slot: self.random.u8(0..SLOTS),
            },
            82..94 => Step::Release(self.slot()),
            94..97 => Step::Remount,
            _ => Step::Die,
        }
    }

    /// A step on an extended attribute, mostly one that is or can be there.
    fn xattr_step(&mut self) -> Step {
        let target = match self.random.u32(0..4) {
            0 => self.target(any),
            1 => self.target(is_directory),
            _ => self.target(is_file),
        };
        let there = if self.random.u32(0..3) == 0 { self.xattr_of(&target) } else { None };
        let name = there.unwrap_or_else(|| self.xattr_name());
        let action = match self.random.u32(0..100) {
            0..60 => {
                let mode = match self.random.u32(0..8) {
                    0 => XattrMode::Create,
                    1 => XattrMode::Replace,
                    _ => XattrMode::Any,
                };
                let is_acl = name.starts_with(b"system.posix");
                let value = if is_acl { Value::Acl(self.acl()) } else { self.xattr_value() };
                Action::SetXattr { name, value, mode }
            }
            60..75 => Action::GetXattr(name),
            75..95 => Action::RemoveXattr(name),
            _ => Action::ListXattr,
        };
        Step::On { target, action }
    }

    fn xattr_name(&mut self) -> Vec<u8> {
        match self.random.u32(0..40) {
            0 => b"user.".to_vec(),
            1 => b"other.a".to_vec(),
            2 => [&b"user."[..], &[b'l'; 251]].concat(),
            3 => Vec::new(),
            4 => [&b"user."[..], &[b'n'; 250]].concat(),
            5..12 => b"system.posix_acl_access".to_vec(),
            12..18 => b"system.posix_acl_default".to_vec(),
            18..22 => b"trusted.a".to_vec(),
            22..24 => b"security.a".to_vec(),
            24 => b"security.capability".to_vec(),
            _ => [&b"user."[..], &[self.random.u8(b'a'..=b'c')]].concat(),
        }
    }

    /// One of the attributes that are there.
    fn xattr_of(&mut self, target: &Target) -> Option<Vec<u8>> {
        let step = Step::On { target: target.clone(), action: Action::ListXattr };
        let outcome = run_step(&mut self.model, &mut self.session, &step, 0);
        let Outcome::Bytes(names) = outcome else { return None };
        let names: Vec<_> =
            names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        self.random.choice(names).map(<[u8]>::to_vec)
    }

    fn xattr_value(&mut self) -> Value {
        let len = self.choose(&XATTR_LENGTHS);
        Value::Fill { len, fill: self.random.u32(0..250) }
    }

    /// Mostly a valid list.
    fn acl(&mut self) -> Vec<AclEntry> {
        let mut entries = Vec::new();
        let mut add = |random: &mut Rng, tag, id| {
            entries.push(AclEntry { tag, perm: random.u16(0..8), id });
        };
        add(&mut self.random, 1, u32::MAX);
        let (users, groups) = (self.random.u32(0..3), self.random.u32(0..3));
        (0..users).for_each(|user| add(&mut self.random, 2, user + 5));
        add(&mut self.random, 4, u32::MAX);
        (0..groups).for_each(|group| add(&mut self.random, 8, group));
        if users + groups > 0 || self.random.bool() {
            add(&mut self.random, 16, u32::MAX);
        }
        add(&mut self.random, 32, u32::MAX);
        match self.random.usize(0..12) {
            0 => entries.clear(),
            at if at < entries.len() && self.random.bool() => drop(entries.remove(at)),
            _ => {}
        }
        entries
    }

    /// Mostly a slot in use.
    fn slot(&mut self) -> u8 {
        let used: Vec<u8> = self.session.slots().map(|(slot, _)| slot).collect();
        match self.random.u32(0..8) {
            0 => self.random.u8(0..SLOTS),
            _ => self.choose(&used),
        }
    }

    fn new_inode(&mut self) -> NewInode {
        let kind = match self.random.u32(0..100) {
            0..58 => Kind::File,
            58..82 => Kind::Directory,
            82..92 => Kind::Symlink,
            92..94 => Kind::Fifo,
            94..96 => Kind::Socket,
            96..98 => Kind::CharDevice,
            _ => Kind::BlockDevice,
        };
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        NewInode {
            kind,
            // Linux shows all permissions for a symlink.
            mode: if kind == Kind::Symlink { 0o777 } else { self.mode() },
            uid: self.random.u32(0..3),
            gid: self.random.u32(0..3),
            rdev: if is_device { self.random.u32(0..1000) } else { 0 },
            target: if kind == Kind::Symlink { self.link_target() } else { Vec::new() },
        }
    }

    fn link_target(&mut self) -> Vec<u8> {
        let len = match self.random.u32(0..4) {
            0 => self.random.usize(1..60),
            1 => self.random.usize(60..70),
            2 => self.random.usize(250..270),
            _ => self.random.usize(1..4090),
        };
        vec![self.random.u8(b'a'..=b'z'); len]
    }

    fn mode(&mut self) -> u32 {
        if self.random.u32(0..4) == 0 { self.random.u32(0..0o10000) } else { 0o644 }
    }

    /// Changes of one attribute at least, never of the size.
    fn some_set(&mut self) -> SetAttr {
        let mut set = SetAttr::default();
        let mut chosen = || self.random.u32(0..3) == 0;
        let [mode, uid, gid, atime, mtime, clear] =
            [chosen(), chosen(), chosen(), chosen(), chosen(), chosen()];
        let mode = mode || !(uid || gid || atime || mtime);
        set.mode = mode.then(|| self.mode());
        set.uid = uid.then(|| self.random.u32(0..4));
        set.gid = gid.then(|| self.random.u32(0..4));
        set.atime_ns = atime.then(|| self.time());
        set.mtime_ns = mtime.then(|| self.time());
        // What a mode and its clearing in one call would mean, nobody says.
        set.clear_set_id = clear && !mode;
        set
    }

    fn time(&mut self) -> i64 {
        match self.random.u32(0..4) {
            0 => self.random.i64(0..1_000_000_000),
            1 => -self.random.i64(0..1_000_000_000_000),
            _ => self.random.i64(0..2_000_000_000_000_000_000),
        }
    }

    fn length(&mut self) -> u32 {
        match self.random.u32(0..100) {
            0..80 => self.choose(&LENGTHS),
            80..97 => self.random.u32(0..30_000),
            97..99 => self.random.u32(0..200_000),
            _ => 1 << 20,
        }
    }

    /// A length that keeps a large file from growing on.
    fn length_within(&mut self, size: u64) -> u32 {
        let len = self.length();
        if size > FILE_BYTES_AIMED { len.min(4097) } else { len }
    }

    /// An offset near the start, the end, a border of pages, or far beyond the end.
    fn offset(&mut self, size: u64) -> u64 {
        let size = size.min(FILE_BYTES_AIMED);
        let near = self.random.u64(0..20);
        match self.random.u32(0..100) {
            0..15 => 0,
            15..35 => size,
            35..45 => (size + near).saturating_sub(10),
            45..60 => {
                let page = self.random.u64(0..=size / 4096 + 1) * 4096;
                (page + near).saturating_sub(10)
            }
            60..66 => self.random.u64(0..=size / 4096 + 1) * 4096,
            66..86 => self.random.u64(0..=size),
            86..95 => size + self.random.u64(0..20_000),
            95..98 => size + self.random.u64(0..300_000),
            98 => u64::from(self.choose(&LENGTHS)),
            _ => self.far_offset(),
        }
    }

    fn far_offset(&mut self) -> u64 {
        match self.random.u32(0..8) {
            0 => i64::MAX.cast_unsigned() - self.random.u64(0..5000),
            1 => self.random.u64(i64::MAX.cast_unsigned()..u64::MAX),
            _ => 1 << self.random.u32(22..42),
        }
    }

    fn new_size(&mut self, size: u64) -> u64 {
        if size > FILE_BYTES_AIMED {
            return self.random.u64(0..FILE_BYTES_AIMED);
        }
        match self.random.u32(0..10) {
            0..2 => 0,
            2..4 => self.random.u64(0..=size),
            4 => size / 4096 * 4096,
            5 => u64::from(self.choose(&LENGTHS)),
            _ => self.offset(size),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        match self.random.u32(0..100) {
            0..85 => vec![self.random.u8(b'a'..=b'f')],
            85..88 => b"with blank\xff".to_vec(),
            _ => {
                let len = self.choose(&NAME_LENGTHS);
                vec![self.random.u8(b'x'..=b'z'); len]
            }
        }
    }

    /// A name in some directory, that may exist or not.
    fn new_path(&mut self) -> Path {
        let depth_max = DEPTH_MAX - 1;
        let wanted =
            |path: &Path, attr: &Attr| is_directory(path, attr) && path.0.len() <= depth_max;
        let mut parent = self.existing(wanted).unwrap_or_default();
        if self.random.u32(0..16) == 0 {
            parent = self.random_path();
        }
        let name = match self.random.u32(0..200) {
            0 => vec![b'l'; 256],
            1 => Vec::new(),
            2 => b"a/b".to_vec(),
            3 => b"a\0".to_vec(),
            _ => self.name(),
        };
        parent.join(&name)
    }

    fn random_path(&mut self) -> Path {
        let names = self.random.usize(1..=DEPTH_MAX);
        Path((0..names).map(|_| self.name()).collect())
    }

    /// Mostly a path that exists and is wanted, else any.
    fn path(&mut self, wanted: impl Fn(&Path, &Attr) -> bool) -> Path {
        let below_root = |path: &Path, attr: &Attr| !path.0.is_empty() && wanted(path, attr);
        match self.random.u32(0..16) {
            0 => self.random_path(),
            1 => self.existing(any).unwrap_or_default(),
            _ => self.existing(below_root).unwrap_or_else(|| self.random_path()),
        }
    }

    fn target(&mut self, wanted: impl Fn(&Path, &Attr) -> bool) -> Target {
        let slots: Vec<u8> = self.session.slots().map(|(slot, _)| slot).collect();
        match self.random.u32(0..5) {
            0 if !slots.is_empty() => Target::Slot(self.choose(&slots)),
            _ => Target::Path(self.path(wanted)),
        }
    }

    fn existing(&mut self, wanted: impl Fn(&Path, &Attr) -> bool) -> Option<Path> {
        let mut found: Vec<Path> = walk(&self.model)
            .into_iter()
            .filter(|(path, attr)| wanted(path, attr))
            .map(|(path, _)| path)
            .collect();
        if found.is_empty() {
            return None;
        }
        Some(found.swap_remove(self.random.usize(0..found.len())))
    }

    fn size_of(&mut self, target: &Target) -> u64 {
        let step = Step::On { target: target.clone(), action: Action::Stat };
        let outcome = run_step(&mut self.model, &mut self.session, &step, 0);
        if let Outcome::Attr(attr) = outcome { attr.size } else { 0 }
    }

    fn choose<T: Copy + Default>(&mut self, from: &[T]) -> T {
        self.random.choice(from).copied().unwrap_or_default()
    }
}

/// All paths of a model, the root's included, with their attributes.
fn walk(model: &Model) -> Vec<(Path, Attr)> {
    let mut waiting = vec![(Path::default(), Ino::ROOT)];
    let mut found = Vec::new();
    // A directory has one name, so the walk ends.
    while let Some((path, ino)) = waiting.pop() {
        for (name, child) in model.readdir(ino).unwrap_or_default() {
            waiting.push((path.join(&name), child));
        }
        found.extend(model.getattr(ino).map(|attr| (path, attr)));
    }
    found
}

fn any(_: &Path, _: &Attr) -> bool {
    true
}

/// What an inode's kind is to be.
macro_rules! kinds {
    ($($name:ident $is:tt $kind:ident)*) => {
        $(fn $name(_: &Path, attr: &Attr) -> bool {
            attr.kind $is Kind::$kind
        })*
    };
}

kinds! {
    is_file == File
    is_directory == Directory
    not_directory != Directory
    is_symlink == Symlink
    not_symlink != Symlink
}

//! Small pools, and how their structures are changed.

use novale_arena::Arena;
use novale_core::*;
use novale_layout::*;
use novale_pm::{Pm, PmOptions, Purpose};

pub(crate) const MB: u64 = 1 << 20;
pub(crate) const UUID: [u8; 16] = [7; 16];
pub(crate) const DIR: Ino = Ino::new(2);
pub(crate) const FILE: Ino = Ino::new(3);

pub(crate) fn ctx() -> Ctx {
    Ctx { now_ns: 5, hint: 0 }
}

pub(crate) fn try_open(pm: Pm) -> Result<Fs> {
    open_as(pm, false)
}

pub(crate) fn open_read_only(pm: Pm) -> Result<Fs> {
    open_as(pm, true)
}

fn open_as(pm: Pm, read_only: bool) -> Result<Fs> {
    let options = OpenOptions { now_ns: 2, read_only, ..OpenOptions::default() };
    Fs::open(pm, Arena::anonymous(64 * MB).unwrap(), &options, &Serial, &|_| {})
}

pub(crate) fn new(kind: FileKind) -> NewInode<'static> {
    NewInode { kind, mode: 0o755, uid: 1, gid: 2, rdev: 0, target: b"" }
}

pub(crate) fn empty_pool() -> Pm {
    empty_pool_of(16 * MB)
}

pub(crate) fn empty_pool_of(len: u64) -> Pm {
    let pm = Pm::anonymous(&[len], &PmOptions::default()).unwrap();
    let options = MkfsOptions { pool_uuid: UUID, ..MkfsOptions::numbered(1, 1) };
    mkfs(&pm, &options).unwrap();
    pm
}

/// A pool closed clean: the root with `d` and `f`, `d` with `x`, `f` with 5000 bytes.
pub(crate) fn pool() -> Pm {
    fill(empty_pool())
}

/// What [`pool`] has, in a pool that is empty.
pub(crate) fn fill(pm: Pm) -> Pm {
    let fs = try_open(pm).unwrap();
    fs.create(&ctx(), Node::ROOT, b"d", &new(FileKind::Directory)).unwrap();
    fs.create(&ctx(), Node::ROOT, b"f", &new(FileKind::File)).unwrap();
    fs.create(&ctx(), Node::current(DIR), b"x", &new(FileKind::File)).unwrap();
    fs.write(&ctx(), FILE, 0, &[1; 5000]).unwrap();
    fs.close().unwrap();
    fs.into_pm()
}

pub(crate) fn seed() -> Seed {
    Seed::pool(&UUID)
}

pub(crate) fn put(pm: &Pm, at: PmAddr, bytes: &[u8]) {
    pm.fence(pm.stream(at, bytes, Purpose::Other)).end();
}

pub(crate) fn word(pm: &Pm, at: PmAddr) -> PmAddr {
    PmAddr::from_raw(pm.load_u64(at).unwrap())
}

/// Where an inode of the first chunk lies.
pub(crate) fn place(pm: &Pm, ino: Ino) -> PmAddr {
    let root = PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE);
    let table = word(pm, word(pm, root));
    let page = word(pm, table.add(ino.index() / INODES_PER_PAGE * 8));
    page.add(ino.index() % INODES_PER_PAGE * INODE_SIZE)
}

/// The newer line of an inode, and where it lies.
pub(crate) fn newest(pm: &Pm, ino: Ino) -> (PmAddr, CommitLine) {
    let lines = COMMIT_OFFSETS.iter().filter_map(|offset| {
        let at = place(pm, ino).add(*offset);
        let line = CommitLine::decode(&pm.load_line(at).unwrap(), seed().ino(ino));
        Some((at, line.ok()?))
    });
    lines.max_by_key(|(_, line)| line.op_seq).unwrap()
}

pub(crate) fn change_line(pm: &Pm, ino: Ino, change: impl Fn(&mut CommitLine)) {
    let (at, mut line) = newest(pm, ino);
    change(&mut line);
    // After a crash a line whose data checksum fails would only be refused.
    line.flags = 0;
    put(pm, at, &line.encode(seed().ino(ino)));
}

/// Puts another entry in the place of the inode's last one, which has one line as well.
pub(crate) fn change_last_entry(pm: &Pm, ino: Ino, entry: &Entry) {
    let (_, line) = newest(pm, ino);
    let mut bytes = [0; ENTRY_BYTES_MAX];
    let len = entry.encode(line.op_seq, seed().ino(ino).generation(1), &mut bytes);
    put(pm, line.log_tail, &bytes[..len]);
    change_line(pm, ino, |_| ());
}

/// Makes a pool that was closed say that the session before its closing goes on.
pub(crate) fn mark_unclean(pm: &Pm) {
    for offset in POOL_STATE_OFFSETS {
        let at = PmAddr::new(0, offset);
        if let Ok(mut state) = PoolState::decode(&pm.load_line(at).unwrap(), seed()) {
            if state.session > 1 {
                state.session -= state.flags & PoolState::CLEAN;
            }
            state.flags = 0;
            put(pm, at, &state.encode(seed()));
        }
    }
}

/// All bytes of the pool.
pub(crate) fn bytes(pm: &Pm) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(pm.slot_len(0)).unwrap()];
    pm.load(PmAddr::new(0, 0), &mut bytes).unwrap();
    bytes
}

pub(crate) fn flip(pm: &Pm, at: PmAddr, bit: u32) {
    let mut byte = [0];
    pm.load(at, &mut byte).unwrap();
    put(pm, at, &[byte[0] ^ (1 << bit)]);
}

pub(crate) fn findings(pm: &Pm) -> Vec<String> {
    check(pm, &Serial, &|_| {}).unwrap().findings.into_iter().map(|found| found.what).collect()
}

/// What a repair by root comes to that keeps nothing of what it gives up.
pub(crate) fn repaired(pm: &Pm, effort: repair::Effort) -> Result<repair::RepairReport> {
    let mut help = repair::Help {
        exec: &Serial,
        progress: &|_| {},
        keep: &mut |_| Ok(()),
        now_ns: 9,
        owner: (0, 0),
    };
    repair::repair(pm, effort, &mut help)
}

//! Clients that die while they take and give up holds, at each store to the arena of it, and while they
//! settle for one that had files open: the client that settles gives back just what they held.

use novale_core::{Ctx, Error, FileKind, Form, Fs, HoldId, Ino, NewInode, Node, SetAttr};
use novale_layout::{PAGE, PmAddr};

use super::death::{Dead, Death, DeathOptions, DeathSummary, ended_process};
use crate::crash::{Act, Points, place};
use crate::diff::{CoreOptions, OnFs};
use crate::workload::parse_steps;

const PAGE_BYTES: usize = 4096;
/// Points of one act at most.
const POINTS_MAX: u64 = 10_000;
const SETUP: &str =
    "create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%\nwrite /f offset=0 len=20000 fill=1";
const CTX: Ctx = Ctx { now_ns: 1, hint: 0 };
const FILE: NewInode<'_> =
    NewInode { kind: FileKind::File, mode: 0, uid: 0, gid: 0, rdev: 0, target: b"" };
/// The name of a file that is made and open with that.
const MADE: &[u8] = b"made";

/// What a client does when it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// It opens a file.
    Opens,
    /// It makes a file that is open with that.
    Makes,
    /// It opens a file, removes its name and closes it.
    OpensRemovesCloses,
    /// It maps a file's own pages, cuts the file off, writes to it again, and unmaps it.
    MapsCutsWrites,
    /// It maps a file's own pages, removes its name and unmaps it.
    MapsRemoves,
    /// It maps a file's own pages, asks that a kernel map the file, and gives way to it.
    GivesWay,
    /// It settles for one that died with a file open twice that has no name any more.
    Settles,
}

impl Holding {
    fn maps(self) -> bool {
        matches!(self, Self::MapsCutsWrites | Self::MapsRemoves | Self::GivesWay)
    }
}

/// A client's mapping of all of a file.
struct Mapped {
    hold: HoldId,
    pages: Vec<PmAddr>,
}

impl Mapped {
    fn new(fs: &Fs, (ino, generation): (Ino, u32)) -> Result<Self, String> {
        let hold = fs.map_hold_giving_way(&CTX, ino, generation);
        let hold = hold.map_err(text)?.ok_or("it is gone")?;
        let runs = fs.map_pages(&CTX, hold, 0, u64::from(u32::MAX)).map_err(text)?;
        let pages = runs.iter().flat_map(|run| (0..run.pages).map(|at| run.addr.add(at * PAGE)));
        Ok(Self { hold, pages: pages.collect() })
    }

    fn of_survivor(death: &mut Death) -> Result<Self, String> {
        let fs = fs(death)?;
        let attr = fs.lookup(&CTX, Node::ROOT, b"f").map_err(text)?;
        Self::new(fs, (attr.ino, attr.generation))
    }

    /// Unmaps it, once it is sure that no page of it is another file's: all that is free is written to.
    fn end(self, fs: &Fs) -> Result<(), String> {
        let shown = || {
            let mut bytes = vec![[0; PAGE_BYTES]; self.pages.len()];
            let each = self.pages.iter().zip(&mut bytes);
            let loaded = each.map(|(at, page)| fs.pm().load(*at, page));
            loaded.collect::<Result<(), _>>().map_err(|why| why.to_string()).map(|()| bytes)
        };
        let before = shown()?;
        let full = fs.create(&CTX, Node::ROOT, b"full", &FILE).map_err(text)?;
        while fs.append(&CTX, full.ino, &[3; PAGE_BYTES]).is_ok() {}
        if shown()? != before {
            return Err("a page that the survivor has mapped was given to another file".to_owned());
        }
        fs.unlink(&CTX, Node::ROOT, b"full").map_err(text)?;
        fs.open_release(&CTX, self.hold).map_err(|why| format!("the survivor's mapping: {why}"))
    }
}

/// Lets a client die at one of `stride` stores to the arena of what it does. `kept`: the survivor has the file
/// open as well, or mapped as this one has. Returns the number of these stores.
///
/// # Errors
/// The death that was not settled rightly, and what was wrong.
pub fn die_holding(what: Holding, kept: bool, stride: usize) -> Result<u64, String> {
    let core = CoreOptions::new(vec![4 << 20], 2, Form::Auto);
    let options =
        DeathOptions { core, points: Points::Arena, stride: 1, first: 0, power: false, seed: 1 };
    let setup = parse_steps(SETUP)?;
    for point in (0..POINTS_MAX).step_by(stride) {
        let mut death = Death::new(&setup, &options)?;
        let map = if kept && what.maps() { Some(Mapped::of_survivor(&mut death)?) } else { None };
        match one(&mut death, what, kept, point) {
            Ok(Some(dead)) => {
                let judged = judge(death, (what, kept, map), &dead);
                judged.map_err(|why| {
                    let at = dead.last().map_or_else(String::new, |dead| place(&dead.at));
                    format!("{what:?}, kept {kept}, point {point}: {why}\n  it died at {at}")
                })?;
            }
            Ok(None) => return Ok(point),
            Err(why) => return Err(format!("{what:?}, point {point}: {why}")),
        }
    }
    Err(format!("{what:?}: more than {POINTS_MAX} points"))
}

/// Runs up to a point; who died, or nothing if there is no such point.
fn one(
    death: &mut Death,
    what: Holding,
    kept: bool,
    point: u64,
) -> Result<Option<Vec<Dead>>, String> {
    let fs = fs(death)?;
    let attr = fs.lookup(&CTX, Node::ROOT, b"f").map_err(text)?;
    let (ino, generation) = (attr.ino, attr.generation);
    if kept && !what.maps() {
        fs.hold(ino).map_err(text)?;
    }
    let mut dead = Vec::new();
    let act: Act = match what {
        Holding::Opens => Box::new(move |fs| open(fs, ino, generation)),
        Holding::Makes => {
            Box::new(|fs| fs.create_held(&CTX, Node::ROOT, MADE, &FILE, 0).map(drop).map_err(text))
        }
        Holding::OpensRemovesCloses => Box::new(move |fs| {
            let hold = fs.open_hold(&CTX, ino, generation).map_err(text)?;
            fs.unlink(&CTX, Node::ROOT, b"f").map_err(text)?;
            fs.open_release(&CTX, hold.ok_or("it is gone")?).map_err(text)
        }),
        Holding::MapsCutsWrites => Box::new(move |fs| {
            let map = Mapped::new(fs, (ino, generation))?;
            let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(&CTX, Node::current(ino), &size(5000)).map_err(text)?;
            fs.write(&CTX, ino, 9000, &[2; 4096]).map_err(text)?;
            fs.setattr(&CTX, Node::current(ino), &size(100)).map_err(text)?;
            fs.open_release(&CTX, map.hold).map_err(text)
        }),
        Holding::MapsRemoves => Box::new(move |fs| {
            let map = Mapped::new(fs, (ino, generation))?;
            fs.unlink(&CTX, Node::ROOT, b"f").map_err(text)?;
            fs.open_release(&CTX, map.hold).map_err(text)
        }),
        Holding::GivesWay => Box::new(move |fs| {
            let map = Mapped::new(fs, (ino, generation))?;
            fs.ask_to_map(&CTX, ino).map_err(text)?;
            fs.open_release(&CTX, map.hold).map_err(text)?;
            fs.ask_to_map(&CTX, ino).map_err(text).map(drop)
        }),
        Holding::Settles => {
            let opens: Act = Box::new(move |fs| {
                open(fs, ino, generation)?;
                open(fs, ino, generation)
            });
            // It dies after all that it does.
            dead.push(
                death
                    .start_act(opens, (Points::Arena, None), ended_process())?
                    .ok_or("it lives")?,
            );
            self::fs(death)?.unlink(&CTX, Node::ROOT, b"f").map_err(text)?;
            Box::new(|fs| fs.settle_dead().map(drop).map_err(text))
        }
    };
    let Some(last) = death.start_alive(act, point)? else { return Ok(None) };
    dead.push(last);
    Ok(Some(dead))
}

fn open(fs: &Fs, ino: Ino, generation: u32) -> Result<(), String> {
    fs.open_hold(&CTX, ino, generation).map_err(text)?.map(drop).ok_or_else(|| "it is gone".into())
}

/// The survivor settles, and finds the file with its own holds alone.
fn judge(
    mut death: Death,
    (what, kept, map): (Holding, bool, Option<Mapped>),
    dead: &[Dead],
) -> Result<(), String> {
    death.recorded();
    death.hardware.forget(None);
    let fs = fs(&mut death)?;
    fs.settle_dead().map_err(text)?;
    let found = match fs.lookup(&CTX, Node::ROOT, b"f") {
        Ok(attr) => Some(attr.ino),
        Err(Error::NotFound) => None,
        Err(error) => return Err(text(error)),
    };
    for client in dead {
        death.is_forgotten(&client.client)?;
    }
    let fs = self::fs(&mut death)?;
    // The only file that the root has or had.
    let ino = found.unwrap_or_else(|| Ino::new(2));
    if let Some(map) = map {
        map.end(fs)?;
    }
    if let (Some(ino), true) = (found, what.maps()) {
        // Nobody is left who would have to give way.
        let asked = fs.ask_to_map(&CTX, ino);
        if !matches!(asked, Ok(true)) {
            return Err(format!("no kernel may map the file: {asked:?}"));
        }
        fs.set_mapped(&CTX, ino, false).map_err(text)?;
        let again = fs.map_hold(&CTX, ino, fs.getattr(ino).map_err(text)?.generation);
        fs.open_release(&CTX, again.map_err(text)?.ok_or("it is gone")?).map_err(text)?;
    } else if kept && !what.maps() {
        fs.release(&CTX, ino, 1).map_err(|why| format!("the survivor's hold: {why}"))?;
    }
    match (found, fs.release(&CTX, ino, 1)) {
        (Some(_), Err(Error::Invalid(_))) | (None, Err(Error::Stale)) => {}
        (_, Ok(())) => return Err("a dead client's hold is left".to_owned()),
        (_, Err(error)) => return Err(format!("{found:?}: {error}")),
    }
    made_is_let_go(fs)?;
    let mut summary = DeathSummary::default();
    death.use_all(&mut summary)
}

/// A file that was made has no hold left, and goes with its name.
fn made_is_let_go(fs: &Fs) -> Result<(), String> {
    let made = match fs.lookup(&CTX, Node::ROOT, MADE) {
        Err(Error::NotFound) => return Ok(()),
        made => made.map_err(text)?,
    };
    fs.unlink(&CTX, Node::ROOT, MADE).map_err(text)?;
    match fs.getattr(made.ino) {
        Err(Error::Stale) => Ok(()),
        left => Err(format!("the file that was made is held: {left:?}")),
    }
}

fn fs(death: &mut Death) -> Result<&Fs, String> {
    death.machine.fs().map_err(|why| format!("{why:?}"))
}

#[expect(clippy::needless_pass_by_value, reason = "given to map_err")]
fn text(error: Error) -> String {
    error.to_string()
}

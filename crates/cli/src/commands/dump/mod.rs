//! `novale dump`: what lies in a pool, structure by structure, sound or not. Comes in: slots, some of
//! them perhaps missing, and what of the pool is wanted (`what`). Goes out: what `novale_core::dump`
//! finds there, as `text` or `json`. Nothing is changed and no lock taken, so that a pool in use can
//! be looked into. Never in here: what a structure means.

mod json;
mod text;
mod what;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use novale_core::dump::{
    Dump, DumpLimits, InodeDump, LaneDump, PageDump, PoolDump, SavedDump, SlotDump,
};
use novale_layout::Ino;

use crate::base::args::DumpArgs;
use crate::base::progress::{AllCpus, Bar};
use crate::holders::holder;
use crate::holders::patience::patiently_by;
use crate::pools::slots;
use what::What;

/// What was asked for.
enum Content {
    Pool(PoolDump),
    Slots(Vec<SlotDump>),
    Lanes(Vec<LaneDump>),
    Saved(SavedDump),
    Inode(Box<InodeDump>),
    Page { page: PageDump, hex: bool },
}

pub(crate) fn run(args: &DumpArgs) -> Result<()> {
    let (paths, what) = what::split(&args.words)?;
    let found = patiently_by(&paths, slots::find_some)?;
    let pm = found.open()?;
    let dump = Dump::new(&pm);
    let mut remarks = found.remarks;
    remarks.extend(in_use(&paths));
    remarks.extend(dump.remarks().iter().cloned());
    let limits = DumpLimits { items: args.limit, behind: args.behind };
    let found = match what {
        What::Superblock => Content::Pool(dump.pool()),
        What::Slots => Content::Slots(dump.slots()),
        What::Lanes => Content::Lanes(dump.lanes()),
        What::Saved => Content::Saved(dump.saved(limits)),
        What::Inode(number) => Content::Inode(Box::new(dump.inode(Ino::new(number), limits))),
        What::Path(path) => {
            let ino = dump.find(&path).map_err(|why| anyhow!("{}: {why}", path.escape_ascii()))?;
            Content::Inode(Box::new(dump.inode(ino, limits)))
        }
        What::Page(addr) => {
            let bar = Bar::new();
            let page = dump.page(addr, &AllCpus, &|progress| bar.show(progress))?;
            Content::Page { page, hex: args.hex }
        }
    };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&json::of(&found, &remarks))?)
    } else {
        text::show(&found, &remarks)
    }
}

/// That somebody may be changing what is shown.
fn in_use(paths: &[PathBuf]) -> Option<String> {
    let process = paths.iter().find_map(|path| holder::holder(path))?;
    Some(format!("in use by process {}: what is shown may be changing", process.pid))
}

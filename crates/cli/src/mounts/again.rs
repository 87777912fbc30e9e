//! A pool that is mounted, mounted on a second directory: as of any file system, it is the same one
//! there, served by the same daemon. A second daemon would have a kernel's view of its own: locks would not
//! count between the two, nor would writes and mappings of a file meet.

use anyhow::{Result, bail};
use novale_core::{Mode, mount_served};
use novale_fuse::{MountEntry, MountTable, mount_again};

use crate::base::args::ModeArg;
use crate::base::out::shown_path;
use crate::base::words::{DIRECT, QUIET, asked};
use crate::holders::ask;
use crate::holders::facts::Facts;
use crate::holders::holder;
use crate::mounts::mount::Request;
use crate::mounts::remount::{cannot_change, for_the_next_mount};
use crate::pools::slots::{self, Found};

/// Shows a pool that the caller has mounted in another directory too; false where it is not mounted, or
/// not so as it is asked for, which is refused as a pool in use is.
pub(crate) fn run(request: &Request) -> Result<bool> {
    // In the foreground it is a daemon that is asked for. Who is not root can't show a mount elsewhere.
    if request.args.foreground || !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    let Ok(found) = slots::find(&request.slots) else { return Ok(false) };
    let Some((mount, facts)) = mount_of(&found)? else { return Ok(false) };
    let lacks_direct = request.args.direct && !has(&facts, DIRECT);
    if lacks_direct || facts.read_only != request.words.options.read_only {
        return Ok(false);
    }
    // Whoever asks for durable writes goes by it.
    let asked = request.args.mode.map(ModeArg::mode);
    if asked == Some(Mode::Strict) && facts.mode.starts_with(Mode::Buffered.name()) {
        bail!(
            "{} is mounted at {} with mode=buffered: unmount it first, and mount it with mode=strict",
            slots::shown(&found.paths),
            shown_path(&mount.target)
        );
    }
    mount_again(&request.words.options, &mount, &request.target)?;
    cannot_change(&request.target, &not_so(request, &facts));
    Ok(true)
}

/// Whether a word asks for what the daemon runs with.
fn has(facts: &Facts, word: &str) -> bool {
    facts.daemon_words.iter().any(|runs| runs == word)
}

/// What is asked for, by words or arguments, and is not so in the mount that is shown.
fn not_so(request: &Request, facts: &Facts) -> Vec<String> {
    fn name(word: &str) -> Option<&str> {
        word.split('=').next()
    }
    let mut late = for_the_next_mount(&request.words, facts);
    let is_word =
        |asked: &String| request.words.daemon.iter().any(|word| name(word) == name(asked));
    let arguments = asked(&request.args).into_iter().filter(|asked| !is_word(asked));
    late.extend(arguments.filter(|asked| asked != QUIET && !has(facts, asked)));
    late
}

/// The caller's own mount of a pool: its arena says so, in which the daemon lives.
fn mount_of(found: &Found) -> Result<Option<(MountEntry, Facts)>> {
    let Some(first) = found.paths.first() else { return Ok(None) };
    let Ok(arena) = found.arena()?.open() else { return Ok(None) };
    let own = |entry: &MountEntry| entry.is_own() && mount_served(&arena, entry.device).is_some();
    let Some(known) = holder::mounts_of(first)?.into_iter().find(own) else { return Ok(None) };
    let table = MountTable::read()?;
    let whole = table.whole(known.device).filter(|whole| table.top(&whole.target) == Some(*whole));
    let Some(mount) = whole.cloned() else { return Ok(None) };
    let facts = ask::ask(&mount, ask::ANSWER_MAX).unwrap_or_default().facts;
    Ok(facts.map(|facts| (mount, facts)))
}

//! A slot whose memory goes away under a command that has it mapped: the command says so, and ends with its own code,
//! or goes on with what there is.

use anyhow::{Context, Result};
use novale_pm::{Ending, end_at_failing_slots, survive_failing_slots};

use crate::base::args::Command;
use crate::commands::check;

macro_rules! ending {
    ($json:expr, $code:expr, $words:literal) => {
        Ending {
            words: concat!("novale: ", $words, "\n"),
            answer: if $json { concat!("{\"error\":\"", $words, "\"}\n") } else { "" },
            code: $code,
        }
    };
}

/// Has the process end so. Those that deal with mounts outlive a slot: they serve it, or have more to do, and what they
/// can't read of it is an error to them. The others map none.
pub(crate) fn end_at_failing(command: &Command) -> Result<()> {
    let json = command.json();
    let read = |code: u8| {
        ending!(
            json,
            code,
            "a slot was cut off, or its memory failed, while it was read: restore it, and make the same call again"
        )
    };
    let ending = match command {
        Command::Check(_) => read(check::CANNOT_RUN),
        Command::Info(_)
        | Command::Set(_)
        | Command::Stats(_)
        | Command::Wear(_)
        | Command::Dump(_)
        | Command::Quota(_) => read(1),
        Command::Slot(_) => ending!(
            json,
            1,
            "a slot was cut off, or its memory failed, while it was changed: restore it, and make the same call \
             again, which goes on"
        ),
        Command::Mkfs(_) | Command::Mount(_) | Command::Umount(_) | Command::Run(_) => {
            return survive_failing_slots().context("handling SIGBUS");
        }
        Command::InstallHelper(_) | Command::Ask(_) | Command::Manual(_) => return Ok(()),
    };
    end_at_failing_slots(ending).context("handling SIGBUS")
}

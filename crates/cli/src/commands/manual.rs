//! `novale manual`: the pages of the manual that are made of the command line's own help.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::base::args::Cli;

/// Writes novale(1) and a page for each command.
pub(crate) fn run(dir: &Path) -> Result<()> {
    clap_mangen::generate_to(Cli::command(), dir).with_context(|| dir.display().to_string())
}

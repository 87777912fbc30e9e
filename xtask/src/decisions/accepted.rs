//! Mutants that need not be caught, each with the reason: `crates/lab/src/mutants/equivalent.txt`.

use std::path::Path;

use anyhow::{Context, ensure};

use super::mutant::Mutant;

const PATH: &str = "crates/lab/src/mutants/equivalent.txt";

/// `function | operator | change | why`; `*` is any operator, or change.
pub(super) struct Accepted {
    rows: Vec<[String; 4]>,
}

impl Accepted {
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(root.join(PATH)).context(PATH)?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let row = |line: &str| {
            // A change may have bars of its own.
            let (front, why) = line.rsplit_once(" | ").unwrap_or_default();
            let mut front = front.splitn(3, " | ").map(str::to_owned);
            let mut next = || front.next().unwrap_or_default();
            let row = [next(), next(), next(), why.to_owned()];
            ensure!(row.iter().all(|part| !part.is_empty()), "{PATH}: no row: {line}");
            Ok(row)
        };
        Ok(Self { rows: lines.map(row).collect::<anyhow::Result<_>>()? })
    }

    pub(super) fn has(&self, mutant: &Mutant) -> bool {
        self.rows.iter().any(|row| is_of(row, mutant))
    }

    /// Rows that no mutant is of.
    pub(super) fn idle(&self, mutants: &[Mutant]) -> Vec<String> {
        let idle = |row: &&[String; 4]| !mutants.iter().any(|mutant| is_of(row, mutant));
        self.rows.iter().filter(idle).map(|row| row.join(" | ")).collect()
    }
}

fn is_of([function, operator, change, _]: &[String; 4], mutant: &Mutant) -> bool {
    *function == mutant.function
        && (operator == "*" || operator == mutant.operator)
        && (change == "*" || *change == mutant.change())
}

#[cfg(test)]
mod tests {
    use super::super::tree::Sources;
    use super::*;

    /// A row whose function is gone, or whose text has changed, speaks of nothing.
    #[test]
    fn each_row_is_of_a_mutant() {
        let root = crate::workspace_root();
        let sources = Sources::read(root).unwrap();
        let accepted = Accepted::read(root).unwrap();
        assert_eq!(accepted.idle(&sources.mutants), Vec::<String>::new());
        let gone = Accepted::parse("Fs::gone | call | * | why").unwrap();
        assert_eq!(gone.idle(&sources.mutants).len(), 1);
    }

    #[test]
    fn a_row_has_four_parts() {
        assert!(Accepted::parse("Fs::write | call | why").is_err());
        let bars = Accepted::parse("f | bits | a | b => a & b | why").unwrap();
        assert_eq!(bars.rows[0][2], "a | b => a & b");
    }
}

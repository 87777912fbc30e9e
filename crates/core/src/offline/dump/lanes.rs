//! The lanes' journals: each record as it lies there, and whether it counts.

use novale_layout::{
    CommitLine, JOURNAL_OFFSETS, JOURNAL_RECORD_BYTES, JournalRecord, LINE, LayoutError, PmAddr,
    Structure,
};

use crate::offline::dump::Dump;
use crate::offline::dump::shown::Shown;

/// A lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDump {
    /// Its number.
    pub lane: u32,
    /// Its page, or why the table names none.
    pub page: Result<PmAddr, String>,
    /// Its two records.
    pub records: Vec<RecordDump>,
}

/// A journal record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDump {
    /// Its header, and the line of further inodes where it has one.
    pub header: Vec<Shown>,
    /// The inodes' new commit lines, of a record that validates.
    pub lines: Vec<Shown>,
    /// Whether recovery takes it, and why not.
    pub verdict: String,
}

impl Dump<'_> {
    /// All lanes.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneDump> {
        let lanes = (0..).zip(&self.lanes);
        lanes
            .map(|(lane, page)| LaneDump {
                lane,
                page: page.clone(),
                records: page.iter().flat_map(|page| self.records(*page)).collect(),
            })
            .collect()
    }

    fn records(&self, page: PmAddr) -> Vec<RecordDump> {
        JOURNAL_OFFSETS.iter().map(|offset| self.record(page.add(*offset))).collect()
    }

    fn record(&self, at: PmAddr) -> RecordDump {
        let mut bytes = [0; JOURNAL_RECORD_BYTES];
        if let Err(error) = self.pm.load(at, &mut bytes) {
            let header = vec![Shown::unreadable(Structure::JournalHeader, at, error)];
            return RecordDump { header, lines: Vec::new(), verdict: error.to_string() };
        }
        let judged = JournalRecord::decode(&bytes, self.seed);
        let mut header = vec![Shown::new(Structure::JournalHeader, at, &bytes, &judged)];
        let verdict = match &judged {
            Ok(_) => self.journal.verdict(at),
            Err(LayoutError::Blank) => "blank: nothing was written here, or it was erased".into(),
            Err(_) => "refused: torn by a crash before it was committed, or damaged when its \
                       inodes' own lines were durable; it counts for nothing"
                .into(),
        };
        let Ok(record) = judged else {
            return RecordDump { header, lines: Vec::new(), verdict };
        };
        let count = record.lines.len();
        if count > 4 {
            let line = bytes.get(64..).unwrap_or_default();
            let at = at.add(LINE);
            header.push(Shown::new(Structure::JournalInos, at, line, &Ok::<(), LayoutError>(())));
        }
        let first = at.add(LINE * header.len() as u64);
        let own = JournalRecord::own_lines(&bytes, count);
        let lines = (0..).zip(own.zip(record.lines.iter())).map(|(index, (line, (ino, _)))| {
            let judged = CommitLine::decode(line, self.seed.ino(*ino));
            let mut shown = Shown::new(Structure::Commit, first.add(index * LINE), line, &judged);
            let new = record.identity_mask >> index & 1 != 0;
            shown.note(format!("of inode {ino}{}", if new { ", which is new" } else { "" }));
            shown
        });
        RecordDump { header, lines: lines.collect(), verdict }
    }
}

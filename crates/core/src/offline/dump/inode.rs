//! An inode: its lines, what the journal says of it, what stands and why the rest does not.

use novale_layout::{
    COMMIT_OFFSETS, CommitLine, FileKind, IDENTITY_OFFSET, Ino, LayoutError, PmAddr, Structure,
    VOLATILE_OFFSET, VolatileLine,
};

use crate::base::error::{Error, Result};
use crate::inode::media::MediaInode;
use crate::inode::state::{InodePlace, LogId};
use crate::offline::check::refuse_unclean;
use crate::offline::dump::log::LogDump;
use crate::offline::dump::names::{ExtentDump, NameDump, ReplayedLog};
use crate::offline::dump::shown::Shown;
use crate::offline::dump::xattrs::XattrsDump;
use crate::offline::dump::{Dump, DumpLimits, line_addr, named};
use crate::op::standing;
use crate::op::standing::Standing;

/// An inode, with all that its log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeDump {
    /// Its number.
    pub ino: Ino,
    /// Where it lies; null where that is not known.
    pub at: PmAddr,
    /// What stands, or why nothing does.
    pub verdict: String,
    /// Identity line, the two commit lines, volatile line.
    pub lines: Vec<Shown>,
    /// Journal records that speak of it.
    pub records: Vec<RecordOf>,
    /// Its log, of the state that stands, or else of its newest line.
    pub log: LogDump,
    /// Its extended attributes.
    pub xattrs: XattrsDump,
    /// Names, of a directory.
    pub names: Vec<NameDump>,
    /// Pages, of what is no directory.
    pub extents: Vec<ExtentDump>,
    /// Names or extents that are left out, since they are too many.
    pub left_out: u64,
}

/// What a journal record says of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOf {
    /// Where the record lies.
    pub at: PmAddr,
    /// The `op_seq` of the inode's line in it.
    pub op_seq: u64,
    /// Whether recovery takes it, and why not.
    pub verdict: String,
}

/// The inode's own lines, and what became of them.
struct Judged {
    media: MediaInode,
    standing: Result<Option<Standing>>,
    clean_refusal: Option<Error>,
}

impl Judged {
    /// The state whose log is shown: the one that stands, else the newest there is.
    fn line(&self) -> Option<CommitLine> {
        let standing = self.standing.as_ref().ok().and_then(Option::as_ref);
        standing
            .map(|standing| standing.line)
            .or_else(|| self.media.newest().map(|(line, _)| *line))
    }

    fn verdict(&self) -> String {
        let said = match &self.standing {
            Err(error) => return format!("nothing stands: {error}"),
            Ok(None) => return "not in use: never written".to_owned(),
            Ok(Some(standing)) => standing,
        };
        if let Some(error) = &self.clean_refusal {
            return format!("refused, in a pool that was closed clean: {error}");
        }
        let by =
            if said.by_record { "the journal's record stands" } else { "a commit line stands" };
        if said.line.nlink == 0 {
            return format!("not in use: ended ({by})");
        }
        match &said.identity {
            Ok(identity) => format!("{:?} in use: {by}", identity.kind),
            Err(error) => format!("in use ({by}), with an identity line that is refused: {error}"),
        }
    }

    /// Why a commit line stands or does not.
    fn of_line(&self, line: &CommitLine) -> String {
        let standing = match &self.standing {
            Err(_) => return "not believed: nothing of this inode stands".to_owned(),
            Ok(None) => return "does not stand".to_owned(),
            Ok(Some(standing)) => standing,
        };
        if *line == standing.line {
            return "stands".to_owned();
        }
        if line.op_seq > standing.line.op_seq {
            return "does not stand: what its data checksum covers is not there".to_owned();
        }
        let by = if standing.by_record { "than the journal's record" } else { "than the other" };
        format!("does not stand: older {by}")
    }
}

impl Dump<'_> {
    /// Everything of one inode.
    #[must_use]
    pub fn inode(&self, ino: Ino, limits: DumpLimits) -> InodeDump {
        let records = self.records_of(ino);
        let nowhere = |verdict: String| InodeDump {
            ino,
            at: PmAddr::NULL,
            verdict,
            lines: Vec::new(),
            records: records.clone(),
            log: LogDump::default(),
            xattrs: XattrsDump::default(),
            names: Vec::new(),
            extents: Vec::new(),
            left_out: 0,
        };
        let Some(place) = self.chunks.place(self.seed, ino) else {
            return nowhere(self.no_place(ino));
        };
        let judged = match self.judge(ino, &place) {
            Ok(judged) => judged,
            Err(error) => return nowhere(error.to_string()),
        };
        let lines = self.lines(&place, &judged);
        let (replay, log) = self.log_of(ino, &judged, limits);
        let xattrs = self.xattrs(ino, &judged.media, &replay);
        let (names, extents, left_out) = kept(&replay, limits.items);
        let (at, verdict) = (place.addr, judged.verdict());
        InodeDump { ino, at, verdict, lines, records, log, xattrs, names, extents, left_out }
    }

    /// Why a number has no place.
    fn no_place(&self, ino: Ino) -> String {
        let lost = self.chunks.lost().iter().find(|lost| lost.has(ino));
        match lost {
            Some(lost) => format!("its place is not known: {}", lost.why),
            None if !ino.is_valid() => "no inode has this number".to_owned(),
            None => "not in use: its page is not made".to_owned(),
        }
    }

    fn records_of(&self, ino: Ino) -> Vec<RecordOf> {
        let records = self.journal.of(ino).iter().filter_map(|(index, line)| {
            let at = self.journal.records.get(*index)?.at;
            Some(RecordOf { at, op_seq: line.op_seq, verdict: self.journal.verdict(at) })
        });
        records.collect()
    }

    fn judge(&self, ino: Ino, place: &InodePlace) -> Result<Judged> {
        let media = MediaInode::read(self.pm, place)?;
        let session = self.state.map(|state| state.session);
        let standing = standing::decide(self.pm, session, &self.journal, ino, place);
        let refusal = |standing: &Standing| refuse_unclean(ino, place, standing).err();
        let found = standing.as_ref().ok().and_then(Option::as_ref);
        let clean_refusal = found.filter(|_| self.is_clean()).and_then(refusal);
        Ok(Judged { media, standing, clean_refusal })
    }

    fn lines(&self, place: &InodePlace, judged: &Judged) -> Vec<Shown> {
        let at = line_addr(place.addr, IDENTITY_OFFSET);
        let decode = |line: &[u8; 64]| place.identity(line);
        let mut identity = self.line(Structure::Identity, at, decode).0;
        self.tell_zeros(&mut identity);
        let mut lines = vec![identity];
        for offset in COMMIT_OFFSETS {
            let decode = |line: &[u8; 64]| place.commit(line);
            let at = line_addr(place.addr, offset);
            let (mut shown, line) = self.line(Structure::Commit, at, decode);
            shown.notes.extend(line.map(|line| judged.of_line(&line)));
            self.tell_zeros(&mut shown);
            lines.push(shown);
        }
        let at = line_addr(place.addr, VOLATILE_OFFSET);
        let decode = |line: &[u8; 64]| Ok::<_, LayoutError>(VolatileLine::decode(line));
        let (mut shown, volatile) = self.line(Structure::Volatile, at, decode);
        let generation = judged.media.identity.as_ref().map(|identity| identity.generation);
        if let (Ok(generation), Some(volatile)) = (generation, volatile)
            && generation != volatile.generation
            && volatile != VolatileLine::default()
        {
            shown.note("does not count: of another use of the number");
        }
        lines.push(shown);
        lines
    }

    /// One that was never written has a checksum.
    fn tell_zeros(&self, line: &mut Shown) {
        let is_blank = line.refused == Some(LayoutError::Blank.to_string());
        if !is_blank && self.pm.load_line(line.at) == Ok([0; 64]) {
            line.note(
                "every byte is zero: no line of an inode is stored so, it was cleared or lost",
            );
        }
    }

    /// The log of what stands, and what it comes to.
    fn log_of(&self, ino: Ino, judged: &Judged, limits: DumpLimits) -> (ReplayedLog, LogDump) {
        let mut replay = ReplayedLog::default();
        let Some(line) = judged.line() else { return (replay, LogDump::default()) };
        let generation = match &judged.media.identity {
            Ok(identity) => identity.generation,
            // The log's own pages name it, too.
            Err(_) => self.generation_of_log(line.log_head),
        };
        let id = LogId::new(self.seed, ino, generation);
        let mut log = self.log(&id, line.log_head, line.log_tail, limits, &mut replay);
        if line.nlink == 0 {
            log.end.push_str("; the inode has ended: its pages may be in use elsewhere");
        }
        (replay, log)
    }

    fn generation_of_log(&self, head: PmAddr) -> u32 {
        let Ok(line) = self.pm.load_line(head) else { return 0 };
        let shown = Shown::new(Structure::LogPage, head, &line, &Ok::<(), LayoutError>(()));
        let generation = shown.number("generation").and_then(|found| u32::try_from(found).ok());
        generation.unwrap_or(0)
    }

    /// What an inode's log comes to, and how the log ends.
    pub(super) fn replay(
        &self,
        ino: Ino,
        limits: DumpLimits,
    ) -> std::result::Result<(ReplayedLog, String), String> {
        let no_place = || format!("{}: {}", named(ino), self.no_place(ino));
        let place = self.chunks.place(self.seed, ino).ok_or_else(no_place)?;
        let judged = self.judge(ino, &place).map_err(|error| error.to_string())?;
        let kind = judged.media.identity.as_ref().map(|identity| identity.kind);
        if kind.is_ok_and(|kind| kind != FileKind::Directory) {
            return Err(format!("{} is no directory", named(ino)));
        }
        let (replay, log) = self.log_of(ino, &judged, limits);
        Ok((replay, log.end))
    }
}

/// Names and extents as far as they are kept, and how many are left out.
fn kept(replay: &ReplayedLog, items: usize) -> (Vec<NameDump>, Vec<ExtentDump>, u64) {
    let names: Vec<NameDump> = replay.names().take(items).cloned().collect();
    let mut extents = replay.extents();
    let all = replay.names().count() + extents.len();
    extents.truncate(items);
    let left_out = all - names.len() - extents.len();
    (names, extents, left_out as u64)
}

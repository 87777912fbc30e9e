//! The score, by room and by file, and what was not caught.

use std::collections::BTreeMap;

use super::accepted::Accepted;
use super::mutant::Mutant;
use super::results::Fate;

#[derive(Default, Clone, Copy)]
struct Score {
    caught: usize,
    survived: usize,
    unreached: usize,
    undecided: usize,
    accepted: usize,
}

impl Score {
    fn add(&mut self, fate: &Fate) {
        let counted = match fate {
            Fate::Caught(_) => &mut self.caught,
            Fate::Accepted => &mut self.accepted,
            Fate::Survived => &mut self.survived,
            Fate::Unreached => &mut self.unreached,
            Fate::Undecided => &mut self.undecided,
        };
        *counted += 1;
    }

    fn print(&self, name: &str) {
        let Self { caught, survived, unreached, undecided, accepted } = self;
        let all = caught + survived + unreached + undecided;
        let tenths = (caught * 1000).checked_div(all).unwrap_or(0);
        println!(
            "{name:<44} {all:>6} {caught:>6} {survived:>6} {unreached:>6} {undecided:>6} {accepted:>6} \
             {:>4}.{} %",
            tenths / 10,
            tenths % 10
        );
    }
}

/// Prints it all.
pub(super) fn print(fates: &[(&Mutant, Fate)], accepted: &Accepted) {
    let (mut rooms, mut files) = (BTreeMap::<&str, Score>::new(), BTreeMap::<&str, Score>::new());
    let mut total = Score::default();
    for (mutant, fate) in fates {
        rooms.entry(mutant.room()).or_default().add(fate);
        files.entry(&mutant.path).or_default().add(fate);
        total.add(fate);
        let what = match fate {
            Fate::Survived => "survived",
            Fate::Unreached => "unreached",
            Fate::Undecided => "undecided",
            Fate::Caught(_) if accepted.has(mutant) => "caught, but accepted",
            Fate::Caught(_) | Fate::Accepted => continue,
        };
        println!("{what}: {mutant}");
    }
    println!(
        "\n{:<44} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "", "tried", "caught", "surv.", "unrea.", "undec.", "accep.", "score"
    );
    for (name, score) in &files {
        score.print(name);
    }
    println!();
    for (name, score) in &rooms {
        score.print(name);
    }
    total.print("all");
}

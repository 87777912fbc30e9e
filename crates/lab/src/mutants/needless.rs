//! Mutants that survive because nothing needs what they take away, each with the proof; and the calls
//! that no run reaches. They stand in `needless.txt`, one line a row, by the functions of `core`: a
//! function that is renamed or gone makes its rows fail.

use std::sync::LazyLock;

use super::key::{Does, How, Mutant, Site};
use super::sites::{Call, calls_at};

/// The table; its head says what the columns are.
const TABLE: &str = include_str!("needless.txt");

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| lines().filter_map(Row::read).collect());

fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#'))
}

/// Survivors of one kind, or calls that no run reaches.
#[derive(Debug)]
struct Row {
    list: &'static str,
    taken: Vec<&'static str>,
    places: Vec<Place>,
    during: &'static str,
    beside: Vec<Place>,
    behind: Vec<Place>,
    why: &'static str,
}

/// Calls of `pm` in a function.
#[derive(Debug)]
struct Place {
    function: &'static str,
    does: Option<Does>,
    nth: Option<usize>,
}

impl Row {
    fn read(line: &'static str) -> Option<Self> {
        let columns: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [list, taken, places, during, beside, behind, why] = columns.try_into().ok()?;
        let taken: Vec<_> = taken.split_whitespace().collect();
        let known = ["removed", "cached", "behind"];
        let is_row = ["proved", "seldom", "unreached"].contains(&list)
            && taken.iter().all(|what| known.contains(what));
        let (places, beside, behind) =
            (read_places(places)?, read_places(beside)?, read_places(behind)?);
        is_row.then_some(Self { list, taken, places, during, beside, behind, why })
    }

    fn explains(&self, mutant: &Mutant) -> bool {
        let key = &mutant.key;
        let (taken, behind) = match mutant.how {
            How::Removed => ("removed", true),
            How::Cached => ("cached", true),
            How::Behind(next) => {
                ("behind", is_among(&self.behind, Some(next.site), Some(next.does)))
            }
        };
        behind
            && self.taken.contains(&taken)
            && (key.during.contains(self.during) || key.form.contains(self.during))
            && is_among(&self.places, Some(key.site), Some(key.does))
            && is_among(&self.beside, key.beside, None)
    }
}

impl Place {
    /// A function, with the kind of call and its number where the row means not all of them.
    fn read(text: &'static str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let function = words.next()?;
        let does = words.next().map(|word| Does::named(word).ok_or(())).transpose().ok()?;
        let nth = words.next().map(str::parse).transpose().ok()?;
        Some(Self { function, does, nth })
    }

    fn is_of(&self, call: &Call) -> bool {
        (self.function == "*" || self.function == call.function)
            && self.does.is_none_or(|does| Some(does) == call.does())
            && self.nth.is_none_or(|nth| nth == call.nth)
    }
}

fn read_places(text: &'static str) -> Option<Vec<Place>> {
    text.split(", ").filter(|place| !place.is_empty()).map(Place::read).collect()
}

/// Whether a site is in one of these places; with no places any site is, and none.
fn is_among(places: &[Place], site: Option<Site>, does: Option<Does>) -> bool {
    let calls = || site.map_or_else(Vec::new, |site| calls_at(site, does));
    places.is_empty() || calls().iter().any(|call| places.iter().any(|place| place.is_of(call)))
}

/// Why a survivor may survive; `None` if nothing is known.
pub(super) fn why(mutant: &Mutant) -> Option<&'static str> {
    row("proved", mutant).or_else(|| row("seldom", mutant))
}

/// Whether it is proved that nothing needs what a mutant lacks: it must never be caught.
pub(super) fn is_proved(mutant: &Mutant) -> bool {
    row("proved", mutant).is_some()
}

fn row(list: &str, mutant: &Mutant) -> Option<&'static str> {
    let mut rows = ROWS.iter().filter(|row| row.list == list);
    rows.find(|row| row.explains(mutant)).map(|row| row.why)
}

/// Why a call may stay unreached.
pub(super) fn why_unreached(call: &Call) -> Option<&'static str> {
    let mut rows = ROWS.iter().filter(|row| row.list == "unreached");
    rows.find(|row| row.places.iter().any(|place| place.is_of(call))).map(|row| row.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::sites::calls_in_core;

    #[test]
    fn every_place_of_the_table_is_in_the_source() {
        let calls = calls_in_core().unwrap();
        let places =
            ROWS.iter().flat_map(|row| row.places.iter().chain(&row.beside).chain(&row.behind));
        let gone: Vec<_> =
            places.filter(|place| !calls.iter().any(|call| place.is_of(call))).collect();
        assert!(gone.is_empty(), "{gone:?}");
        let wrong: Vec<_> = lines().filter(|line| Row::read(line).is_none()).collect();
        assert!(wrong.is_empty() && ROWS.len() > 50, "{wrong:?}");
    }

    #[test]
    fn a_line_that_is_no_row_is_refused() {
        let place = "proved | removed | Fs::touch fence 2 |  |  |  | why";
        assert_eq!(Row::read(place).unwrap().places.first().unwrap().nth, Some(2));
        assert!(Row::read("proved | lost | Fs::touch |  |  |  | why").is_none());
        assert!(Row::read("proved | removed | Fs::touch wish |  |  |  | why").is_none());
        assert!(Row::read("proved | removed | Fs::touch | why").is_none());
    }
}

//! A mutant, and the text of a file with all of its mutants behind the switch.

use std::fmt;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

/// Stands for the question whether the mutant is on.
pub(super) const SWITCH: &str = "\u{1}";

/// A change of one decision.
#[derive(Debug, Clone)]
pub(super) struct Mutant {
    /// The file, from the workspace's root.
    pub(super) path: String,
    pub(super) line: usize,
    /// With its type: `Fs::write`.
    pub(super) function: String,
    /// Where the function is in the file.
    pub(super) whole: Range<usize>,
    pub(super) operator: &'static str,
    /// The source's text and the mutant's, in one line.
    pub(super) was: String,
    pub(super) now: String,
    /// The piece of the file.
    pub(super) at: Range<usize>,
    /// What stands before the piece, and after it.
    pub(super) before: String,
    pub(super) after: String,
}

impl Mutant {
    /// By what it is known from run to run: the function's text, and the place and the change in it.
    pub(super) fn key(&self, text: &str) -> String {
        let function = xxh3_64(text.get(self.whole.clone()).unwrap_or_default().as_bytes());
        let (from, to) = (self.at.start - self.whole.start, self.at.end - self.whole.start);
        let now = xxh3_64(self.now.as_bytes()) & 0xffff;
        format!(
            "{} {} {function:016x} {} {from}-{to} {now:04x}",
            self.path,
            self.function.replace(' ', ""),
            self.operator
        )
    }

    /// What was changed, as the list of accepted mutants has it.
    pub(super) fn change(&self) -> String {
        if self.now.is_empty() {
            format!("without {}", self.was)
        } else {
            format!("{} => {}", self.was, self.now)
        }
    }

    /// The folder of core, or the crate.
    pub(super) fn room(&self) -> &str {
        match self.path.strip_prefix("crates/core/src/").and_then(|rest| rest.split_once('/')) {
            Some((room, _)) => room,
            None if self.path.starts_with("crates/core/") => "op",
            None => "arena",
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, function, operator, .. } = self;
        write!(f, "{path}:{line}: {function}: {operator}: {}", self.change())
    }
}

/// Where a mutant came to be in the text that was written.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) id: usize,
    /// Its own text, which no other mutant has.
    pub(super) own: Range<usize>,
    /// From its own text to the end of what it encloses.
    pub(super) all: Range<usize>,
}

/// `text` with `mutants`, each with its number, which `asked` makes a question of.
pub(super) fn written(
    text: &str,
    mutants: &[(usize, &Mutant)],
    asked: impl Fn(usize) -> String,
) -> (String, Vec<Place>) {
    let mut order: Vec<&(usize, &Mutant)> = mutants.iter().collect();
    // The outer one first; sorting is stable, so that pieces of equal place nest in their order.
    order.sort_by_key(|(_, mutant)| (mutant.at.start, std::cmp::Reverse(mutant.at.end)));
    let (mut out, mut places, mut at) = (String::new(), Vec::new(), 0);
    let mut open: Vec<(usize, &Mutant)> = Vec::new();
    let mut next = order.into_iter().peekable();
    loop {
        let begins = next.peek().map_or(usize::MAX, |(_, mutant)| mutant.at.start);
        let ends = open.last().map_or(usize::MAX, |(_, mutant)| mutant.at.end);
        let until = begins.min(ends).min(text.len());
        out.push_str(text.get(at..until).unwrap_or_default());
        at = until;
        if let Some((place, mutant)) = open.pop_if(|_| ends <= begins) {
            out.push_str(&mutant.after);
            let end = out.len();
            if let Some(Place { all, .. }) = places.get_mut(place) {
                all.end = end;
            }
        } else if let Some((id, mutant)) = next.next() {
            let start = out.len();
            out.push_str(&mutant.before.replace(SWITCH, &asked(*id)));
            let own = start..out.len();
            open.push((places.len(), *mutant));
            places.push(Place { id: *id, all: own.clone(), own });
        } else {
            return (out, places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::operators::mutants;
    use super::*;

    #[test]
    fn mutants_nest_and_leave_the_rest_as_it_is() {
        let text = "// why\nfn f() {\n    if a < 2 { b(); } // there\n}\n";
        let found = mutants("a.rs", text).unwrap();
        let numbered: Vec<(usize, &Mutant)> = (1..).zip(&found).collect();
        let (out, places) = written(text, &numbered, |id| format!("m({id})"));
        assert_eq!(
            out,
            "// why\nfn f() {\n    if (m(1) || ((!m(2) && ((if m(3) { a <= 2 } else { a < \
             (if m(4) { 3 } else { (if m(5) { 1 } else { 2 }) }) }))))) \
             { if !m(6) { b(); } } // there\n}\n"
        );
        syn::parse_file(&out).unwrap();
        for place in places {
            assert!(out[place.own].contains(&format!("m({})", place.id)));
        }
        assert_eq!(written(text, &[], |_| String::new()).0, text);
    }

    #[test]
    fn a_key_is_of_the_function_and_not_of_where_it_stands() {
        let of = |text: &str| {
            let found = mutants("a.rs", text).unwrap();
            found.iter().map(|mutant| mutant.key(text)).collect::<Vec<_>>()
        };
        let first = of("fn f() { a(); }\nfn g() { b(); }");
        assert_eq!(of("// moved\nfn f() { a(); }\nfn g() { b(); }"), first);
        let changed = of("fn f() { a(); }\nfn g() { b(c); }");
        assert_eq!((&changed[0], changed[1] != first[1]), (&first[0], true));
    }
}

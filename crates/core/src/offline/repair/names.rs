//! The names of a directory that a repair works on, as its log says them.

use std::collections::{BTreeMap, BTreeSet};

use novale_layout::{COOKIE_LIMIT, COOKIE_MIN, FileKind, Ino};

use crate::log::replay::NameSaid;

/// The names of a directory.
#[derive(Debug, Default, Clone)]
pub(super) struct GatheredNames {
    /// In the order of their cookies, then of the log, once the log was read
    /// ([`GatheredNames::settle`]).
    pub(super) list: Vec<Name>,
    /// Above every cookie in the log.
    pub(super) next_cookie: u64,
    /// Cookies that were given up, and that the log may speak of, each with the length of `list` when it was last:
    /// names of that cookie before there are gone, those behind it stay.
    gone: BTreeMap<u64, usize>,
}

/// A name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) cookie: u64,
    pub(super) ino: Ino,
    pub(super) generation: u32,
    pub(super) kind: FileKind,
    pub(super) text: Vec<u8>,
}

impl GatheredNames {
    pub(super) fn add(&mut self, said: &NameSaid<'_>) {
        let NameSaid { ino, generation, kind, cookie, name } = *said;
        self.next_cookie = self.next_cookie.max(cookie + 1);
        self.list.push(Name { cookie, ino, generation, kind, text: name.as_bytes().to_vec() });
    }

    pub(super) fn remove(&mut self, cookie: u64) {
        self.next_cookie = self.next_cookie.max(cookie + 1);
        self.gone.insert(cookie, self.list.len());
    }

    /// Takes out the names that were removed after they were listed, all at once, and puts the others in
    /// order.
    pub(super) fn settle(&mut self) {
        let mut listed = 0;
        self.list.retain(|name| {
            listed += 1;
            self.gone.get(&name.cookie).is_none_or(|before| listed > *before)
        });
        self.list.sort_by_key(|name| name.cookie);
    }

    /// A cookie for a new name: the next one, or the lowest that the log does not speak of.
    pub(super) fn take_cookie(&mut self) -> u64 {
        let next = self.next_cookie.max(COOKIE_MIN);
        if next < COOKIE_LIMIT {
            self.next_cookie = next + 1;
            return next;
        }
        let used: BTreeSet<u64> = self.list.iter().map(|name| name.cookie).collect();
        let is_free = |cookie: &u64| !used.contains(cookie) && !self.gone.contains_key(cookie);
        (COOKIE_MIN..COOKIE_LIMIT).find(is_free).unwrap_or(COOKIE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_that_is_given_again_keeps_what_was_added_since() {
        let mut names = GatheredNames::default();
        let (ino, generation, kind) = (Ino::new(9), 1, FileKind::File);
        for (cookie, text, gone) in [(18, "a", 30), (17, "b", 16), (18, "c", 18), (16, "d", 17)] {
            names.remove(gone);
            let name = &novale_layout::Name::new(text.as_bytes()).unwrap();
            names.add(&NameSaid { ino, generation, kind, cookie, name });
        }
        names.settle();
        let kept: Vec<&[u8]> = names.list.iter().map(|name| name.text.as_slice()).collect();
        assert_eq!(kept, [b"d", b"c"]);
        assert_eq!(names.take_cookie(), 31);
    }
}

//! What callers' threads were told last that names lead to, in a shared mount.
//!
//! The kernel judges who may take a name away by what it has looked up (the sticky bit, the administrator's
//! rights in a user namespace), and its request says the name alone. In a shared mount others change what that
//! leads to, who ask this kernel nothing. So with the request goes what the same thread was told of the name
//! in the same call; where that is not so any more the kernel is told that it is stale, and judges anew.
//!
//! Of a thread that the daemon does not see, from another pid namespace, nothing is known.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use novale_core::{Ino, Judged};

/// Names that a call looks up at its end, at most: two of a rename, each of them perhaps twice.
const NAMES: usize = 4;
/// Threads are kept apart by so many locks.
const PARTS: usize = 16;
/// Threads of a part; beyond it all of them are forgotten.
const THREADS: usize = 4096;

/// A name, and what it led to.
#[derive(Debug)]
struct Told {
    parent: Ino,
    name: Vec<u8>,
    found: Option<Ino>,
}

/// What each thread was told last.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    parts: [Mutex<HashMap<u32, Vec<Told>>>; PARTS],
}

impl Looked {
    /// The thread is told what a name leads to.
    pub(crate) fn told(&self, thread: u32, parent: Ino, name: &[u8], found: Option<Ino>) {
        if thread == 0 {
            return;
        }
        self.with(thread, |threads| {
            if threads.len() >= THREADS && !threads.contains_key(&thread) {
                threads.clear();
            }
            let told = threads.entry(thread).or_default();
            told.retain(|told| told.parent != parent || told.name != name);
            if told.len() >= NAMES {
                told.remove(0);
            }
            told.push(Told { parent, name: name.to_vec(), found });
        });
    }

    /// What the thread was told of a name, if it is known.
    pub(crate) fn judged(&self, thread: u32, parent: Ino, name: &[u8]) -> Judged {
        self.with(thread, |threads| {
            let told = threads.get(&thread)?.iter();
            told.rev()
                .find(|told| told.parent == parent && told.name == name)
                .map(|told| told.found)
        })
    }

    fn with<T>(&self, thread: u32, what: impl FnOnce(&mut HashMap<u32, Vec<Told>>) -> T) -> T {
        let index = thread as usize % PARTS;
        let part = self.parts.get(index).or(self.parts.first());
        let mut none = HashMap::new();
        match part {
            Some(part) => what(&mut part.lock().unwrap_or_else(PoisonError::into_inner)),
            None => what(&mut none),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_what_it_was_told_last() {
        let (looked, root, found) = (Looked::default(), Ino::ROOT, Some(Ino::ROOT));
        looked.told(7, root, b"a", None);
        looked.told(7, root, b"a", found);
        looked.told(8, root, b"a", None);
        looked.told(7, root, b"b", None);
        assert_eq!(looked.judged(7, root, b"a"), Some(found));
        assert_eq!(looked.judged(7, root, b"b"), Some(None));
        assert_eq!(looked.judged(8, root, b"b"), None);
        looked.told(0, root, b"a", found);
        assert_eq!(looked.judged(0, root, b"a"), None, "any thread may be this one");
        for name in [b"c", b"d", b"e", b"f"] {
            looked.told(7, root, name, None);
        }
        assert_eq!(looked.judged(7, root, b"a"), None);
    }
}

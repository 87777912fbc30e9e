//! Names in the directory of inodes by number that the kernel is to forget.
//!
//! A program opens such a name and removes it, since the kernel would remember the name, and with it the inode: the
//! space of a file would come back, when its last name is gone, only when the kernel is short of memory. One that is
//! killed between the two leaves the name. So what nobody has removed within a moment, the kernel is told to forget,
//! which harms nobody who has the file open by then. That is said by a thread of its own: the kernel takes the
//! directory's lock for it, which a look-up there has until it is answered. The thread is there while there are names.
//!
//! Nothing is said while a page waits for programs to give way. Another program may have the file's lock in the kernel
//! until it gets that page, and a third one, that removes a name of the file, the directory's until it gets the file's. A
//! thread that waits for the directory's lock can't be killed: the daemon would neither answer nor end.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, park_timeout};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use crate::aside::Aside;
use crate::by_number;
use crate::fuser_convert::ino;
use crate::locked::locked;

/// How long a name is left to who has looked it up.
const MOMENT: Duration = Duration::from_secs(1);

/// The names that were looked up, and not removed since.
pub(crate) struct Names {
    list: Arc<Mutex<List>>,
    notifier: Arc<OnceLock<Notifier>>,
    aside: Arc<Aside>,
}

#[derive(Default)]
struct List {
    names: HashMap<OsString, Instant>,
    /// A thread looks after them.
    attended: bool,
}

impl Names {
    pub(crate) fn new(notifier: &Arc<OnceLock<Notifier>>, aside: &Arc<Aside>) -> Self {
        Self { list: Arc::default(), notifier: notifier.clone(), aside: aside.clone() }
    }

    /// A name in a directory is about to be told to the kernel.
    pub(crate) fn told(&self, parent: INodeNo, name: &OsStr) {
        if !by_number::is_directory(ino(parent)) {
            return;
        }
        let mut list = locked(&self.list);
        list.names.insert(name.to_owned(), Instant::now());
        if !list.attended {
            let (names, aside) = (self.list.clone(), self.aside.clone());
            let notifier = self.notifier.clone();
            let attend = move || attend(&names, &aside, parent, &notifier);
            // Where no thread can be had the next name asks for one.
            list.attended = Builder::new().name("novale-names".to_owned()).spawn(attend).is_ok();
        }
    }

    /// A name in a directory is about to be removed.
    pub(crate) fn removed(&self, parent: INodeNo, name: &OsStr) {
        if by_number::is_directory(ino(parent)) {
            locked(&self.list).names.remove(name);
        }
    }
}

/// Has the kernel forget names from moment to moment; ends when none is left.
fn attend(list: &Mutex<List>, aside: &Aside, parent: INodeNo, notifier: &OnceLock<Notifier>) {
    loop {
        park_timeout(MOMENT);
        if !aside.waits() && !forget_old(list, parent, notifier) {
            return;
        }
    }
}

/// Has the kernel forget the names that are a moment old; false when none is left.
fn forget_old(list: &Mutex<List>, parent: INodeNo, notifier: &OnceLock<Notifier>) -> bool {
    let mut list_now = locked(list);
    let old: Vec<OsString> = list_now
        .names
        .extract_if(|_, since| since.elapsed() >= MOMENT)
        .map(|(name, _)| name)
        .collect();
    let is_over = list_now.names.is_empty();
    list_now.attended = !is_over;
    drop(list_now);
    for name in old {
        // What the kernel has forgotten by itself is no error.
        if let Some(kernel) = notifier.get() {
            kernel.inval_entry(parent, &name).unwrap_or_default();
        }
    }
    !is_over
}

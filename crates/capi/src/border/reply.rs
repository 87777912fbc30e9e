//! Where a call of C begins and ends: its result becomes a number, and panics stop.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use novale_posix::MakeError;
use novale_posix::join::JoinError;

use crate::border::args::Caller;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What this crate finds wrong itself.
    Number(c_int, &'static str),
    Files(novale_posix::Error),
    Open(JoinError),
    Make(MakeError),
    Panic(String),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Its errno, above 0.
    pub(crate) fn number(&self) -> c_int {
        match self {
            Self::Number(number, _) => *number,
            Self::Files(error) => error.errno(),
            Self::Open(error) => error.errno(),
            Self::Make(error) => error.errno(),
            Self::Panic(_) => libc::EIO,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Number(_, message) => (*message).to_owned(),
            Self::Files(error) => error.to_string(),
            Self::Open(error) => error.to_string(),
            Self::Make(error) => error.to_string(),
            Self::Panic(message) => message.clone(),
        }
    }
}

impl From<novale_posix::Error> for Failure {
    fn from(error: novale_posix::Error) -> Self {
        Self::Files(error)
    }
}

impl From<novale_core::Error> for Failure {
    fn from(error: novale_core::Error) -> Self {
        Self::Files(error.into())
    }
}

/// How a result of a kind is returned to C: a number from 0, or an errno below 0.
pub(crate) trait Reply<T> {
    fn success(value: T) -> Self;
    fn failure(errno: c_int) -> Self;
}

impl Reply<()> for c_int {
    fn success((): ()) -> Self {
        0
    }

    fn failure(errno: c_int) -> Self {
        -errno
    }
}

impl Reply<bool> for c_int {
    fn success(value: bool) -> Self {
        value.into()
    }

    fn failure(errno: c_int) -> Self {
        -errno
    }
}

impl Reply<usize> for isize {
    fn success(value: usize) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }

    fn failure(errno: c_int) -> Self {
        Self::try_from(-errno).unwrap_or(-1)
    }
}

impl Reply<u64> for i64 {
    fn success(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }

    fn failure(errno: c_int) -> Self {
        Self::from(-errno)
    }
}

thread_local! {
    /// Why the thread's last failing call failed; put into words when asked for.
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    /// What `novale_message` and `novale_strerror` returned last.
    static WORDS: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs a call of a C program.
///
/// # Safety
/// Of every pointer that `body` hands to the [`Caller`] holds what [`Caller::promises`] says.
pub(crate) unsafe fn call<T, R: Reply<T>>(body: impl FnOnce(&Caller) -> Result<T>) -> R {
    // SAFETY: the caller of this function says so.
    let caller = unsafe { Caller::promises() };
    let failure = match catch_unwind(AssertUnwindSafe(|| body(&caller))) {
        Ok(Ok(value)) => return R::success(value),
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::Panic(what_panicked(&*panic)),
    };
    let number = failure.number();
    // A thread that ends has no place left for it.
    let _kept = LAST.try_with(|last| last.replace(Some(failure)));
    R::failure(number)
}

fn what_panicked(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a bug of Novale: {}", message.unwrap_or("a panic without words"))
}

/// The words for the thread's last failure, none before the first.
pub(crate) fn last_message() -> String {
    let message = |last: &RefCell<Option<Failure>>| last.borrow().as_ref().map(Failure::message);
    LAST.try_with(message).ok().flatten().unwrap_or_default()
}

/// Keeps words for as long as the thread asks for no others; NULL where that is impossible.
pub(crate) fn keep_words(words: String) -> *const std::ffi::c_char {
    let words = CString::new(words).unwrap_or_default();
    WORDS
        .try_with(|kept| {
            let mut kept = kept.borrow_mut();
            *kept = words;
            kept.as_ptr()
        })
        .unwrap_or(std::ptr::null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_eio_and_says_why() {
        // SAFETY: no pointer is handed to the caller.
        let reply: c_int = unsafe { call(|_| -> Result<()> { panic!("no such {}", "thing") }) };
        assert_eq!(reply, -libc::EIO);
        assert_eq!(last_message(), "a bug of Novale: no such thing");
    }

    #[test]
    fn each_thread_has_its_own_last_failure() {
        let fail = |number, why| {
            // SAFETY: no pointer is handed to the caller.
            unsafe { call::<usize, isize>(|_| Err(Failure::Number(number, why))) }
        };
        assert_eq!(fail(libc::EINVAL, "mine"), -isize::try_from(libc::EINVAL).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(last_message(), "");
                fail(libc::EIO, "another's");
                assert_eq!(last_message(), "another's");
            });
        });
        assert_eq!(last_message(), "mine");
    }
}

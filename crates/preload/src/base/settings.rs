//! What `novale run` tells a program, by its environment.
//!
//! It is copied at the start: programs write over their environment. Each program that starts does this, so
//! it is read once, and takes no memory but the library's own.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};

use crate::base::said::Said;

/// One of the variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variable {
    /// The mounts to serve, as `novale run` names them.
    Mounts,
    /// What the kernel forbade `novale run`, for a program to compare itself with.
    Begun,
    /// What mappings of files are to be, a word for each: `dax` or `atomic`, the kernel's otherwise.
    Map,
    /// Where tables of sites are kept.
    Cache,
    /// Names the memory that calls are counted in.
    Report,
    /// Set where a program is to end rather than go through a mount whose pool it can't join.
    Strict,
    /// `0` where names that lead into a mount from outside are to be the kernel's.
    Outside,
    /// Set where it is to be said that direct access is put back.
    Verbose,
}

impl Variable {
    /// All variables, the mounts first.
    pub(crate) const ALL: [Self; 8] = [
        Self::Mounts,
        Self::Begun,
        Self::Map,
        Self::Cache,
        Self::Report,
        Self::Strict,
        Self::Outside,
        Self::Verbose,
    ];

    /// The variable's name, and what stands before its value.
    #[inline]
    pub(crate) const fn name(self) -> &'static [u8] {
        match self {
            Self::Mounts => b"NOVALE_DIRECT=",
            Self::Begun => b"NOVALE_BEGUN=",
            Self::Map => b"NOVALE_MAP=",
            Self::Cache => b"NOVALE_CACHE=",
            Self::Report => b"NOVALE_REPORT=",
            Self::Strict => b"NOVALE_STRICT=",
            Self::Outside => b"NOVALE_OUTSIDE=",
            Self::Verbose => b"NOVALE_VERBOSE=",
        }
    }
}

/// What the names of all variables begin with.
const COMMON: &[u8] = b"NOVALE_";
/// Names the libraries that the loader puts into programs.
pub(crate) const PRELOAD: &[u8; 11] = b"LD_PRELOAD=";
/// How this library's file is called, wherever it is.
const OWN_NAME: &[u8] = b"libnovale_preload.so";
/// Bytes of all that is told, as a rule: three times what it takes with one mount.
const ROOM: usize = 768;

/// What was told. Each string has its end after it.
struct Told {
    variables: [Option<&'static [u8]>; Variable::ALL.len()],
    own_path: Option<&'static [u8]>,
    serves_outside: bool,
}

#[unsafe(link_section = ".novale_data")]
static TOLD: Said<Told> = Said::new();

/// Memory for copies, which [`begin`] alone writes to.
struct Room(UnsafeCell<[u8; ROOM]>);

// SAFETY: it is written while there is one thread, and read from then on.
unsafe impl Sync for Room {}
#[unsafe(link_section = ".novale_data")]
static COPIES: Room = Room(UnsafeCell::new([0; ROOM]));

/// Copies what the environment says.
///
/// # Safety
/// It is a list of strings that ends with a null pointer, and no thread of the program runs yet.
#[unsafe(link_section = ".text.novale_start")]
pub(crate) unsafe fn begin(mut environment: *const *const c_char) {
    let none = [None; Variable::ALL.len()];
    let mut told = Told { variables: none, own_path: None, serves_outside: true };
    // SAFETY: as the caller says, nobody else has a reference.
    let mut room = Rest(unsafe { &mut *COPIES.0.get() }.as_mut_slice());
    loop {
        // SAFETY: as the caller says; not yet beyond the end.
        let entry = unsafe { *environment };
        if entry.is_null() {
            break;
        }
        // SAFETY: as above.
        environment = unsafe { environment.add(1) };
        // SAFETY: a string has a first byte.
        if !matches!(unsafe { *entry }.cast_unsigned(), b'N' | b'L') {
            continue;
        }
        // SAFETY: a string.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if entry.starts_with(COMMON) {
            for (variable, told) in Variable::ALL.iter().zip(&mut told.variables) {
                if told.is_none() && entry.starts_with(variable.name()) {
                    *told = Some(room.keep(entry));
                }
            }
        } else if let (None, Some(all)) = (told.own_path, entry.strip_prefix(PRELOAD)) {
            let own = all.split(|byte| is_between(*byte)).find(|path| is_own(path));
            told.own_path = own.map(|path| room.keep(path));
        }
    }
    told.serves_outside = told.value(Variable::Outside) != Some(b"0");
    // SAFETY: as the caller says.
    unsafe { TOLD.say(told) };
}

/// What is left of the memory for copies.
struct Rest<'a>(&'a mut [u8]);

impl<'a> Rest<'a> {
    /// A copy, with its end after it.
    #[inline]
    fn keep(&mut self, bytes: &[u8]) -> &'a [u8] {
        match std::mem::take(&mut self.0).split_at_mut_checked(bytes.len() + 1) {
            Some((to, rest)) => {
                self.0 = rest;
                // The end is there already.
                let (to, _) = to.split_at_mut(bytes.len());
                to.copy_from_slice(bytes);
                to
            }
            None => keep_apart(bytes),
        }
    }
}

/// A copy that finds no room.
#[cold]
fn keep_apart(bytes: &[u8]) -> &'static [u8] {
    let kept = Box::leak([bytes, b"\0"].concat().into_boxed_slice());
    kept.split_last().map_or(&[], |(_, kept)| kept)
}

impl Told {
    #[inline]
    fn value(&self, variable: Variable) -> Option<&'static [u8]> {
        (*self.variables.get(variable as usize)?)?.get(variable.name().len()..)
    }
}

/// A variable's value; `None` where it is not told.
#[inline]
pub(crate) fn value(variable: Variable) -> Option<&'static [u8]> {
    TOLD.get()?.value(variable)
}

/// A variable with its name, as a string with its end; null where it is not told.
pub(crate) fn string(variable: Variable) -> *const u8 {
    let told = TOLD.get().and_then(|told| *told.variables.get(variable as usize)?);
    told.map_or(std::ptr::null(), <[u8]>::as_ptr)
}

/// This library's path, with its end after it; `None` where none was named.
pub(crate) fn own_path() -> Option<&'static [u8]> {
    TOLD.get()?.own_path
}

/// Whether a path is this library's.
#[inline]
pub(crate) fn is_own(library: &[u8]) -> bool {
    library.strip_suffix(OWN_NAME).is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
}

/// Whether a byte stands between two libraries.
#[inline]
pub(crate) fn is_between(byte: u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// Whether this program is to end rather than go through a mount whose pool it can't join.
pub(crate) fn is_strict() -> bool {
    value(Variable::Strict).is_some()
}

/// Whether names that lead into a mount from outside are served in this program.
pub(crate) fn serves_outside() -> bool {
    TOLD.get().is_some_and(|told| told.serves_outside)
}

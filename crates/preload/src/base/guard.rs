//! Touching a program's memory: a bad pointer becomes `EFAULT`, as in the kernel, not a crash.
//!
//! The instructions that touch it stand between two labels. A fault there goes on at a third one,
//! which returns false, or how much was not copied ([`fixup`], called by the handler of SIGSEGV and SIGBUS). What a
//! call takes or gives is copied so, from and to memory of this library's, but for what `read` and `write` move from
//! and to memory that only the program itself can take away: its pages are probed before the file system has any lock,
//! which then copies without guard. A program that unmaps memory while a call uses it so is killed by the fault, and
//! others settle for it. What others can take away is in [`crate::maps::foreign`].

use std::arch::global_asm;
use std::mem::MaybeUninit;

use crate::base::said::Said;
use crate::base::sys::{fail, sys};

/// Shows what lies beyond the end of what a mapping shows; false where there is nothing.
pub(crate) type Show = fn(u64, usize) -> bool;
#[unsafe(link_section = ".novale_data")]
static SHOW: Said<Show> = Said::new();

/// Says who knows the program's mappings of files.
///
/// # Safety
/// As for [`Said::say`].
pub(crate) unsafe fn set_show(show: Show) {
    // SAFETY: as the caller says.
    unsafe { SHOW.say(show) };
}

fn show(at: u64, len: usize) -> bool {
    SHOW.get().is_some_and(|show| show(at, len))
}

const PAGE: usize = 4096;

global_asm!(
    ".text",
    ".globl novale_guard_start",
    "novale_guard_start:",
    // bool novale_probe_read(const void *rdi)
    ".globl novale_probe_read",
    "novale_probe_read:",
    "mov al, byte ptr [rdi]",
    "mov eax, 1",
    "ret",
    // bool novale_probe_write(void *rdi): stores what is there
    ".globl novale_probe_write",
    "novale_probe_write:",
    "lock or byte ptr [rdi], 0",
    "mov eax, 1",
    "ret",
    // bool novale_copy_string(char *rdi, const char *rsi, size_t rdx, size_t *rcx)
    ".globl novale_copy_string",
    "novale_copy_string:",
    "xor r8d, r8d",
    "2:",
    "cmp r8, rdx",
    "jae 3f",
    "mov al, byte ptr [rsi + r8]",
    "mov byte ptr [rdi + r8], al",
    "test al, al",
    "jz 3f",
    "inc r8",
    "jmp 2b",
    "3:",
    "mov qword ptr [rcx], r8",
    "mov eax, 1",
    "ret",
    ".globl novale_guard_end",
    "novale_guard_end:",
    ".globl novale_guard_failed",
    "novale_guard_failed:",
    "xor eax, eax",
    "ret",
    // size_t novale_copy(void *rdi, const void *rsi, size_t rdx): the bytes that could not be copied, which the
    // instruction counts down
    ".globl novale_copy",
    "novale_copy:",
    "mov rcx, rdx",
    "rep movsb",
    ".globl novale_copy_end",
    "novale_copy_end:",
    "mov rax, rcx",
    "ret",
);

unsafe extern "C" {
    fn novale_guard_start();
    fn novale_guard_end();
    fn novale_guard_failed();
    fn novale_probe_read(at: *const u8) -> bool;
    fn novale_probe_write(at: *mut u8) -> bool;
    fn novale_copy_string(to: *mut u8, from: *const u8, len: usize, copied: *mut usize) -> bool;
    fn novale_copy(to: *mut u8, from: *const u8, len: usize) -> usize;
    fn novale_copy_end();
}

/// Where to go on after a fault at an instruction; `None` when it is none of the guarded ones.
pub(crate) fn fixup(instruction: usize) -> Option<usize> {
    let guarded = novale_guard_start as *const () as usize..novale_guard_end as *const () as usize;
    let (copy, ends) = (novale_copy as *const () as usize, novale_copy_end as *const () as usize);
    if (copy..ends).contains(&instruction) {
        return Some(ends);
    }
    guarded.contains(&instruction).then_some(novale_guard_failed as *const () as usize)
}

/// Copies bytes, one end of which is the program's: how many, up to the first that can't be touched there.
///
/// # Safety
/// The other end is memory of this library's, of so many bytes.
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    // SAFETY: as the caller says; a fault at the program's end of it ends the copying.
    len - unsafe { novale_copy(to, from, len) }
}

/// Copies bytes to the program's memory: how many, up to the first that can't be written. Not with the mappings' lock.
pub(crate) fn copy_out(at: u64, bytes: &[u8]) -> usize {
    let Ok(at) = usize::try_from(at) else { return 0 };
    // SAFETY: the bytes are this library's.
    let copied = unsafe { copy(at as *mut u8, bytes.as_ptr(), bytes.len()) };
    let rest = bytes.get(copied..).unwrap_or_default();
    let next = at.wrapping_add(copied);
    if rest.is_empty() || !show(next as u64, rest.len()) {
        return copied;
    }
    // SAFETY: as above.
    copied + unsafe { copy(next as *mut u8, rest.as_ptr(), rest.len()) }
}

/// Copies bytes from the program's memory, into room for as many: how many, up to the first that can't be read. Not with
/// the mappings' lock.
fn copy_in(room: &mut [MaybeUninit<u8>], at: u64) -> usize {
    let Ok(at) = usize::try_from(at) else { return 0 };
    // SAFETY: the room is this library's.
    let copied = unsafe { copy(room.as_mut_ptr().cast(), at as *const u8, room.len()) };
    let rest = room.get_mut(copied..).unwrap_or_default();
    let next = at.wrapping_add(copied);
    if rest.is_empty() || !show(next as u64, rest.len()) {
        return copied;
    }
    // SAFETY: as above.
    copied + unsafe { copy(rest.as_mut_ptr().cast(), next as *const u8, rest.len()) }
}

/// Appends bytes of the program's, for which there is room: how many, up to the first that can't be read.
pub(crate) fn append(bytes: &mut Vec<u8>, at: u64, len: usize) -> usize {
    let room = bytes.spare_capacity_mut().get_mut(..len).unwrap_or_default();
    let copied = copy_in(room, at);
    // SAFETY: so many have been copied behind those that there were.
    unsafe { bytes.set_len(bytes.len() + copied) };
    copied
}

/// A copy of so few bytes of the program's; `None` where some can't be read.
pub(crate) fn copied(at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    (append(&mut bytes, at, len) == len).then_some(bytes)
}

/// As [`copied`], of what can be read at this moment: also with the mappings' lock.
pub(crate) fn copied_now(at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    let from = usize::try_from(at).ok()? as *const u8;
    // SAFETY: there is room for so many bytes, which is this library's.
    let copied = unsafe { copy(bytes.as_mut_ptr(), from, len) };
    // SAFETY: so many have been copied.
    unsafe { bytes.set_len(copied) };
    (copied == len).then_some(bytes)
}

/// Calls `probe` for an address in each page of a range, up to the first that it is false for: the bytes
/// before that one. None of a range that wraps around.
fn good_bytes(at: usize, len: usize, mut probe: impl FnMut(usize) -> bool) -> usize {
    let Some(end) = at.checked_add(len) else { return 0 };
    let mut next = at;
    while next < end {
        if !probe(next) {
            return next - at;
        }
        next = (next & !(PAGE - 1)) + PAGE;
    }
    len
}

/// Whether addresses are a program's: where they are not, the kernel moves nothing at all.
pub(crate) fn are_a_programs(at: u64, len: u64) -> bool {
    /// One before the end of what four levels of page tables reach.
    const SURELY: u64 = (1 << 47) - 2 * PAGE as u64;
    let Some(end) = at.checked_add(len) else { return false };
    if end <= SURELY {
        return true;
    }
    // How far they reach beyond depends on the machine. Of a range that may be one the kernel only says
    // next that its answer has no place.
    let start = at & !(PAGE as u64 - 1);
    sys!(libc::SYS_mincore, start, end - start, u64::MAX) == fail(libc::EFAULT)
}

/// Of a program's addresses that a call reads, the bytes before the first that can't be read; `None` where that is the
/// first of all.
pub(crate) fn readable_part<'a>(at: u64, len: usize) -> Option<&'a [u8]> {
    readable(at, len).or_else(|| {
        // SAFETY: a fault returns false.
        let probe = |page| unsafe { novale_probe_read(page as *const u8) };
        let good = good_bytes(usize::try_from(at).ok()?, len, probe);
        if good == 0 { None } else { readable(at, good) }
    })
}

/// As [`readable_part`], of addresses that a call writes.
pub(crate) fn writable_part<'a>(at: u64, len: usize) -> Option<&'a mut [u8]> {
    writable(at, len).or_else(|| {
        // SAFETY: a fault returns false; nothing changes.
        let probe = |page| unsafe { novale_probe_write(page as *mut u8) };
        let good = good_bytes(usize::try_from(at).ok()?, len, probe);
        if good == 0 { None } else { writable(at, good) }
    })
}

/// Memory of the program that can be read; `None` where some of it can't. Not with the mappings' lock,
/// since what is beyond the end of what a mapping shows may be shown first.
pub(crate) fn readable<'a>(at: u64, len: usize) -> Option<&'a [u8]> {
    readable_now(at, len).or_else(|| show(at, len).then(|| readable_now(at, len)).flatten())
}

/// As [`readable`], as it is mapped at this moment.
pub(crate) fn readable_now<'a>(at: u64, len: usize) -> Option<&'a [u8]> {
    let at = usize::try_from(at).ok()?;
    if len == 0 {
        return Some(&[]);
    }
    // SAFETY: a fault returns false.
    let good = good_bytes(at, len, |page| unsafe { novale_probe_read(page as *const u8) });
    // SAFETY: it was readable just now, and the program has handed it over for the call. It may be
    // changed by another thread of the program, as during any system call: it is only copied.
    (good == len).then(|| unsafe { std::slice::from_raw_parts(at as *const u8, len) })
}

/// Memory of the program that can be written; `None` where some of it can't. Otherwise as [`readable`].
pub(crate) fn writable<'a>(at: u64, len: usize) -> Option<&'a mut [u8]> {
    if let Some(found) = writable_now(at, len) {
        return Some(found);
    }
    show(at, len).then(|| writable_now(at, len)).flatten()
}

/// As [`writable`], as it is mapped at this moment.
pub(crate) fn writable_now<'a>(at: u64, len: usize) -> Option<&'a mut [u8]> {
    let at = usize::try_from(at).ok()?;
    if len == 0 {
        return Some(&mut []);
    }
    // SAFETY: a fault returns false; nothing changes.
    let good = good_bytes(at, len, |page| unsafe { novale_probe_write(page as *mut u8) });
    // SAFETY: it was writable just now, and the program has handed it over for the call.
    (good == len).then(|| unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) })
}

/// Stores a value of the kernel's layout into the program's memory.
pub(crate) fn store<T: Copy>(at: u64, value: &T) -> bool {
    let len = size_of::<T>();
    // SAFETY: as many bytes as the value has; the types stored have no invalid padding reads that matter: they are
    // copied as bytes.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), len) };
    copy_out(at, bytes) == len
}

/// Loads a value of the kernel's layout, any bits of which are valid, from the program's memory.
pub(crate) fn load<T: Copy>(at: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let len = size_of::<T>();
    // SAFETY: as many bytes as the type has, none of which need be valid.
    let room = unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast(), len) };
    let is_whole = copy_in(room, at) == len;
    // SAFETY: all bytes have been copied; callers load plain integers and structures of them.
    is_whole.then(|| unsafe { value.assume_init() })
}

/// Whether a string of the program begins so; `None` where it can't be read.
pub(crate) fn starts_with(text: u64, prefix: &[u8]) -> Option<bool> {
    for (at, byte) in (text..).zip(prefix) {
        // A shorter string ends before.
        if load::<u8>(at)? != *byte {
            return Some(false);
        }
    }
    Some(true)
}

/// Bytes of a path at most, with the NUL at its end, as in Linux.
pub(crate) const PATH_MAX: usize = 4096;

/// Room for a path of the program, in memory of this library's.
pub(crate) struct PathBuffer(MaybeUninit<[u8; PATH_MAX]>);

impl PathBuffer {
    pub(crate) fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// A path of the program without its NUL; `None` where it can't be read or is too long.
    pub(crate) fn load(&mut self, at: u64) -> Option<&[u8]> {
        let (to, from) = (self.0.as_mut_ptr().cast::<u8>(), usize::try_from(at).ok()? as *const u8);
        let mut len = 0;
        // SAFETY: there is room for so many bytes; a fault while reading returns false.
        let good = unsafe { novale_copy_string(to, from, PATH_MAX, &raw mut len) };
        // SAFETY: so many bytes have been copied.
        let path = unsafe { std::slice::from_raw_parts(to, len.min(PATH_MAX)) };
        (good && len < PATH_MAX).then_some(path)
    }

    /// So many bytes of the program's, or those before the first that can't be read.
    pub(crate) fn load_bytes(&mut self, at: u64, len: usize) -> &[u8] {
        let to = self.0.as_mut_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: there is room for so many bytes, none of which need be valid.
        let room = unsafe { std::slice::from_raw_parts_mut(to, len.min(PATH_MAX)) };
        let copied = copy_in(room, at);
        // SAFETY: so many bytes have been copied.
        unsafe { std::slice::from_raw_parts(to.cast(), copied) }
    }
}

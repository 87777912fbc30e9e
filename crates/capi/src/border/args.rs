//! The arguments of C programs, checked as far as they can be: the only place that follows pointers.
#![allow(clippy::unused_self, reason = "having a Caller is having its promise")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::ffi::OsStrExt;

use crate::border::handle::{Handle, OpenFile, Pool};
use crate::border::reply::{Failure, Result};

/// Buffers of one vectored call, as in Linux.
const BUFFERS_MAX: usize = 1024;
/// Slots of one pool, generously: what is too many is refused where the slots are known.
const SLOTS_MAX: usize = 1024;

/// Stands for the caller's promise about all pointers of one call: each is NULL, or points to what
/// the header says, for as long as the call takes.
pub(crate) struct Caller(());

impl Caller {
    /// Takes the promise.
    ///
    /// # Safety
    /// It holds for every pointer that is handed to the methods, and no reference that they return
    /// outlives the call.
    pub(crate) unsafe fn promises() -> Self {
        Self(())
    }

    /// An open handle, of this process.
    ///
    /// # Errors
    /// `EINVAL` for NULL, `EBADF` for what is something else or closed, `ESHUTDOWN` for a parent's.
    pub(crate) fn handle<H: Handle>(&self, pointer: *const H) -> Result<&H> {
        if pointer.is_null() || !pointer.is_aligned() {
            return Err(Failure::Number(libc::EINVAL, "the handle is NULL, or none of Novale's"));
        }
        // SAFETY: by the promise this is a handle that is not freed during the call.
        let handle = unsafe { &*pointer };
        if !handle.seal().is(H::TAG) {
            return Err(closed());
        }
        if !handle.seal().is_of_this_process() {
            let why = "the handle is of the process that this one was forked from";
            return Err(Failure::Number(libc::ESHUTDOWN, why));
        }
        Ok(handle)
    }

    /// An open pool.
    pub(crate) fn pool(&self, pointer: *const Pool) -> Result<&novale_posix::Pool> {
        Ok(&self.handle(pointer)?.pool)
    }

    /// An open file.
    pub(crate) fn file(&self, pointer: *const OpenFile) -> Result<&novale_posix::File> {
        Ok(&self.handle(pointer)?.file)
    }

    /// A handle back from the caller, who must not use it again.
    ///
    /// # Errors
    /// As [`Caller::handle`]. A parent's handle stays as it is.
    pub(crate) fn take<H: Handle>(&self, pointer: *mut H) -> Result<Box<H>> {
        if !self.handle(pointer)?.seal().break_open(H::TAG) {
            return Err(closed());
        }
        // SAFETY: `lend` made it of a box, and the seal was whole until now: nobody else takes it.
        Ok(unsafe { Box::from_raw(pointer) })
    }

    /// Gives the caller a handle that `make` makes; where that fails, NULL.
    ///
    /// # Errors
    /// `EFAULT` for NULL before anything is made, and those of `make`.
    pub(crate) fn lend<H: Handle>(
        &self,
        to: *mut *mut H,
        make: impl FnOnce() -> Result<H>,
    ) -> Result<()> {
        self.put(to, std::ptr::null_mut())?;
        self.put(to, Box::into_raw(Box::new(make()?)))
    }

    /// Stores a result.
    ///
    /// # Errors
    /// `EFAULT` for NULL.
    pub(crate) fn put<T>(&self, to: *mut T, value: T) -> Result<()> {
        if to.is_null() || !to.is_aligned() {
            return Err(no_pointer());
        }
        // SAFETY: by the promise there is room for one there; nothing is dropped, C has no drops.
        unsafe { to.write(value) };
        Ok(())
    }

    /// What the caller has stored; `None` for NULL.
    pub(crate) fn get<T: Copy>(&self, from: *const T) -> Result<Option<T>> {
        if from.is_null() {
            return Ok(None);
        }
        if !from.is_aligned() {
            return Err(no_pointer());
        }
        // SAFETY: by the promise there is one there.
        Ok(Some(unsafe { from.read() }))
    }

    /// A string, such as a path: bytes up to a NUL.
    ///
    /// # Errors
    /// `EFAULT` for NULL.
    pub(crate) fn string(&self, pointer: *const c_char) -> Result<&OsStr> {
        if pointer.is_null() {
            return Err(no_pointer());
        }
        // SAFETY: by the promise it ends in a NUL and stays as it is.
        Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes()))
    }

    /// Several strings.
    ///
    /// # Errors
    /// `EFAULT` for NULL anywhere, `EINVAL` for far too many.
    pub(crate) fn strings(
        &self,
        pointer: *const *const c_char,
        count: usize,
    ) -> Result<Vec<&OsStr>> {
        if count > SLOTS_MAX {
            return Err(Failure::Number(libc::EINVAL, "too many slots"));
        }
        if count > 0 && (pointer.is_null() || !pointer.is_aligned()) {
            return Err(no_pointer());
        }
        let string = |index| {
            // SAFETY: by the promise there are `count` pointers, and `index` is below that.
            let string = unsafe { pointer.add(index) };
            self.get(string)?.map_or(Err(no_pointer()), |string| self.string(string))
        };
        (0..count).map(string).collect()
    }

    /// Bytes to be written.
    ///
    /// # Errors
    /// `EFAULT` for NULL, `EINVAL` for more than there can be.
    pub(crate) fn bytes(&self, from: *const c_void, len: usize) -> Result<&[u8]> {
        if len == 0 {
            return Ok(&[]);
        }
        check_buffer(from, len)?;
        // SAFETY: by the promise there are so many bytes, which do not change; the length is checked.
        Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) })
    }

    /// Room for bytes to be read.
    ///
    /// # Errors
    /// As [`Caller::bytes`].
    #[expect(clippy::mut_from_ref, reason = "the room is the C program's, not the promise's")]
    pub(crate) fn room(&self, to: *mut c_void, len: usize) -> Result<&mut [u8]> {
        if len == 0 {
            return Ok(&mut []);
        }
        check_buffer(to, len)?;
        // SAFETY: by the promise there is room for so many bytes, which nobody else uses meanwhile.
        Ok(unsafe { std::slice::from_raw_parts_mut(to.cast(), len) })
    }

    fn vector(
        &self,
        pointer: *const libc::iovec,
        count: c_int,
    ) -> Result<impl Iterator<Item = libc::iovec>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= BUFFERS_MAX);
        let count = count.ok_or(Failure::Number(libc::EINVAL, "0 to 1024 buffers are taken"))?;
        if count > 0 && (pointer.is_null() || !pointer.is_aligned()) {
            return Err(no_pointer());
        }
        Ok((0..count).map(move |index| {
            // SAFETY: by the promise there are `count` descriptions, and `index` is below that.
            let one = unsafe { pointer.add(index) };
            // SAFETY: as above, and they are integers.
            unsafe { one.read() }
        }))
    }

    /// Several buffers to be written.
    ///
    /// # Errors
    /// `EINVAL` for more than 1024, and those of [`Caller::bytes`].
    pub(crate) fn all_bytes(
        &self,
        pointer: *const libc::iovec,
        count: c_int,
    ) -> Result<Vec<IoSlice<'_>>> {
        let vector = self.vector(pointer, count)?;
        vector.map(|one| Ok(IoSlice::new(self.bytes(one.iov_base, one.iov_len)?))).collect()
    }

    /// Several buffers to be filled.
    ///
    /// # Errors
    /// `EINVAL` for more than 1024, and those of [`Caller::room`].
    pub(crate) fn all_room(
        &self,
        pointer: *const libc::iovec,
        count: c_int,
    ) -> Result<Vec<IoSliceMut<'_>>> {
        let vector = self.vector(pointer, count)?;
        vector.map(|one| Ok(IoSliceMut::new(self.room(one.iov_base, one.iov_len)?))).collect()
    }
}

fn check_buffer(pointer: *const c_void, len: usize) -> Result<()> {
    if isize::try_from(len).is_err() {
        return Err(Failure::Number(libc::EINVAL, "a buffer of more than 2^63 - 1 bytes"));
    }
    if pointer.is_null() { Err(no_pointer()) } else { Ok(()) }
}

fn no_pointer() -> Failure {
    Failure::Number(libc::EFAULT, "a pointer is NULL that must not be, or not aligned")
}

fn closed() -> Failure {
    Failure::Number(libc::EBADF, "the handle is closed, or of another kind")
}

/// An offset or a length, which C has signed.
///
/// # Errors
/// `EINVAL` below 0.
pub(crate) fn offset(number: i64) -> Result<u64> {
    let refused = Failure::Number(libc::EINVAL, "an offset or length below 0");
    u64::try_from(number).map_err(|_| refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number<T>(result: Result<T>) -> c_int {
        result.err().map_or(0, |failure| failure.number())
    }

    #[test]
    fn null_is_no_argument_but_for_nothing() {
        // SAFETY: all pointers below are NULL, or of the test's own bytes.
        let caller = unsafe { Caller::promises() };
        let null = std::ptr::null_mut::<c_void>();
        assert_eq!(number(caller.bytes(null, 1)), libc::EFAULT);
        assert_eq!(number(caller.bytes(null, 0)), 0);
        assert_eq!(number(caller.bytes(b"x".as_ptr().cast(), usize::MAX)), libc::EINVAL);
        assert_eq!(number(caller.room(null, 1)), libc::EFAULT);
        assert_eq!(number(caller.string(null.cast())), libc::EFAULT);
        assert_eq!(number(caller.strings(null.cast(), 1)), libc::EFAULT);
        assert_eq!(number(caller.strings([std::ptr::null()].as_ptr(), 1)), libc::EFAULT);
        assert_eq!(number(caller.pool(null.cast())), libc::EINVAL);
        assert_eq!(number(caller.all_bytes(null.cast(), 1)), libc::EFAULT);
        assert_eq!(number(caller.all_bytes(null.cast(), -1)), libc::EINVAL);
        assert_eq!(number(caller.all_room(null.cast(), 1025)), libc::EINVAL);
        assert_eq!(number(caller.put(null.cast::<u64>(), 1)), libc::EFAULT);
    }
}

//! Copies out of the pool. The bytes may change at any moment: what is returned is a copy, each
//! aligned 8-byte unit of it as it was at some moment.

use novale_layout::PmAddr;

use crate::{LINE, OutOfRange, PAGE, Pm, cpu};

impl Pm {
    /// The little-endian word at `addr`, read at once (acquire).
    ///
    /// # Errors
    /// [`OutOfRange`] when it is not in a slot or not aligned to 8.
    #[inline]
    pub fn load_u64(&self, addr: PmAddr) -> Result<u64, OutOfRange> {
        let src = self.load_ptr(addr, 8)?;
        if !addr.byte().is_multiple_of(8) {
            return Err(OutOfRange { addr, len: 8, is_lost: false });
        }
        self.tell_load(addr, 8)?;
        // SAFETY: `load_ptr` found 8 mapped bytes; slots are page-aligned, so `src` is aligned
        // as `addr` is.
        Ok(u64::from_le(unsafe { cpu::load_u64(src) }))
    }

    /// The line at `addr`.
    ///
    /// # Errors
    /// [`OutOfRange`] when it is not in a slot or not aligned to 64.
    #[inline]
    pub fn load_line(&self, addr: PmAddr) -> Result<[u8; 64], OutOfRange> {
        let src = self.load_ptr(addr, LINE)?;
        if !addr.is_line_aligned() {
            return Err(OutOfRange { addr, len: LINE, is_lost: false });
        }
        self.tell_load(addr, LINE)?;
        let mut line = std::mem::MaybeUninit::<[u8; 64]>::uninit();
        // SAFETY: `load_ptr` found 64 mapped bytes; `line` has 64.
        unsafe { cpu::load_line(line.as_mut_ptr().cast(), src) };
        // SAFETY: `cpu::load_line` wrote all 64 bytes.
        Ok(unsafe { line.assume_init() })
    }

    /// Fills `into` with the bytes from `addr` on.
    ///
    /// # Errors
    /// [`OutOfRange`] when they are not all in one slot; `into` is unchanged then.
    #[inline]
    pub fn load(&self, addr: PmAddr, into: &mut [u8]) -> Result<(), OutOfRange> {
        let src = self.load_ptr(addr, into.len() as u64)?;
        self.tell_load(addr, into.len() as u64)?;
        // SAFETY: `load_ptr` found that many mapped bytes, and `into` is not in the pool.
        unsafe { cpu::copy_out(self.cpu, into.as_mut_ptr(), src, into.len()) };
        Ok(())
    }

    /// Fills `into` with bytes of the page at `page`, from byte `from` of it on.
    ///
    /// # Errors
    /// [`OutOfRange`] when the page is not in a slot, or the bytes not in the page; `into` is unchanged
    /// then.
    #[inline]
    pub fn load_in_page(&self, page: PmAddr, from: u64, into: &mut [u8]) -> Result<(), OutOfRange> {
        let len = into.len() as u64;
        if from > PAGE || len > PAGE - from {
            return Err(OutOfRange { addr: page, len: PAGE, is_lost: false });
        }
        let src = self.load_ptr_in_page(page, from, len)?;
        if cfg!(feature = "lab") {
            self.tell_load(page.add(from), len)?;
        }
        // SAFETY: `load_ptr` found a page, which has that many bytes from there on, and `into` is not
        // in the pool.
        unsafe { cpu::copy_out(self.cpu, into.as_mut_ptr(), src, into.len()) };
        Ok(())
    }

    /// Starts to bring the line at `addr` into the cache; an address outside is ignored.
    #[inline]
    pub fn prefetch(&self, addr: PmAddr) {
        if let Ok(src) = self.mapped_ptr(addr, 1) {
            cpu::prefetch(src);
        }
    }

    /// As [`Pm::prefetch`], for each line of a range.
    #[inline]
    pub fn prefetch_range(&self, addr: PmAddr, len: u64) {
        if let Ok(src) = self.mapped_ptr(addr, len) {
            for line in (0..usize::try_from(len).unwrap_or(0)).step_by(64) {
                cpu::prefetch(src.wrapping_add(line));
            }
        }
    }

    /// Asks the observer for one load, where the lab is to hear of it.
    #[inline(always)]
    fn tell_load(&self, addr: PmAddr, len: u64) -> Result<(), OutOfRange> {
        if cfg!(feature = "lab")
            && let Some(observer) = &self.observer
            && !observer.load(addr, len)
        {
            return Err(OutOfRange { addr, len, is_lost: false });
        }
        Ok(())
    }
}

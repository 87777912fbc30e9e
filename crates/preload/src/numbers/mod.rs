//! Placeholders in stock: the next file opened here takes the number of one closed here, and neither
//! makes a system call.
//!
//! A program is owed the lowest number that it has free. Invariants, all under one lock: the kernel has
//! each number below [`Numbers::full`] in use, and what is in stock lies below that; so the lowest in
//! stock is the lowest that the program has free. What frees a number in the kernel says so after
//! it ([`freed`]); what takes one there has the stock emptied before ([`clear`]). So does whatever
//! names a number in stock: the program has closed it, and the kernel is to say so.

pub(crate) mod limits;
pub(crate) mod words;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::classes::{self, CLOSES, CREATES};
use crate::base::lock::{Held, Lock};
use crate::base::sys::{Ret, sys};

/// Placeholders in stock at most.
const STOCK: usize = 32;
/// Below it are the three that programs reopen by closing them, some of them past libc.
const STANDARD: u32 = 3;

/// What is known of the numbers that the kernel has in use.
pub(crate) struct Numbers {
    /// In stock, the highest first.
    stock: [u32; STOCK],
    count: usize,
    /// All numbers below are in use in the kernel.
    full: u32,
    /// Calls that keep placeholders from going into stock.
    paused: u32,
}

static NUMBERS: Lock<Numbers> =
    Lock::new(Numbers { stock: [0; STOCK], count: 0, full: 0, paused: 0 });
/// [`Numbers::count`], for a look without the lock.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Keeps all numbers where they are.
pub(crate) fn lock() -> Held<'static, Numbers> {
    NUMBERS.lock()
}

impl Numbers {
    fn in_stock(&self) -> &[u32] {
        self.stock.get(..self.count).unwrap_or_default()
    }

    fn set_count(&mut self, count: usize) {
        if (count == 0) != (self.count == 0) {
            classes::watch(CREATES, count > 0);
        }
        self.count = count;
        COUNT.store(u32::try_from(count).unwrap_or(0), Ordering::Release);
    }

    /// The lowest number in stock.
    fn take(&mut self) -> Option<u32> {
        let lowest = *self.in_stock().last()?;
        self.set_count(self.count - 1);
        Some(lowest)
    }

    /// Empties the stock.
    pub(crate) fn clear(&mut self) {
        self.lower(0);
    }

    /// Ends a placeholder: into stock, or for good.
    pub(crate) fn end(&mut self, fd: i32) -> Ret {
        if self.put(fd.cast_unsigned()) {
            return 0;
        }
        let result = sys!(libc::SYS_close, fd);
        words::forget(fd);
        self.freed(fd);
        result
    }

    /// The kernel has freed this number.
    fn freed(&mut self, number: i32) {
        if let Ok(number) = u32::try_from(number)
            && number < self.full
        {
            self.full = number;
            self.lower(number);
        }
    }

    /// Puts a placeholder that the program has closed into stock; false where it must be closed.
    fn put(&mut self, number: u32) -> bool {
        if number < STANDARD || number >= self.full || self.paused > 0 {
            return false;
        }
        if self.count == STOCK {
            let highest = self.in_stock().first().copied().unwrap_or(0);
            if number > highest {
                return false;
            }
            self.lower(highest - 1);
        }
        let at = self.in_stock().iter().position(|other| *other < number).unwrap_or(self.count);
        self.stock.copy_within(at..self.count, at + 1);
        if let Some(place) = self.stock.get_mut(at) {
            *place = number;
        }
        self.set_count(self.count + 1);
        true
    }

    /// Closes what is in stock above a number.
    fn lower(&mut self, number: u32) {
        let above = self.in_stock().iter().take_while(|other| **other > number).count();
        let Some((ended, _)) = self.stock.split_at_checked(above) else { return };
        for number in ended {
            // In this order: nobody must find in the kernel what is no longer known to be a placeholder.
            sys!(libc::SYS_close, *number);
            words::forget(number.cast_signed());
        }
        if let Some(lowest) = ended.last() {
            self.full = self.full.min(*lowest);
            self.stock.copy_within(above..self.count, 0);
            self.set_count(self.count - above);
        }
    }
}

/// A number for a file that is opened: from stock, or of a placeholder that the kernel makes.
pub(crate) fn take(placeholder: impl FnOnce() -> Ret) -> Ret {
    let mut numbers = lock();
    if let Some(number) = numbers.take() {
        return Ret::from(number);
    }
    let made = placeholder();
    if let Ok(number) = u32::try_from(made) {
        words::reserve_number(number.cast_signed());
        if numbers.full == 0 {
            classes::watch(CLOSES, true);
        }
        numbers.full = numbers.full.max(number + 1);
    }
    made
}

/// The kernel may have freed this number: after the call that did.
pub(crate) fn freed(number: i32) {
    lock().freed(number);
}

/// Closes a number that the kernel gave this library for a moment: the lowest that was free.
pub(crate) fn close_low(fd: i32) {
    sys!(libc::SYS_close, fd);
    freed(fd);
}

/// The kernel may have freed any number.
pub(crate) fn freed_any() {
    freed(0);
}

/// Empties the stock, before the kernel gives out a number.
pub(crate) fn clear() {
    if COUNT.load(Ordering::Acquire) > 0 {
        lock().lower(0);
    }
}

/// Empties the stock, and waits for who is closing a number, before the kernel looks at one.
pub(crate) fn settle() {
    lock().lower(0);
}

/// Makes a call of the kernel's that puts a file of a number of the program's choice, or closes many:
/// nothing comes into stock meanwhile.
pub(crate) fn pause<T>(call: impl FnOnce() -> T) -> T {
    stop();
    let result = call();
    lock().paused -= 1;
    result
}

/// Keeps no placeholder in stock from now on: somebody else changes the numbers unseen.
pub(crate) fn stop() {
    let mut numbers = lock();
    numbers.paused += 1;
    numbers.lower(0);
}

/// Keeps other threads out while the process forks.
pub(crate) fn before_fork() {
    NUMBERS.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    NUMBERS.give();
}

/// In the child: what a thread was freeing in the parent is free here.
pub(crate) fn after_fork() {
    freed_any();
}

//! Putting jumps over system calls, and the code that they lead to.
//!
//! Each site gets a few lines of its own near the text: the instructions that stood before its
//! `syscall`, a jump to the common entry with the address of what follows in r11 (which a system
//! call destroys anyway), the `syscall` itself for what goes to the kernel, the instructions that
//! stood behind it, and a jump back.

use crate::entry;
use crate::sites::Site;
use crate::sys::sys;
use crate::thread;

const PAGE: u64 = 4096;
/// How far a jump may lead, with room to spare.
const REACH: u64 = 0x7000_0000;
/// Bytes that one site's code takes at most.
const SITE_BYTES: usize = 96;

/// Replaces the sites of a library or program that is loaded at `base`. Nothing of it may run yet.
/// Returns how many were replaced; 0 where the kernel lets nobody write to code.
pub(crate) fn all(base: u64, text: (u64, u64), sites: &[Site]) -> usize {
    if sites.is_empty() {
        return 0;
    }
    let Some(area) = area_near(text, sites.len()) else { return 0 };
    let (start, end) = (text.0 & !(PAGE - 1), text.1.next_multiple_of(PAGE));
    let open = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    if sys!(libc::SYS_mprotect, start, end - start, open) != 0 {
        sys!(libc::SYS_munmap, area.start, area.bytes);
        return 0;
    }
    let mut at = area.start;
    let mut done = 0;
    for site in sites {
        // SAFETY: the site lies in the text, which is mapped, writable now, and that no other thread
        // runs.
        if let Some(used) = unsafe { replace(base + u64::from(site.start), site, at) } {
            at += used;
            done += 1;
        }
    }
    let closed = libc::PROT_READ | libc::PROT_EXEC;
    sys!(libc::SYS_mprotect, start, end - start, closed);
    sys!(libc::SYS_mprotect, area.start, area.bytes, closed);
    done
}

struct Area {
    start: u64,
    bytes: u64,
}

/// Memory for code that a jump from anywhere in the text reaches.
fn area_near(text: (u64, u64), sites: usize) -> Option<Area> {
    let bytes = ((sites * SITE_BYTES) as u64).next_multiple_of(PAGE);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // Below the text there is room, as the kernel maps downwards.
    for step in 1..4096u64 {
        let start = (text.0 & !(PAGE - 1)).checked_sub(step * (256 << 10))?;
        if text.1 - start > REACH {
            return None;
        }
        let at = sys!(libc::SYS_mmap, start, bytes, access, flags, u64::MAX, 0);
        if at == i64::try_from(start).ok()? {
            return Some(Area { start, bytes });
        }
    }
    None
}

/// Code in the making.
struct Code {
    at: u64,
    bytes: Vec<u8>,
}

impl Code {
    fn here(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A jump to `to`, which is in reach.
    fn jump(&mut self, to: u64) -> Option<()> {
        let next = self.here() + 5;
        let distance = i32::try_from(i64::try_from(to).ok()? - i64::try_from(next).ok()?).ok()?;
        self.put(&[0xe9]);
        self.put(&distance.to_le_bytes());
        Some(())
    }
}

/// Writes a site's own code to `code` and the jump to it over the site; returns the bytes of code.
///
/// # Safety
/// `at` and the bytes behind it are the site's, writable, and not running; `code` has
/// [`SITE_BYTES`] writable bytes.
unsafe fn replace(at: u64, site: &Site, code: u64) -> Option<u64> {
    let len = usize::from(site.len);
    // SAFETY: the site's bytes are mapped.
    let old = unsafe { std::slice::from_raw_parts(at as *const u8, len) }.to_vec();
    let (before, rest) = old.split_at_checked(usize::from(site.at))?;
    let after = rest.strip_prefix(&[0x0f, 0x05])?;
    let mut made = Code { at: code, bytes: Vec::with_capacity(SITE_BYTES) };
    made.put(before);
    // lea r11, [rip + what lies between here and behind the syscall below]
    let entry = entry::address();
    made.put(&[0x4c, 0x8d, 0x1d]);
    let to_tail: u32 = 14 + 2;
    made.put(&to_tail.to_le_bytes());
    // jmp qword ptr [rip + 0], to the address that follows
    made.put(&[0xff, 0x25, 0, 0, 0, 0]);
    made.put(&entry.to_le_bytes());
    made.put(&[0x0f, 0x05]);
    if site.number.is_some_and(makes_processes) {
        end_of_borrowing(&mut made);
    }
    made.put(after);
    made.jump(at + len as u64)?;
    let mut over = Code { at, bytes: Vec::with_capacity(len) };
    over.jump(code)?;
    over.bytes.resize(len, 0xcc);
    if made.bytes.len() > SITE_BYTES {
        return None;
    }
    // SAFETY: the area has so many writable bytes for the site.
    unsafe {
        std::ptr::copy_nonoverlapping(made.bytes.as_ptr(), code as *mut u8, made.bytes.len());
    };
    // SAFETY: the site is writable and not running.
    unsafe { std::ptr::copy_nonoverlapping(over.bytes.as_ptr(), at as *mut u8, len) };
    Some(made.bytes.len() as u64)
}

fn makes_processes(number: u16) -> bool {
    [libc::SYS_clone, libc::SYS_vfork, libc::SYS_clone3].contains(&i64::from(number))
}

/// Behind the call that made a child which uses this memory: in the parent, which goes on only when
/// the child is done with it, the thread is no longer borrowed. No stack is used, since the child may
/// have another one or the same.
fn end_of_borrowing(made: &mut Code) {
    // test rax, rax; jz over; and dword ptr fs:[depth], not BORROWED
    let (depth, rest) = (thread::offset(), !thread::BORROWED);
    let clear: [&[u8]; 3] = [&[0x64, 0x81, 0x24, 0x25], &depth.to_le_bytes(), &rest.to_le_bytes()];
    let clear = clear.concat();
    made.put(&[0x48, 0x85, 0xc0, 0x74]);
    made.put(&[u8::try_from(clear.len()).unwrap_or(0)]);
    made.put(&clear);
}

//! `sendfile` where mappings are not the kernel's: it would read the file into its own pages, and the
//! file would count as mapped by it. So the bytes are read here and written like any others.

use crate::calls::{data, descriptors};
use crate::guard;
use crate::maps::{self, Mode};
use crate::paths::{Served, descriptor};
use crate::sys::{Args, Ret, fail, sys};
use crate::table::{self, DIRECTORY, MAPPED};

/// Bytes that are read at once.
const CHUNK: u64 = 64 << 10;
/// Bytes that one call moves at most, as in Linux.
const MOST: u64 = 0x7fff_f000;

/// `sendfile(out, in, offset, count)`.
pub(crate) fn sendfile(args: &Args) -> Served {
    let [out, from, at, count, ..] = *args;
    let ours = table::get(descriptor(from)).filter(|file| !file.is(DIRECTORY | MAPPED));
    let Some(file) = ours.filter(|file| maps::mode(file.mount()) != Mode::Kernel) else {
        return descriptors::of_two(libc::SYS_sendfile, args, 0, 1);
    };
    // Further calls below name the file themselves.
    drop(file);
    let position = |to: u64, whence: i32| {
        let args = [from, to, whence as u64, 0, 0, 0];
        data::lseek(&args).unwrap_or_else(|| sys!(libc::SYS_lseek, from, to, whence))
    };
    let start = match at {
        0 => u64::try_from(position(0, libc::SEEK_CUR)).ok(),
        _ => guard::load::<u64>(at),
    };
    let Some(start) = start else { return Some(fail(libc::EFAULT)) };
    let moved = transfer(out, (from, start), count.min(MOST));
    let end = start + u64::try_from(moved).unwrap_or(0);
    if at == 0 {
        position(end, libc::SEEK_SET);
    } else if !guard::store(at, &end) {
        return Some(fail(libc::EFAULT));
    }
    Some(moved)
}

/// Moves bytes until there are no more, or no more are taken.
fn transfer(out: u64, (from, start): (u64, u64), count: u64) -> Ret {
    let mut buffer = vec![0_u8; usize::try_from(CHUNK.min(count)).unwrap_or(0)];
    let at = buffer.as_mut_ptr() as u64;
    let mut done = 0;
    while done < count {
        let len = CHUNK.min(count - done);
        let args = [from, at, len, start + done, 0, 0];
        let kernel = || sys!(libc::SYS_pread64, from, at, len, start + done);
        let got = data::pread(&args).unwrap_or_else(kernel);
        let put = if got > 0 { write(out, at, got) } else { got };
        let Ok(bytes) = u64::try_from(put) else {
            return if done > 0 { done.cast_signed() } else { put };
        };
        done += bytes;
        if bytes == 0 || put < got {
            break;
        }
    }
    done.cast_signed()
}

fn write(out: u64, at: u64, len: Ret) -> Ret {
    let args = [out, at, len.cast_unsigned(), 0, 0, 0];
    let kernel = || table::outside(|| sys!(libc::SYS_write, out, at, len));
    data::write(&args).unwrap_or_else(kernel)
}

//! Which interface this is.

use std::ffi::{CStr, c_char};

/// The number of this interface: `novale_open` takes it, and refuses another one. It changes with
/// each change that a program built before would not survive. The soname ends in it.
pub const NOVALE_ABI: u32 = 1;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// The number of the interface that the library at hand has. It equals NOVALE_ABI where header and
/// library belong together.
#[unsafe(no_mangle)]
pub extern "C" fn novale_abi() -> u32 {
    NOVALE_ABI
}

/// The library's version, such as "0.1.0". Never NULL, never freed.
#[unsafe(no_mangle)]
pub extern "C" fn novale_version() -> *const c_char {
    VERSION.as_ptr()
}

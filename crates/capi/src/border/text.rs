//! Errors in words.

use std::ffi::{c_char, c_int};

use crate::border::reply::{keep_words, last_message};

/// What an error number means, such as "No such file or directory"; the sign does not matter. Valid
/// until the thread's next novale_strerror or novale_message. Never NULL but in a thread that is
/// ending.
#[unsafe(no_mangle)]
pub extern "C" fn novale_strerror(error: c_int) -> *const c_char {
    let text = std::io::Error::from_raw_os_error(error.saturating_abs()).to_string();
    // std adds the number in brackets.
    let end = text.rfind(" (os error").unwrap_or(text.len());
    keep_words(text.get(..end).unwrap_or_default().to_owned())
}

/// Why the thread's last failing call failed, in more words than its number has: which slot, which
/// damage, what to do. "" before the first. Valid as the string of novale_strerror.
#[unsafe(no_mangle)]
pub extern "C" fn novale_message() -> *const c_char {
    keep_words(last_message())
}

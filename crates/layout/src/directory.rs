//! Pages of address words: the inode directory and the lane table.

use crate::{LayoutError, PmAddr};

/// Address words of a page.
pub const WORDS_PER_PAGE: u64 = 512;
/// Inode chunks that the two levels of the inode directory can name.
pub const MAX_CHUNKS: u64 = WORDS_PER_PAGE * WORDS_PER_PAGE;
/// Lanes that the lane table can name.
pub const MAX_LANES: u32 = 512;
/// The two journal records of a lane, in bytes from the start of its page.
pub const JOURNAL_OFFSETS: [u64; 2] = [1024, 2048];

/// Where the inode directory names a chunk: (word of the root page, word of that page).
#[inline]
#[must_use]
pub const fn chunk_slot(chunk: u64) -> (u64, u64) {
    (chunk / WORDS_PER_PAGE, chunk % WORDS_PER_PAGE)
}

/// Takes a word of the inode directory or the lane table: null, or the address of a page.
///
/// # Errors
/// [`LayoutError::Field`] when it has reserved bits or is not page-aligned.
#[inline]
pub fn decode_page_word(word: u64) -> Result<PmAddr, LayoutError> {
    PmAddr::decode_page(word, "directory page", "word")
}

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

/// Where the inode directory names a chunk's table, the page that names its inode pages: (word of the
/// root page, word of that page).
#[inline]
#[must_use]
pub const fn chunk_slot(chunk: u64) -> (u64, u64) {
    (chunk / WORDS_PER_PAGE, chunk % WORDS_PER_PAGE)
}

/// The eight words of a line of the inode directory.
#[inline]
#[must_use]
pub fn words_of_line(line: &[u8; 64]) -> [u64; 8] {
    let (words, _) = line.as_chunks::<8>();
    std::array::from_fn(|index| words.get(index).map_or(0, |word| u64::from_le_bytes(*word)))
}

/// Takes a word of the inode directory or the lane table: null, or the address of a page.
///
/// # Errors
/// [`LayoutError::Field`] when it has reserved bits or is not page-aligned.
#[inline]
pub fn decode_page_word(word: u64) -> Result<PmAddr, LayoutError> {
    PmAddr::decode_page(word, "directory page", "word")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{INO_LIMIT, INODES_PER_CHUNK, INODES_PER_PAGE};

    #[test]
    fn chunks_fill_the_directory_in_order() {
        assert_eq!(chunk_slot(0), (0, 0));
        assert_eq!(chunk_slot(511), (0, 511));
        assert_eq!(chunk_slot(512), (1, 0));
        assert_eq!(chunk_slot(MAX_CHUNKS - 1), (511, 511));
        const { assert!(MAX_CHUNKS * INODES_PER_CHUNK <= INO_LIMIT) };
        const { assert!(WORDS_PER_PAGE * INODES_PER_PAGE == INODES_PER_CHUNK) };
    }

    #[test]
    fn a_word_is_null_or_a_page() {
        assert_eq!(decode_page_word(0), Ok(PmAddr::NULL));
        assert_eq!(decode_page_word(0x0100_0000_0000_1000), Ok(PmAddr::new(1, 4096)));
        assert!(decode_page_word(0x1001).is_err());
        assert!(decode_page_word(0x0001_0000_0000_1000).is_err());
    }
}

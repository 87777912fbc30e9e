//! The bytes that a write step stores: made from its number, so that a step's text is short.

/// `len` bytes that belong to `fill`: zeros for 0, else none zero and different at every offset of
/// eight and for every number, so that misplaced or old bytes show.
pub fn fill_bytes(fill: u32, len: usize) -> Vec<u8> {
    if fill == 0 {
        return vec![0; len];
    }
    let words = (0..len.div_ceil(8) as u64).map(|index| mix(u64::from(fill) << 32 | index));
    let words: Vec<_> = words.map(|word| word.to_le_bytes().map(|byte| byte.max(1))).collect();
    let mut bytes = words.into_flattened();
    bytes.truncate(len);
    bytes
}

/// The finalizer of splitmix64 (Steele and others, OOPSLA 2014): every input bit moves all others.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

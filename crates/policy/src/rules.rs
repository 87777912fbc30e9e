//! By which rules the write buffer of `HiNFS` is emptied, and what is not put into it.

/// The rules of a write buffer; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferRules {
    /// Of a hundred blocks: fewer free ones have writing back begin.
    pub low_percent: u8,
    /// And it goes on until so many are free.
    pub high_percent: u8,
    /// How often somebody looks for what is old, ms.
    pub interval_ms: u32,
    /// What is older than this is written back, ms.
    pub age_ms: u32,
    /// For how long after its last sync a file's writes go past the buffer, ms.
    pub eager_ms: u32,
    /// Whether the Buffer Benefit Model is asked; else all writes are buffered.
    pub has_model: bool,
    /// Whether blocks are filled and flushed by lines; else whole, as a page cache does.
    pub by_lines: bool,
}

impl Default for BufferRules {
    fn default() -> Self {
        Self {
            low_percent: 5,
            high_percent: 20,
            interval_ms: 5_000,
            age_ms: 30_000,
            eager_ms: 5_000,
            has_model: true,
            by_lines: true,
        }
    }
}

impl BufferRules {
    /// Words that say all of it.
    pub const WORDS: usize = 2;

    /// The words.
    #[must_use]
    pub fn words(self) -> [u64; Self::WORDS] {
        let flags = u64::from(self.has_model) | u64::from(self.by_lines) << 1;
        let percents = u64::from(self.low_percent) | u64::from(self.high_percent) << 8;
        let first = percents | flags << 16 | u64::from(self.interval_ms) << 32;
        [first, u64::from(self.age_ms) | u64::from(self.eager_ms) << 32]
    }

    /// What the words say.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "each takes its part of a word")]
    pub const fn of_words([first, second]: [u64; Self::WORDS]) -> Self {
        Self {
            low_percent: first as u8,
            high_percent: (first >> 8) as u8,
            interval_ms: (first >> 32) as u32,
            age_ms: second as u32,
            eager_ms: (second >> 32) as u32,
            has_model: first >> 16 & 1 != 0,
            by_lines: first >> 17 & 1 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_all_of_it() {
        let rules = [
            BufferRules::default(),
            BufferRules {
                low_percent: 99,
                high_percent: 100,
                has_model: false,
                ..BufferRules::default()
            },
            BufferRules {
                interval_ms: u32::MAX,
                age_ms: 1,
                eager_ms: 2,
                by_lines: false,
                ..BufferRules::default()
            },
        ];
        for rules in rules {
            assert_eq!(BufferRules::of_words(rules.words()), rules);
        }
    }
}

//! Which of the two commit forms an operation takes.

/// How an operation's data is made durable before its commit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Single-fence for small amounts of data, two-fence above.
    #[default]
    Auto,
    /// One fence behind data, entries and commit line together; a checksum of the data in the
    /// commit line tells recovery whether all of it arrived. Writes above 8 KB take two all the
    /// same: their bytes are not copied, and may change while they are stored.
    Single,
    /// Data and entries, fence, commit line, fence.
    Two,
}

impl Form {
    /// Above this many bytes a checksum costs more than the fence that it saves.
    pub const SINGLE_BYTES_MAX: u64 = 8192;

    /// Whether an operation that stores `bytes` of data takes the single-fence form.
    #[must_use]
    pub fn is_single(self, bytes: u64) -> bool {
        match self {
            Self::Auto => bytes <= Self::SINGLE_BYTES_MAX,
            Self::Single => true,
            Self::Two => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_changes_form_behind_the_threshold() {
        assert!(Form::Auto.is_single(Form::SINGLE_BYTES_MAX));
        assert!(!Form::Auto.is_single(Form::SINGLE_BYTES_MAX + 1));
        assert!(Form::Single.is_single(u64::MAX));
        assert!(!Form::Two.is_single(0));
    }
}

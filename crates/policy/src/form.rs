//! Which of the two commit forms an operation takes.

use novale_layout::PAGE;

/// How an operation's data is made durable before its commit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Single-fence where its checksum costs less than the fence that it saves, two-fence above.
    #[default]
    Auto,
    /// One fence after data, entries and commit line together; a checksum of the data in the
    /// commit line tells recovery whether all of it arrived. Writes above 8 KB take two all the
    /// same: their bytes are not copied, and may change while they are stored.
    Single,
    /// Data and entries, fence, commit line, fence.
    Two,
}

impl Form {
    /// Bytes that a checksum is of, above which [`Form::Auto`] takes the two-fence form where nobody has
    /// measured what fences and checksums cost: the pages of the longest write that is copied.
    pub const SUMMED_BYTES_MAX: u64 = 3 * PAGE;

    /// Whether an operation whose checksum would be of so many bytes takes the single-fence form;
    /// [`Form::Auto`] does up to `summed_bytes_max`.
    #[must_use]
    pub fn is_single(self, summed: u64, summed_bytes_max: u64) -> bool {
        match self {
            Self::Auto => summed <= summed_bytes_max,
            Self::Single => true,
            Self::Two => false,
        }
    }
}

/// What the two forms differ by, as it was measured on this machine: the single-fence form saves a fence,
/// and takes a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitCosts {
    /// A line streamed and fenced, ns.
    pub fence_ns: u16,
    /// The checksum of a page of 4096 bytes, ns.
    pub page_sum_ns: u16,
}

impl CommitCosts {
    /// Bytes whose checksum takes as long as the fence that it saves: above, two fences are cheaper.
    #[must_use]
    pub fn summed_bytes_max(self) -> u64 {
        u64::from(self.fence_ns) * PAGE / u64::from(self.page_sum_ns.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_changes_form_behind_the_threshold() {
        assert!(Form::Auto.is_single(4096, 4096));
        assert!(!Form::Auto.is_single(4097, 4096));
        assert!(Form::Auto.is_single(0, 0), "what needs no checksum saves the fence anywhere");
        assert!(Form::Single.is_single(u64::MAX, 0));
        assert!(!Form::Two.is_single(0, u64::MAX));
    }

    #[test]
    fn the_dearer_the_checksum_the_less_is_summed() {
        let up_to =
            |fence_ns, page_sum_ns| CommitCosts { fence_ns, page_sum_ns }.summed_bytes_max();
        assert_eq!(up_to(100, 100), 4096);
        assert_eq!(up_to(100, 400), 1024);
        assert_eq!(up_to(1000, 50), 81_920);
        assert_eq!(up_to(0, 0), 0);
    }
}

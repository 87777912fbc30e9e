//! Which update method a write takes.

use crate::zone::LAWN_BYTES_MAX;

/// What a policy sees of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteShape {
    /// First byte written.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The file's length before the write.
    pub size: u64,
    /// Whether a program has the file's own pages mapped: they keep their places.
    pub is_mapped: bool,
    /// The file's own policy, where it has one.
    pub own: Option<UpdatePolicy>,
    /// Whether the bytes to be written lie in the pool, and the writer says where.
    pub has_source: bool,
}

/// How bytes reach the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Whole new pages, mapped by one commit (NOVA 4.4).
    CopyOnWrite,
    /// Beyond the end of the file, in place as far as its last page goes and in new pages beyond: the
    /// commit of the size makes them the file's. Where the write begins elsewhere in the last page,
    /// that page is copied as far as the file goes then.
    Append,
    /// Over the old bytes: after a crash each aligned unit of 8 bytes is the old one or the new one
    /// (PMFS).
    InPlace,
    /// To the log, by a commit, then over the old bytes: fine-grained redo logging (LAWN 2.2).
    FineLog,
    /// Each line to that of a page's two copies in which it is not current, then a commit says that it is
    /// (LAWN's alternate writing, atomic for the write).
    Paired,
    /// Pages written up to half over the old bytes, which are in the log meanwhile; the others as copies
    /// (ADL).
    Undo,
    /// The log says where in the pool the bytes lie, by a commit, then they are stored over the old ones
    /// (ZCL).
    Source,
    /// As `Paired`, with second copies of lines in slots that pages of the file share (LAWN's zone).
    Lawn,
}

/// The longest write that goes to the log, in bytes.
pub const FINE_LOG_BYTES_MAX: u64 = 8192;
/// The longest write that goes to paired pages, in bytes.
pub const PAIRED_BYTES_MAX: u64 = 8192;
/// The longest write whose ends may go over the old bytes, in bytes.
pub const UNDO_BYTES_MAX: u64 = 8192;
const PAGE: u64 = 4096;

/// Which methods writes take; names are those of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdatePolicy {
    /// Appends in place, as far as the last page goes, and what goes from there over the end with a copy of
    /// it; overwrites of up to [`PAIRED_BYTES_MAX`] that cover a page in part by paired pages;
    /// copy-on-write for all else.
    #[default]
    Auto,
    /// Copy-on-write for every write, as NOVA does.
    Cow,
    /// Overwrites in place, without atomicity beyond 8 bytes; else as `Auto`.
    InPlace,
    /// Overwrites of up to [`FINE_LOG_BYTES_MAX`] by the log; else as `Auto`.
    FineLog,
    /// Overwrites of up to [`PAIRED_BYTES_MAX`] by paired pages, of whole pages too; else as `Auto`.
    Paired,
    /// Overwrites of up to [`UNDO_BYTES_MAX`] by adaptive differential logging: pages written up to half in
    /// place, under an undo log, the others by copies; else as `Auto`.
    Adl,
    /// Overwrites of up to [`UNDO_BYTES_MAX`] that cover a page in part by zero-copy logging, where the
    /// bytes lie in the pool; else as `Adl`.
    Zcl,
    /// Overwrites of up to [`LAWN_BYTES_MAX`] that cover no page as a whole by slots; else as `Auto`, with
    /// copies in the place of paired pages.
    Lawn,
}

impl UpdatePolicy {
    /// All of them, by number.
    pub const ALL: [Self; 8] = [
        Self::Auto,
        Self::Cow,
        Self::InPlace,
        Self::FineLog,
        Self::Paired,
        Self::Adl,
        Self::Zcl,
        Self::Lawn,
    ];

    /// Its number in a pool: of a file, of a directory's new files, of all that name none. 0 is none.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The one of that number; none for 0, and for what only a newer program knows.
    #[inline]
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// What the command line calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cow => "cow",
            Self::InPlace => "inplace",
            Self::FineLog => "finelog",
            Self::Paired => "paired",
            Self::Adl => "adl",
            Self::Zcl => "zcl",
            Self::Lawn => "lawn",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The method for a write of that shape, to a file that has no policy of its own.
    #[inline]
    #[must_use]
    pub fn method(self, shape: &WriteShape) -> Method {
        let WriteShape { offset, len, size, is_mapped, own, has_source } = *shape;
        let is_whole = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= size);
        let is_over_end = !is_inside && size > 0 && offset / PAGE == (size - 1) / PAGE;
        let has_whole_page = len.saturating_sub(offset.wrapping_neg() % PAGE) >= PAGE;
        let policy = own.unwrap_or(self);
        match policy {
            _ if is_mapped => Method::InPlace,
            Self::Cow => Method::CopyOnWrite,
            _ if offset == size || is_over_end => Method::Append,
            Self::InPlace if is_inside => Method::InPlace,
            Self::FineLog if is_inside && len <= FINE_LOG_BYTES_MAX => Method::FineLog,
            Self::Adl | Self::Zcl if is_inside && len <= UNDO_BYTES_MAX => {
                let is_named = has_source && !is_whole && policy == Self::Zcl;
                if is_named { Method::Source } else { Method::Undo }
            }
            Self::Paired | Self::Auto if is_inside && len <= PAIRED_BYTES_MAX => {
                if is_whole && policy == Self::Auto { Method::CopyOnWrite } else { Method::Paired }
            }
            Self::Lawn if is_inside && len <= LAWN_BYTES_MAX && !has_whole_page => Method::Lawn,
            Self::Auto
            | Self::InPlace
            | Self::FineLog
            | Self::Paired
            | Self::Adl
            | Self::Zcl
            | Self::Lawn => Method::CopyOnWrite,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: WriteShape = WriteShape {
        offset: 0,
        len: 64,
        size: 10_000,
        is_mapped: false,
        own: None,
        has_source: false,
    };

    fn methods(policy: UpdatePolicy, is_mapped: bool) -> [Method; 5] {
        let at = |offset, len| WriteShape { offset, len, is_mapped, ..SHAPE };
        // At the end; within; a page; within, and long; to a page before the last one and over the end.
        [at(10_000, 1), at(1000, 64), at(4096, 4096), at(0, 9000), at(8190, 2000)]
            .map(|shape| policy.method(&shape))
    }

    #[test]
    fn each_policy_has_its_methods() {
        use Method::{Append, CopyOnWrite, FineLog, InPlace, Lawn, Paired, Undo};
        let expected = [
            (UpdatePolicy::Auto, [Append, Paired, CopyOnWrite, CopyOnWrite, CopyOnWrite]),
            (UpdatePolicy::Cow, [CopyOnWrite; 5]),
            (UpdatePolicy::InPlace, [Append, InPlace, InPlace, InPlace, CopyOnWrite]),
            (UpdatePolicy::FineLog, [Append, FineLog, FineLog, CopyOnWrite, CopyOnWrite]),
            (UpdatePolicy::Paired, [Append, Paired, Paired, CopyOnWrite, CopyOnWrite]),
            (UpdatePolicy::Adl, [Append, Undo, Undo, CopyOnWrite, CopyOnWrite]),
            (UpdatePolicy::Zcl, [Append, Undo, Undo, CopyOnWrite, CopyOnWrite]),
            (UpdatePolicy::Lawn, [Append, Lawn, CopyOnWrite, CopyOnWrite, CopyOnWrite]),
        ];
        for (policy, expected) in expected {
            assert_eq!(methods(policy, false), expected, "{policy:?}");
            assert_eq!(methods(policy, true), [InPlace; 5], "{policy:?}");
        }
        // Over the end from the last page on, or within it; behind the end in that page, and in the next.
        let over = |size, offset| {
            UpdatePolicy::Auto.method(&WriteShape { offset, len: 20, size, ..SHAPE })
        };
        assert_eq!([over(10_000, 9990), over(10_000, 8192), over(1, 0)], [Append, Paired, Append]);
        assert_eq!(
            [over(8192, 8180), over(8000, 8100), over(8192, 8193), over(8190, 8192)],
            [Append, Append, CopyOnWrite, CopyOnWrite]
        );
        let far = WriteShape { offset: u64::MAX, len: 2, size: 1, ..SHAPE };
        assert_eq!(UpdatePolicy::InPlace.method(&far), CopyOnWrite);
        // Up to a page's end, over it, and with a page between.
        let lawn = |offset, len| {
            UpdatePolicy::Lawn.method(&WriteShape { offset, len, size: 20_000, ..SHAPE })
        };
        assert_eq!([lawn(100, 3996), lawn(100, 8087), lawn(0, 4095)], [Lawn; 3]);
        assert_eq!([lawn(100, 8092), lawn(4096, 4097), lawn(0, 4096)], [CopyOnWrite; 3]);
    }

    #[test]
    fn a_file_has_a_policy_of_its_own() {
        let own = Some(UpdatePolicy::FineLog);
        let shape = WriteShape { own, ..SHAPE };
        assert!(UpdatePolicy::ALL.iter().all(|policy| policy.method(&shape) == Method::FineLog));
    }

    #[test]
    fn bytes_in_the_pool_are_named_where_that_is_asked_for() {
        let named = |offset, len, has_source| {
            UpdatePolicy::Zcl.method(&WriteShape { offset, len, has_source, ..SHAPE })
        };
        assert_eq!(named(100, 64, true), Method::Source);
        assert_eq!(named(100, 64, false), Method::Undo);
        assert_eq!(named(4096, 4096, true), Method::Undo);
        let all = UpdatePolicy::ALL.into_iter();
        let shape = WriteShape { has_source: true, ..SHAPE };
        let naming = all.filter(|policy| policy.method(&shape) == Method::Source);
        assert_eq!(naming.collect::<Vec<_>>(), [UpdatePolicy::Zcl]);
    }

    /// They are in pools.
    #[test]
    fn numbers_stay() {
        let numbers = ["auto", "cow", "inplace", "finelog", "paired", "adl", "zcl", "lawn"];
        for (number, name) in (1..).zip(numbers) {
            let policy = UpdatePolicy::named(name).unwrap();
            assert_eq!((policy.number(), UpdatePolicy::numbered(number)), (number, Some(policy)));
        }
        assert_eq!(UpdatePolicy::ALL.len(), numbers.len());
        assert_eq!([0, 9, 255].map(UpdatePolicy::numbered), [None; 3]);
    }
}

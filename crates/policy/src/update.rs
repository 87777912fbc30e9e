//! Which update method a write takes.

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
}

/// How bytes reach the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Whole new pages, mapped by one commit (NOVA 4.4).
    CopyOnWrite,
    /// Beyond the end of the file, in place as far as its last page goes and in new pages beyond: the
    /// commit of the size makes them the file's.
    Append,
    /// Over the old bytes: after a crash each aligned unit of 8 bytes is the old one or the new one
    /// (PMFS).
    InPlace,
    /// To the log, by a commit, then over the old bytes: fine-grained redo logging (LAWN 2.2).
    FineLog,
}

/// The longest write that goes to the log, in bytes.
pub const FINE_LOG_BYTES_MAX: u64 = 8192;

/// Which methods writes take; names are those of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdatePolicy {
    /// Appends in place, as far as the last page goes, and copy-on-write for all else.
    #[default]
    Auto,
    /// Copy-on-write for every write, as NOVA does.
    Cow,
    /// Overwrites in place, without atomicity beyond 8 bytes; else as `Auto`.
    InPlace,
    /// Overwrites of up to [`FINE_LOG_BYTES_MAX`] by the log; else as `Auto`.
    FineLog,
}

impl UpdatePolicy {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Cow, Self::InPlace, Self::FineLog];

    /// What the command line calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cow => "cow",
            Self::InPlace => "inplace",
            Self::FineLog => "finelog",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The method for a write of that shape.
    #[inline]
    #[must_use]
    pub fn method(self, shape: &WriteShape) -> Method {
        let WriteShape { offset, len, size, is_mapped } = *shape;
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= size);
        match self {
            _ if is_mapped => Method::InPlace,
            Self::Cow => Method::CopyOnWrite,
            _ if offset == size => Method::Append,
            Self::InPlace if is_inside => Method::InPlace,
            Self::FineLog if is_inside && len <= FINE_LOG_BYTES_MAX => Method::FineLog,
            Self::Auto | Self::InPlace | Self::FineLog => Method::CopyOnWrite,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(policy: UpdatePolicy, is_mapped: bool) -> [Method; 4] {
        let at = |offset, len| WriteShape { offset, len, size: 10_000, is_mapped };
        // At the end; within; within, and long; over the end.
        [at(10_000, 1), at(1000, 64), at(0, 9000), at(9990, 20)].map(|shape| policy.method(&shape))
    }

    #[test]
    fn each_policy_has_its_methods() {
        use Method::{Append, CopyOnWrite, FineLog, InPlace};
        let expected = [
            (UpdatePolicy::Auto, [Append, CopyOnWrite, CopyOnWrite, CopyOnWrite]),
            (UpdatePolicy::Cow, [CopyOnWrite; 4]),
            (UpdatePolicy::InPlace, [Append, InPlace, InPlace, CopyOnWrite]),
            (UpdatePolicy::FineLog, [Append, FineLog, CopyOnWrite, CopyOnWrite]),
        ];
        for (policy, expected) in expected {
            assert_eq!(methods(policy, false), expected, "{policy:?}");
            assert_eq!(methods(policy, true), [InPlace; 4], "{policy:?}");
        }
        let far = WriteShape { offset: u64::MAX, len: 2, size: 1, is_mapped: false };
        assert_eq!(UpdatePolicy::InPlace.method(&far), CopyOnWrite);
    }
}

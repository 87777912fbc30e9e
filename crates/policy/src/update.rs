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
    /// Behind the end of the file, in place as far as its last page goes and in new pages beyond: the
    /// commit of the size makes them the file's.
    Append,
    /// Over the old bytes: after a crash each aligned unit of 8 bytes is the old one or the new one (PMFS).
    InPlace,
}

/// Which methods writes take; names are those of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdatePolicy {
    /// Appends in place, as far as the last page goes, and copy-on-write for all else.
    #[default]
    Auto,
    /// Copy-on-write for every write, as NOVA does.
    Cow,
}

impl UpdatePolicy {
    /// All of them, by number.
    pub const ALL: [Self; 2] = [Self::Auto, Self::Cow];

    /// The method for a write of that shape.
    #[inline]
    #[must_use]
    pub fn method(self, shape: &WriteShape) -> Method {
        match self {
            _ if shape.is_mapped => Method::InPlace,
            Self::Auto if shape.offset == shape.size => Method::Append,
            Self::Auto | Self::Cow => Method::CopyOnWrite,
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
        use Method::{Append, CopyOnWrite, InPlace};
        let expected = [
            (UpdatePolicy::Auto, [Append, CopyOnWrite, CopyOnWrite, CopyOnWrite]),
            (UpdatePolicy::Cow, [CopyOnWrite; 4]),
        ];
        for (policy, expected) in expected {
            assert_eq!(methods(policy, false), expected, "{policy:?}");
            assert_eq!(methods(policy, true), [InPlace; 4], "{policy:?}");
        }
    }
}

//! Which update method a write takes.

/// What a policy sees of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteShape {
    /// First byte written.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub len: u64,
    /// The file's length before the write.
    pub size: u64,
}

/// How bytes reach the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Whole new pages, mapped by one commit (NOVA 4.4).
    CopyOnWrite,
    /// Behind the end of the file, in place as far as its last page goes and in new pages beyond: the
    /// commit of the size makes them the file's. Elsewhere, if the end has moved, copy-on-write.
    Append,
}

/// Decides the method of each write.
pub trait UpdatePolicy: Send + Sync {
    /// The method for a write of that shape.
    fn decide(&self, shape: &WriteShape) -> Method;
}

/// NOVA's policy: every write goes to new pages.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyOnWrite;

impl UpdatePolicy for CopyOnWrite {
    fn decide(&self, _shape: &WriteShape) -> Method {
        Method::CopyOnWrite
    }
}

/// Appends go in place, as far as the last page goes, and every other write to new pages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Auto;

impl UpdatePolicy for Auto {
    fn decide(&self, shape: &WriteShape) -> Method {
        if shape.offset == shape.size { Method::Append } else { Method::CopyOnWrite }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_at_the_end_is_an_append() {
        let method = |offset, len| Auto.decide(&WriteShape { offset, len, size: 100 });
        assert_eq!([method(100, 1), method(100, 5000)], [Method::Append; 2]);
        assert_eq!([method(99, 2), method(101, 1), method(0, 100)], [Method::CopyOnWrite; 3]);
        let shape = WriteShape { offset: 100, len: 1, size: 100 };
        assert_eq!(CopyOnWrite.decide(&shape), Method::CopyOnWrite);
    }
}

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

//! A running operation: its record in the arena, and what its caller handed in.

use std::sync::atomic::Ordering;

use novale_arena::Op;
use novale_layout::{Ino, RoFeature};

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::pool::Pool;
use crate::space::PageSource;

/// What an operation record says that its operation is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OpKind {
    Load = 1,
    Write,
    Truncate,
    Attributes,
    Create,
    Link,
    Unlink,
    Rename,
    Release,
    Atime,
    Manage,
    Settle,
}

impl OpKind {
    /// Whether it may give its inodes new numbers.
    pub(crate) fn counts_on(self) -> bool {
        match self {
            Self::Write
            | Self::Truncate
            | Self::Attributes
            | Self::Create
            | Self::Link
            | Self::Unlink
            | Self::Rename => true,
            Self::Load | Self::Release | Self::Atime | Self::Manage | Self::Settle => false,
        }
    }
}

/// A running operation: its record, and what the caller handed in.
pub(crate) struct Call<'a> {
    pub(crate) op: Op<'a>,
    pub(crate) kind: OpKind,
    pub(crate) now_ns: i64,
    pub(crate) hint: u32,
}

/// Who reads: an operation, or a caller without one, by its hint.
#[derive(Clone, Copy)]
pub(crate) enum By<'a> {
    Call(&'a Call<'a>),
    Hint(u32),
}

impl<'a> From<&'a Call<'_>> for By<'a> {
    fn from(call: &'a Call<'_>) -> Self {
        Self::Call(call)
    }
}

impl From<u32> for By<'_> {
    fn from(hint: u32) -> Self {
        Self::Hint(hint)
    }
}

impl Fs {
    /// Starts an operation that may change the pool.
    pub(crate) fn begin(&self, kind: OpKind, ctx: &Ctx) -> Result<Call<'_>> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.begin_read(kind, ctx)
    }

    /// Starts an operation that only needs locks.
    pub(crate) fn begin_read(&self, kind: OpKind, ctx: &Ctx) -> Result<Call<'_>> {
        self.check_open()?;
        if self.arena().pressure() > 0 {
            self.forget_some(ctx.hint);
        }
        Ok(self.call(kind, ctx))
    }

    /// An operation whether the file system is open or being closed.
    pub(crate) fn call(&self, kind: OpKind, ctx: &Ctx) -> Call<'_> {
        let mut op = self.client.op(kind as u32, ctx.hint);
        op.set_settler(self);
        Call { op, kind, now_ns: ctx.now_ns, hint: ctx.hint }
    }

    /// Whether a commit whose data checksum would be of so many bytes takes the single-fence form.
    #[inline]
    pub(crate) fn is_single(&self, summed: u64) -> bool {
        self.options.form.is_single(summed, self.summed_bytes_max)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn env<'a>(&'a self, call: &'a Call<'a>) -> PageSource<'a> {
        PageSource {
            arena: self.arena(),
            allocator: &self.allocator,
            op: &call.op,
            hint: call.hint,
        }
    }

    /// Makes sure that the superblock says of a feature that it is used, durably: before the first
    /// commit that uses it, and before the operation has any lock.
    #[inline]
    pub(crate) fn use_feature(&self, ctx: &Ctx, feature: RoFeature) -> Result<()> {
        if self.is_used(feature) { Ok(()) } else { self.say_feature(ctx, feature) }
    }

    /// Whether this client knows that the superblock says so durably.
    #[inline]
    pub(crate) fn is_used(&self, feature: RoFeature) -> bool {
        self.features.load(Ordering::Relaxed) & feature.bit() != 0
    }

    #[cold]
    fn say_feature(&self, ctx: &Ctx, feature: RoFeature) -> Result<()> {
        let call = self.begin(OpKind::Manage, ctx)?;
        // Clients do it one after the other.
        let _root = self.lock(&call, Ino::ROOT)?;
        Pool::read(&self.pm)?.set_feature(&self.pm, feature);
        self.features.fetch_or(feature.bit(), Ordering::Relaxed);
        Ok(())
    }
}

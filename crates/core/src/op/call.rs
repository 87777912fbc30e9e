//! A running operation: its record in the arena, and what its caller handed in.

use std::sync::atomic::Ordering;

use novale_arena::Op;
use novale_layout::{Ino, RoFeature};
use novale_pm::Health;

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::pool::{Pool, nothing_lost};
use crate::space::PageSource;
use crate::space::failed::{failed_slots, has_slot, tell_failed};
use crate::space::leaving::slots_to_know;

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

/// Of the kind that an operation's record says: how many slots its client knew when it began. Below that the
/// [`OpKind`].
const KNOWN_SHIFT: u32 = 8;

/// The kind of an operation, of what its record says.
pub(crate) fn kind_in(record: u32) -> u32 {
    record & ((1 << KNOWN_SHIFT) - 1)
}

/// How many slots its client knew when it began; 0 where it does not say.
pub(crate) fn known_in(record: u32) -> u64 {
    u64::from(record >> KNOWN_SHIFT)
}

impl OpKind {
    /// What its record says of an operation whose client knows so many slots.
    #[inline]
    pub(crate) fn with_known(self, slots: u32) -> u32 {
        self as u32 | slots << KNOWN_SHIFT
    }

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
    /// How the slots were found when it began.
    pub(crate) health: Health,
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
    /// Makes an operation, and once more where memory was refused: the next one that begins gives back what nobody uses.
    /// What it finds damaged in a slot that has failed is lost ([`Fs::lost_or`]).
    pub(crate) fn with_memory<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        let done = match operation() {
            Err(Error::NoMemory) => operation(),
            done => done,
        };
        done.map_err(|error| self.lost_or(error))
    }

    /// What contradicts the format in a slot that has failed are the zeros in its place.
    pub(crate) fn lost_or(&self, error: Error) -> Error {
        let Error::Damaged { at, .. } = error else { return error };
        if has_slot(self.failed_slots(), at.slot()) { Error::Lost(at) } else { error }
    }

    /// Starts an operation that may change the pool.
    #[inline]
    pub(crate) fn begin(&self, kind: OpKind, ctx: &Ctx) -> Result<Call<'_>> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.begin_read(kind, ctx)
    }

    /// Starts an operation that only needs locks.
    #[inline]
    pub(crate) fn begin_read(&self, kind: OpKind, ctx: &Ctx) -> Result<Call<'_>> {
        self.check_open()?;
        if self.arena().pressure() > 0 {
            self.forget_some(ctx.hint);
        }
        if self.arena().takes_refusal() {
            self.forget_unused(ctx.hint);
        }
        Ok(self.call(kind, ctx))
    }

    /// An operation whether the file system is open or being closed.
    #[inline]
    pub(crate) fn call(&self, kind: OpKind, ctx: &Ctx) -> Call<'_> {
        let op = self.op(kind, ctx.hint);
        Call { op, kind, now_ns: ctx.now_ns, hint: ctx.hint, health: self.health() }
    }

    /// An operation that knows all slots that others may lead it to.
    #[inline]
    pub(crate) fn op(&self, kind: OpKind, hint: u32) -> Op<'_> {
        loop {
            let known = self.passes.meeting.known.load(Ordering::Acquire);
            let mut op = self.client.op(kind.with_known(known), hint);
            // Asked when the record says so: who adds one waits for it from then on.
            if slots_to_know(self.arena()) <= known.into() {
                op.set_settler(self);
                return op;
            }
            drop(op);
            self.meet_slots();
        }
    }

    /// How the slots are, as far as any client knows.
    #[inline]
    pub(crate) fn health(&self) -> Health {
        let health = self.pm.health();
        if failed_slots(self.arena()) == health.failed { health } else { self.share_failures() }
    }

    #[cold]
    fn share_failures(&self) -> Health {
        tell_failed(self.arena(), self.pm.health().failed);
        self.pm.set_failed(failed_slots(self.arena()));
        self.pm.health()
    }

    /// Refuses to go on, and to acknowledge, where something was lost that the operation has stored or
    /// loaded: a slot has failed since it began, or it has stored to one that had failed before.
    #[inline]
    pub(crate) fn check_slots(&self, call: &Call<'_>) -> Result<()> {
        let health = self.pm.health();
        if health == call.health { Ok(()) } else { self.lost(call.health) }
    }

    /// What was lost since the slots were found so.
    #[cold]
    pub(crate) fn lost(&self, before: Health) -> Result<()> {
        self.share_failures();
        nothing_lost(&self.pm, before)
    }

    /// A bit for each slot that has failed since the pool was opened, as far as any client knows.
    #[must_use]
    pub fn failed_slots(&self) -> u64 {
        self.health().failed
    }

    /// Whether a commit whose data checksum would be of so many bytes takes the single-fence form.
    #[inline]
    pub(crate) fn is_single(&self, summed: u64) -> bool {
        self.options.form.is_single(summed, self.summed_bytes_max)
    }

    /// Whether this client has left, or is about to ([`Fs::close`]).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
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
        self.meet_slots();
        // The replica is in the last one.
        self.check_none_lacking()?;
        match call.health.failed {
            0 => Pool::read(&self.pm)?.set_feature(&self.pm, feature),
            // What a failed slot says of itself can't be read.
            failed => Pool::set_feature_without(&self.pm, failed, feature)?,
        }
        self.check_slots(&call)?;
        self.features.fetch_or(feature.bit(), Ordering::Relaxed);
        Ok(())
    }
}

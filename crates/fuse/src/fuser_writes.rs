//! What a request to write is answered.

use std::ops::Range;
use std::sync::Arc;

use fuser::ReplyWrite;

use crate::fuser_convert::errno;
use crate::fuser_drops::Drops;
use crate::late::{Answer, Late, Now};
use crate::service::{Errno, Reply};

/// A request to write bytes.
pub(crate) struct Writing {
    /// None once it is answered.
    pub(crate) reply: Option<ReplyWrite>,
    pub(crate) bytes: Range<u64>,
    /// Of one by the kernel's page cache.
    pub(crate) drops: Option<Drops>,
}

impl Writing {
    /// Says what came of it, if nothing was said yet.
    pub(crate) fn end(self, written: Reply<usize>) {
        let Self { reply, bytes, drops } = self;
        match (reply, written) {
            (Some(reply), Ok(bytes)) => reply.written(u32::try_from(bytes).unwrap_or(u32::MAX)),
            (Some(reply), Err(error)) => {
                // Of what was mapped the kernel tells a lack of space only by this one; all others are EIO to it.
                let is_quotas = drops.is_some() && error == Errno(libc::EDQUOT);
                reply.error(errno(if is_quotas { Errno(libc::ENOSPC) } else { error }));
            }
            (None, _) => {}
        }
        if let (Err(_), Some(drops)) = (written, drops) {
            drops.give_up(bytes);
        }
    }
}

/// One that is being done.
pub(crate) enum Begun {
    Plain(Writing),
    /// It is answered before it is done, if that takes long.
    Late(Arc<Late>, Now),
}

impl Begun {
    /// Whether it may be put aside until there is room.
    pub(crate) fn may_wait(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Late(late, now) => late.waits(now),
        }
    }

    pub(crate) fn end(self, written: Reply<usize>) {
        match self {
            Self::Plain(writing) => writing.end(written),
            Self::Late(late, now) => late.end(now, written),
        }
    }
}

impl Answer for Writing {
    fn early(&mut self) {
        let len = self.bytes.end - self.bytes.start;
        if let Some(reply) = self.reply.take() {
            reply.written(u32::try_from(len).unwrap_or(u32::MAX));
        }
    }

    fn end(self: Box<Self>, written: Reply<usize>) {
        (*self).end(written);
    }
}

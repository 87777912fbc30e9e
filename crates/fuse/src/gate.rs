//! The gate that every request passes: open, draining (nothing new is opened) or closed.
//!
//! Invariant: [`Gate::close`] returns when no request is inside, and lets none in afterwards.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::{Errno, Reply};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    Draining,
    Closed,
}

/// Proof that the gate stays as it is while a request runs.
pub(crate) struct Pass<'a> {
    _inside: RwLockReadGuard<'a, Phase>,
}

#[derive(Debug)]
pub(crate) struct Gate {
    phase: RwLock<Phase>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { phase: RwLock::new(Phase::Open) }
    }

    /// Lets a request in unless the gate is closed.
    pub(crate) fn enter(&self) -> Reply<Pass<'_>> {
        self.enter_before(Phase::Closed)
    }

    /// Lets a request in that opens something: not while draining either.
    pub(crate) fn enter_to_open(&self) -> Reply<Pass<'_>> {
        self.enter_before(Phase::Draining)
    }

    fn enter_before(&self, refusing: Phase) -> Reply<Pass<'_>> {
        let phase = self.phase.read().unwrap_or_else(PoisonError::into_inner);
        if *phase >= refusing {
            return Err(Errno(libc::ESHUTDOWN));
        }
        Ok(Pass { _inside: phase })
    }

    /// Refuses what opens from now on.
    pub(crate) fn drain(&self) {
        self.set(Phase::Draining);
    }

    /// Refuses everything from now on; requests inside have finished when this returns.
    pub(crate) fn close(&self) {
        self.set(Phase::Closed);
    }

    fn set(&self, to: Phase) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        *phase = (*phase).max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;

    #[test]
    fn a_draining_gate_refuses_opens_and_a_closed_one_everything() {
        let gate = Gate::new();
        assert!(gate.enter_to_open().is_ok());
        gate.drain();
        assert!(gate.enter_to_open().is_err());
        assert!(gate.enter().is_ok());
        gate.close();
        gate.drain();
        assert!(gate.enter().is_err());
    }
}

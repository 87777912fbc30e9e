//! Signals that end a command early: it says what it has, and leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown, register_usize};

/// What a shell shows for a program that a signal ended.
const SIGNAL_CODE: i32 = 128;

/// Whether a signal has come.
#[derive(Debug)]
pub(super) struct Stop {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Takes the signals over; the second one still ends the program at once.
    pub(super) fn on_signals() -> anyhow::Result<Self> {
        let stop = Self { asked: Arc::default(), signal: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let code = SIGNAL_CODE + signal;
            register_conditional_shutdown(signal, code, stop.asked.clone())
                .and_then(|_| {
                    register_usize(signal, stop.signal.clone(), usize::try_from(code).unwrap_or(1))
                })
                .and_then(|_| register(signal, stop.asked.clone()))
                .with_context(|| format!("take signal {signal} over"))?;
        }
        Ok(stop)
    }

    /// True from the first signal on.
    pub(super) fn asked(&self) -> &Arc<AtomicBool> {
        &self.asked
    }

    /// The exit code that a signal asks for, if one has come.
    pub(super) fn code(&self) -> Option<u8> {
        u8::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|code| *code > 0)
    }
}

//! The forbidden calls, as data: what, where, and what to do instead.

/// A sequence of tokens that may not stand in some crates.
pub(super) struct Ban {
    pub(super) tokens: &'static [&'static str],
    pub(super) crates: Crates,
    pub(super) tests: Tests,
    pub(super) instead: &'static str,
}

/// The crates that a ban is for, by folder name.
pub(super) enum Crates {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

/// Whether a ban is for tests too.
#[derive(PartialEq)]
pub(super) enum Tests {
    Banned,
    Free,
}

/// The crates whose runs replay: all that they know of the world is handed in.
const REPLAYING: Crates = Crates::Only(&["core", "layout", "policy", "model"]);
/// The crates that are, or serve, a command line.
const PROGRAMS: &[&str] = &["cli", "bench", "lab", "xtask"];
/// The crates that may not spell bytes on media.
const ABOVE_LAYOUT: Crates = Crates::Only(&["core", "policy", "posix", "fuse", "cli"]);

/// What is banned where; adding a ban is adding a row.
pub(super) const BANS: &[Ban] = &[
    Ban {
        tokens: &["unsafe"],
        crates: Crates::AllBut(&["pm", "arena", "crc", "edges", "preload", "capi"]),
        tests: Tests::Banned,
        instead: "a function of `pm` or `arena`; unsafe stays in the few crates that need it",
    },
    Ban {
        tokens: &["static", "mut"],
        crates: Crates::AllBut(&[]),
        tests: Tests::Banned,
        instead: "an atomic, or state that is handed in",
    },
    Ban {
        tokens: &["mem", "::", "transmute"],
        crates: Crates::AllBut(&["preload"]),
        tests: Tests::Banned,
        instead: "zerocopy, `from_le_bytes`, or a pointer cast with its SAFETY comment",
    },
    Ban {
        tokens: &["sleep", "("],
        crates: Crates::AllBut(&["bench"]),
        tests: Tests::Free,
        instead: "wait for the condition itself: a lock, a channel, poll on a descriptor",
    },
    Ban {
        tokens: &["ClearSetId"],
        crates: Crates::AllBut(&["core", "posix", "lab", "model"]),
        tests: Tests::Free,
        instead: "`Changer` of `posix`: when set-id bits fall is said once",
    },
    Ban {
        tokens: &["SystemTime"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "the time that the caller hands in (`Ctx::now_ns`), so that a run replays",
    },
    Ban {
        tokens: &["Instant"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "the time that the caller hands in (`Ctx::now_ns`), so that a run replays",
    },
    Ban {
        tokens: &["thread"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "the executor that the caller hands in",
    },
    Ban {
        tokens: &["fastrand"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "a number that the caller hands in, so that a run replays",
    },
    Ban {
        tokens: &["env", "::"],
        crates: Crates::AllBut(&["cli", "fuse", "bench", "lab", "xtask"]),
        tests: Tests::Free,
        instead: "an option that the caller hands in",
    },
    Ban {
        tokens: &["std", "::", "fs"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "the pool through `pm`; this crate opens no files",
    },
    Ban {
        tokens: &["libc", "::"],
        crates: Crates::Only(&["core", "layout", "policy", "model"]),
        tests: Tests::Banned,
        instead: "an error of this layer; errno lives in `posix` and the shims",
    },
    Ban {
        tokens: &["process", "::", "exit"],
        crates: Crates::AllBut(PROGRAMS),
        tests: Tests::Free,
        instead: "an error that the caller handles",
    },
    Ban {
        tokens: &["println", "!"],
        crates: Crates::AllBut(PROGRAMS),
        tests: Tests::Free,
        instead: "a returned value, or a progress callback; libraries never print",
    },
    Ban {
        tokens: &["print", "!"],
        crates: Crates::AllBut(PROGRAMS),
        tests: Tests::Free,
        instead: "a returned value, or a progress callback; libraries never print",
    },
    Ban {
        tokens: &["eprintln", "!"],
        crates: Crates::AllBut(PROGRAMS),
        tests: Tests::Free,
        instead: "a returned error; libraries never print",
    },
    Ban {
        tokens: &["from_le_bytes"],
        crates: ABOVE_LAYOUT,
        tests: Tests::Free,
        instead: "a structure of `layout`: bytes on media are spelled there alone",
    },
    Ban {
        tokens: &["to_le_bytes"],
        crates: ABOVE_LAYOUT,
        tests: Tests::Free,
        instead: "a structure of `layout`: bytes on media are spelled there alone",
    },
];

/// A ban that one file is free of.
pub(super) struct Exemption {
    pub(super) path: &'static str,
    pub(super) tokens: &'static [&'static str],
    /// Why; it must hold for every use in the file.
    #[expect(dead_code, reason = "read by people")]
    because: &'static str,
}

/// Places where a banned call is right.
pub(super) const EXEMPTIONS: &[Exemption] = &[Exemption {
    path: "crates/core/src/op/file_tx.rs",
    tokens: &["thread"],
    because: "it asks whether the calling thread unwinds, which no caller knows before",
}];

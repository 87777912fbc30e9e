//! The C interface: `novale.h`, `libnovale.so` and `libnovale.a`.
//!
//! Comes in: calls of C programs. Each checks its arguments ([`border::args`]), calls `novale-posix` once and
//! turns what comes back into a number ([`border::reply`]), where panics end too. The header is made of the
//! declarations here and of their comments, by `cargo xtask header`; a test fails where it differs.
//! Never here: what a Rust user would want, which belongs into `novale-posix`.
#![allow(
    unsafe_code,
    reason = "pointers of C programs are followed here, and nowhere else; see args.rs"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header says once, at its top, what holds for the pointers of all calls"
)]
#![allow(unreachable_pub, reason = "programs in C reach what no crate does")]
#![allow(clippy::doc_markdown, reason = "the comments are the header's, for readers of C")]

mod border;
mod calls;

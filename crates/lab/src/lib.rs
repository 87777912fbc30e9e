//! The lab: how we know that the product is right. Random sequences run on the product and on the
//! model side by side (`diff`), on a mount and on the machine's own file system (`mounted`), and
//! into power cuts at every store (`crash`). Nothing of it is linked into the product.
//!
//! A failed test prints its seed and a short sequence as text: `workload::parse_steps` replays it.

#![allow(clippy::must_use_candidate, reason = "what only looks does no harm where nobody uses it")]

/// A summary whose fields are added up.
macro_rules! sums {
    ($name:ident: $($field:ident)*) => {
        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

pub mod bugs;
pub mod campaign;
pub mod clients;
pub mod crash;
pub mod damage;
pub mod diff;
pub mod images;
pub mod mounted;
pub mod mutants;
pub mod pool_file;
pub mod refusals;
pub mod source;
pub mod watchdog;
pub mod workload;

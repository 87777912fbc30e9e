//! When the writes of a file become durable.

/// When writes become durable; names are those of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Before they return.
    #[default]
    Strict,
    /// With the file's next flush: by `fsync`, or by the write-back of what is old (`HiNFS`).
    Buffered,
}

/// A mode shares its byte with the number of an update policy, which is below this.
const UNIT: u8 = 1 << 6;

impl Mode {
    /// All of them, by number.
    pub const ALL: [Self; 2] = [Self::Strict, Self::Buffered];

    /// What a pool's byte has of it, beside the number of an update policy.
    #[must_use]
    pub const fn bits(self) -> u8 {
        (self as u8 + 1) * UNIT
    }

    /// The one that a byte names; none where it names none, or one that only a newer program knows.
    #[inline]
    #[must_use]
    pub fn of_bits(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(Self::number_of_bits(byte)).checked_sub(1)?).copied()
    }

    /// The number that a byte has for it, from 1 on, that of one that only a newer program knows included;
    /// 0: it says nothing of it.
    #[must_use]
    pub const fn number_of_bits(byte: u8) -> u8 {
        byte / UNIT
    }

    /// The byte without it: the number of an update policy.
    #[inline]
    #[must_use]
    pub const fn without(byte: u8) -> u8 {
        byte % UNIT
    }

    /// What the command line calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Buffered => "buffered",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UpdatePolicy;

    #[test]
    fn a_mode_and_a_policy_share_a_byte() {
        for policy in UpdatePolicy::ALL {
            assert_eq!(Mode::of_bits(policy.number()), None);
            for mode in Mode::ALL {
                let byte = policy.number() | mode.bits();
                assert_eq!(Mode::of_bits(byte), Some(mode));
                assert_eq!(UpdatePolicy::numbered(Mode::without(byte)), Some(policy));
                assert_eq!(Mode::named(mode.name()), Some(mode));
            }
        }
        assert_eq!(Mode::of_bits(UNIT * 3), None);
    }
}

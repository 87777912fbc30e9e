//! Which mounts a pool's clients serve, said in the arena.
//!
//! A mount's device number is the kernel's word for it, and no other's as long as the mount is there.
//! A client that serves one says so in its slot of the arena, which is its user's alone. A client that
//! comes by a mount to a pool finds there whether the two belong together: what the mount table shows of
//! a mount's source is the word of the user who mounted.

use novale_arena::{Arena, ClientInfo};

use crate::fs::Fs;
use crate::life::attach::has_left;

/// A word in which nothing is set is no mount's.
const IS_MOUNT: u64 = 1 << 63;
const WORDS_SHIFT: u32 = 32;
/// Bits of a minor device number in the kernel.
const MINOR_BITS: u32 = 20;

/// A mount that a client serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The mount's device number, major and minor; zeroes before it has one.
    pub device: (u32, u32),
    /// What the client says of the mount, in bits of its own meaning.
    pub words: u16,
}

impl Served {
    fn to_word(self) -> u64 {
        let (major, minor) = self.device;
        let number = u64::from(major) << MINOR_BITS | u64::from(minor);
        IS_MOUNT | u64::from(self.words) << WORDS_SHIFT | number & u64::from(u32::MAX)
    }

    fn from_word(word: u64) -> Option<Self> {
        let number = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        let words = u16::try_from(word >> WORDS_SHIFT & u64::from(u16::MAX)).ok()?;
        let device = (number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1));
        (word & IS_MOUNT != 0).then_some(Self { device, words })
    }
}

/// The mounts that clients in `arena` serve, or have served who died.
pub fn mounts_served(arena: &Arena) -> impl Iterator<Item = (ClientInfo, Served)> + '_ {
    let there = arena.clients().filter(|client| !has_left(arena, *client));
    there.filter_map(|client| Some((client, Served::from_word(arena.serves(&client))?)))
}

/// The mount with a device number, if a client in `arena` that lives serves it.
#[must_use]
pub fn mount_served(arena: &Arena, device: (u32, u32)) -> Option<Served> {
    let mut all = mounts_served(arena);
    let lives = |(client, served): &(ClientInfo, Served)| {
        served.device == device && !arena.is_dead_client(client)
    };
    all.find(lives).map(|(_, served)| served)
}

impl Fs {
    /// Says that this client serves a mount, or none any more.
    pub fn set_served(&self, mount: Option<Served>) {
        self.client.set_serves(mount.map_or(0, Served::to_word));
    }

    /// Whether a client that lives serves the mount with a device number: that of one who died may be
    /// another mount's by now.
    #[must_use]
    pub fn serves_mount(&self, device: (u32, u32)) -> bool {
        mount_served(self.arena(), device).is_some()
    }

    /// The processes that live and use the pool without a mount of their own, this one not among them.
    #[must_use]
    pub fn programs(&self) -> Vec<u32> {
        self.others(false)
    }

    /// The processes that live and serve a mount of the pool, this one not among them.
    #[must_use]
    pub fn other_servers(&self) -> Vec<u32> {
        self.others(true)
    }

    /// The other clients that live, and serve a mount or none.
    fn others(&self, serve: bool) -> Vec<u32> {
        let arena = self.arena();
        let clients = arena.clients().filter(|client| !has_left(arena, *client));
        let such =
            clients.filter(|client| Served::from_word(arena.serves(client)).is_some() == serve);
        let others = such.filter(|client| *client != self.client.info());
        others.filter(|client| !arena.is_dead_client(client)).map(|one| one.process.pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Served;

    #[test]
    fn a_word_says_which_mount_and_what_of_it() {
        for device in [(0, 0), (0, 53), (8, 1), (0xfff, 0xf_ffff)] {
            for words in [0, 5, u16::MAX] {
                let served = Served { device, words };
                assert_eq!(Served::from_word(served.to_word()), Some(served));
            }
        }
        assert_eq!(Served::from_word(0), None);
    }
}

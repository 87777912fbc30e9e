//! `HiNFS`' figure 4 as its paper counts it: by blocks, from the calls of a trace alone.
//!
//! At a sync each block of the file that was written since the one before satisfies the paper's inequality
//! (1) or does not. The model was right where the block's last sync said the same. Our own model judges a
//! file as a whole, and counts commits: what it foretold is counted by `novale-core`.

use std::collections::HashMap;

use crate::trace::Call;

/// A block, and a line, in bytes.
const BLOCK: u64 = 4096;
const LINE: u64 = 64;
/// A line that is written to DRAM, ns (the paper's `Ldram`).
const DRAM_LINE_NS: u64 = 5;

/// Syncs of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ByBlocks {
    /// Those of a block that was synced before.
    pub(crate) later: u64,
    /// Of those, where both said the same.
    pub(crate) right: u64,
}

/// What is known of a block.
#[derive(Default)]
struct Block {
    /// Lines written since the last sync (`Ncw`), and a bit for each line that a flush has to store.
    written: u64,
    mask: u64,
    /// What the last sync said.
    is_eager: Option<bool>,
}

/// A file that is open, or was.
#[derive(Default)]
struct File {
    blocks: HashMap<u64, Block>,
    len: u64,
    /// The descriptor's own position.
    at: u64,
}

/// Counts them, where a line takes so long to be written to the memory (`Lnvmm`).
pub(crate) fn by_blocks(calls: &[Call], line_ns: u64) -> ByBlocks {
    let mut files: HashMap<u32, File> = HashMap::new();
    let mut sum = ByBlocks::default();
    for call in calls {
        match *call {
            Call::Open { fd, makes } => {
                files.remove(&fd);
                if makes {
                    files.insert(fd, File::default());
                }
            }
            Call::Close { fd } | Call::Remove { fd } => drop(files.remove(&fd)),
            Call::Read { fd, at: None, len } => {
                let Some(file) = files.get_mut(&fd) else { continue };
                file.at += len.min(file.len.saturating_sub(file.at));
            }
            Call::Write { fd, at, len } => {
                let Some(file) = files.get_mut(&fd) else { continue };
                file.write(at, len);
            }
            Call::Sync { fd } => {
                let Some(file) = files.get_mut(&fd) else { continue };
                file.blocks.values_mut().for_each(|block| block.sync(line_ns, &mut sum));
            }
            Call::Read { .. } | Call::Attributes { .. } | Call::Nothing => {}
        }
    }
    sum
}

impl File {
    fn write(&mut self, at: Option<u64>, len: u64) {
        let from = at.unwrap_or(self.at);
        let end = from + len;
        if at.is_none() {
            self.at = end;
        }
        self.len = self.len.max(end);
        let lines = from / LINE..end.div_ceil(LINE);
        for line in lines.take_while(|_| len > 0) {
            let block = self.blocks.entry(line * LINE / BLOCK).or_default();
            block.written += 1;
            block.mask |= 1 << (line % (BLOCK / LINE));
        }
    }
}

impl Block {
    fn sync(&mut self, line_ns: u64, sum: &mut ByBlocks) {
        if self.written == 0 {
            return;
        }
        let flushed = u64::from(self.mask.count_ones());
        let buffered_ns = self.written * DRAM_LINE_NS + flushed * line_ns;
        let is_eager = buffered_ns >= self.written * line_ns;
        if let Some(said) = self.is_eager.replace(is_eager) {
            sum.later += 1;
            sum.right += u64::from(said == is_eager);
        }
        (self.written, self.mask) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_right_where_its_last_sync_said_the_same() {
        let write = |at, len| Call::Write { fd: 1, at: Some(at), len };
        let sync = Call::Sync { fd: 1 };
        let calls = [
            Call::Open { fd: 1, makes: true },
            // Both blocks once: eager.
            write(0, 8192),
            sync,
            // Again, one of them alone; the other one is not asked.
            write(0, 4096),
            sync,
            // Twice: lazy.
            write(0, 4096),
            write(0, 4096),
            sync,
            // Nothing was written.
            sync,
            write(4096, 1),
            sync,
        ];
        assert_eq!(by_blocks(&calls, 200), ByBlocks { later: 3, right: 2 });
        // Of another file nothing is known.
        let two = [&calls[..], &calls[..]].concat();
        assert_eq!(by_blocks(&two, 200), ByBlocks { later: 6, right: 4 });
    }

    #[test]
    fn a_descriptor_has_a_position_of_its_own() {
        let calls = [
            Call::Open { fd: 1, makes: true },
            Call::Write { fd: 1, at: None, len: 4096 },
            Call::Write { fd: 1, at: Some(4096), len: 100 },
            Call::Sync { fd: 1 },
            // From byte 4,096 to the end of the file.
            Call::Read { fd: 1, at: None, len: 4096 },
            Call::Write { fd: 1, at: None, len: 4096 - 100 },
            Call::Sync { fd: 1 },
        ];
        // The second block in two lines, then in 63: each once.
        assert_eq!(by_blocks(&calls, 200), ByBlocks { later: 1, right: 1 });
    }
}

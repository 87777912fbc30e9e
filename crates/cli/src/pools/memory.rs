//! What a pool's memory survives, in words: a pool in plain memory behaves like one that survives power
//! cuts, until the first of them.

use std::path::{Path, PathBuf};

use novale_pm::SlotMemory;

/// A slot's memory in a word, as JSON has it too.
pub(crate) fn word(memory: SlotMemory) -> &'static str {
    match memory {
        SlotMemory::DaxFile => "dax-file",
        SlotMemory::DaxDevice => "dax-device",
        SlotMemory::VirtioPmem => "virtio-pmem",
        SlotMemory::SetAside => "set-aside",
        SlotMemory::Tmpfs => "tmpfs",
        SlotMemory::Ramfs => "ramfs",
        SlotMemory::Hugetlbfs => "hugetlbfs",
        SlotMemory::PageCache => "page-cache",
        SlotMemory::Private => "private",
    }
}

/// What the pool survives.
pub(crate) fn survives(slots: &[SlotMemory]) -> &'static str {
    match weakest(slots) {
        None => "killed programs and power cuts",
        Some((_, SlotMemory::PageCache)) => {
            "killed programs; of a power cut or a crash of the machine only what the kernel had written"
        }
        Some((_, SlotMemory::VirtioPmem)) => {
            "killed programs and crashes of this machine; of its host's only what the host had written"
        }
        Some((_, SlotMemory::SetAside)) => {
            "killed programs and restarts that leave memory alone (kexec), not a power cut"
        }
        Some(_) => "killed programs, not a power cut or a restart of the machine",
    }
}

/// The slot of which least is promised, if one does not survive power cuts.
fn weakest(slots: &[SlotMemory]) -> Option<(usize, SlotMemory)> {
    let weak =
        slots.iter().copied().enumerate().filter(|(_, memory)| !memory.survives_power_cuts());
    let stronger = [SlotMemory::SetAside, SlotMemory::PageCache, SlotMemory::VirtioPmem];
    weak.min_by_key(|(_, memory)| stronger.iter().position(|known| known == memory))
}

/// Says at mkfs and mount that the pool does not survive power cuts, if so.
pub(crate) fn warn(paths: &[PathBuf], slots: &[SlotMemory]) {
    let Some((index, memory)) = weakest(slots) else { return };
    let shown = paths.get(index).map_or(Path::new("").display(), |path| path.display());
    let what = if memory == SlotMemory::PageCache {
        "is an ordinary file, in the kernel's page cache".to_owned()
    } else if memory == SlotMemory::VirtioPmem {
        "is in memory of this machine's host (virtio-pmem)".to_owned()
    } else {
        format!("is in plain memory ({})", word(memory))
    };
    remark!(
        "novale: {shown} {what}: the pool survives {} (--quiet leaves this out)",
        survives(slots)
    );
}

#[cfg(test)]
mod tests {
    use novale_pm::SlotMemory::{DaxDevice, DaxFile, PageCache, SetAside, Tmpfs, VirtioPmem};

    use super::{survives, weakest};

    #[test]
    fn a_pool_survives_what_its_weakest_slot_does() {
        assert_eq!(weakest(&[DaxFile, DaxDevice]), None);
        assert_eq!(weakest(&[DaxFile, PageCache, Tmpfs]), Some((2, Tmpfs)));
        assert_eq!(weakest(&[PageCache, DaxFile]), Some((0, PageCache)));
        assert_eq!(weakest(&[SetAside, Tmpfs]), Some((1, Tmpfs)));
        assert_eq!(weakest(&[Tmpfs, VirtioPmem]), Some((0, Tmpfs)));
        assert_eq!(weakest(&[VirtioPmem, PageCache]), Some((1, PageCache)));
        assert!(survives(&[DaxDevice, SetAside]).contains("not a power cut"));
        assert!(survives(&[DaxDevice, VirtioPmem]).contains("of its host's only"));
        assert!(survives(&[DaxFile]).contains("and power cuts"));
        assert!(survives(&[Tmpfs, PageCache]).contains("not a power cut"));
    }
}

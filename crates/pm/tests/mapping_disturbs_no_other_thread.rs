//! Opening a slot takes no memory of another thread. A file system without DAX refused `MAP_SYNC`
//! only after the fixed mapping had replaced the range reserved for it; what another thread mapped
//! into the hole was then unmapped with it, and the process died of it now and then.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use novale_pm::{Pm, PmOptions, SlotSpec};

const LEN: u64 = 4 << 20;

#[test]
fn while_others_map_and_unmap() {
    // On the machine's own file system, where the temporary directory usually is: not a tmpfs.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slot");
    File::create(&path).unwrap().set_len(LEN).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Large enough that the allocator maps it afresh.
                    let mut memory = vec![1_u8; usize::try_from(LEN).unwrap()];
                    for byte in memory.iter_mut().step_by(4096) {
                        *byte += 1;
                    }
                    assert!(memory.iter().step_by(4096).all(|byte| *byte == 2));
                }
            });
        }
        for _ in 0..400 {
            drop(Pm::open(&[SlotSpec::new(&path)], &PmOptions::default()).unwrap());
        }
        done.store(true, Ordering::Relaxed);
    });
}

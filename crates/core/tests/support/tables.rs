//! Tables of inodes, put elsewhere.

use novale_layout::{PAGE, PmAddr, Roots};
use novale_pm::{Pm, Purpose};

/// Puts the table of a chunk of inodes into slot 1, near its end, where nothing lies.
pub(crate) fn move_table(pm: &Pm, chunk: u64) {
    let load = |at| PmAddr::from_raw(pm.load_u64(at).unwrap());
    let word = load(Roots::fixed().inode_directory).add(chunk * 8);
    let (mut bytes, to) = ([0; 4096], PmAddr::new(1, pm.slot_len(1) - 9 * PAGE));
    pm.load(load(word), &mut bytes).unwrap();
    assert!(bytes.iter().any(|byte| *byte != 0));
    pm.fence(pm.stream(to, &bytes, Purpose::Inode)).end();
    pm.fence(pm.write_back(pm.store_u64(word, to.raw(), Purpose::Inode))).end();
}

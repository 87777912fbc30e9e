//! The promise: of a slot that others have and this process can't map, nothing is loaded, and what is stored goes
//! nowhere and counts as lost; the other slots are what they were.

#![allow(clippy::unwrap_used, reason = "a test stops at what fails")]

use novale_layout::PmAddr;
use novale_pm::{Pm, PmOptions, Purpose};

#[test]
fn what_is_stored_there_is_lost() {
    let pm = Pm::anonymous(&[1 << 20], &PmOptions::default()).unwrap();
    let [there, lacking] = [0, 1].map(|slot| PmAddr::new(slot, 4096));
    assert!(!pm.may_hold(lacking, 64));
    pm.lack(0b10);
    let before = pm.health();
    assert_eq!((before.failed, pm.lacking(), pm.slot_count()), (0, 0b10, 1));
    assert!(pm.may_hold(lacking, 64) && !pm.contains(lacking, 64));
    assert!(pm.load_line(lacking).unwrap_err().is_lost);
    pm.fence(pm.stream(there, &[7; 100], Purpose::Data)).end();
    assert_eq!(pm.health(), before);
    let stores: [&dyn Fn(); 5] = [
        &|| pm.fence(pm.write_back(pm.store_u64(lacking, 7, Purpose::Data))).end(),
        &|| pm.fence(pm.write_back(pm.store_line(lacking, &[7; 64], Purpose::Data))).end(),
        &|| pm.fence(pm.stream(lacking, &[7; 9000], Purpose::Data)).end(),
        &|| pm.fence(pm.stream_zero(lacking, 9000, Purpose::Data)).end(),
        &|| pm.fence(pm.write_back_range(lacking, 64, Purpose::Data)).end(),
    ];
    for store in stores {
        let before = pm.health();
        store();
        assert_ne!(pm.health(), before);
    }
    assert!(pm.stream_copy(there, lacking, 64, Purpose::Data).is_err());
    let new = Pm::anonymous(&[1 << 20], &PmOptions::default()).unwrap();
    assert_eq!(pm.adopt(new), None, "none comes behind it");
    let mut found = [0; 100];
    pm.load(there, &mut found).unwrap();
    assert_eq!(found, [7; 100]);
}

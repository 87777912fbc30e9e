//! A word of the lane table that names a page of a file: the file keeps its bytes, also where a repair is cut off.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use novale_core::*;
use novale_layout::*;
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreEvent};

use crate::pools::*;

/// What the file has in the page.
const TEXT: u8 = b't';
const LANE_TABLE: PmAddr = PmAddr::new(0, LANE_TABLE_PAGE * PAGE);

/// Ends a repair at one of its fences.
struct CutAt(AtomicU64);

impl Observer for CutAt {
    fn store(&self, _: StoreEvent<'_>) {}
    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}
    fn fence(&self, _: &'static Location<'static>) {
        assert!(self.0.fetch_sub(1, Ordering::SeqCst) > 1, "cut off");
    }
}

/// A pool whose only lane has the page of a file, too.
fn shared() -> Pm {
    let fs = try_open(pool()).unwrap();
    fs.write(&ctx(), FILE, 0, &[TEXT; 4096]).unwrap();
    fs.close().unwrap();
    let pm = fs.into_pm();
    let all = bytes(&pm);
    let page = all.chunks(4096).position(|page| *page == [TEXT; 4096]).unwrap();
    let word = PmAddr::new(0, u64::try_from(page).unwrap() * PAGE);
    put(&pm, LANE_TABLE, &word.raw().to_le_bytes());
    pm
}

/// A copy of a pool, of which somebody sees each store.
fn copied(from: &Pm, observer: Option<Arc<dyn Observer>>) -> Pm {
    let options = PmOptions { observer, ..PmOptions::default() };
    let copy = Pm::anonymous(&[from.slot_len(0)], &options).unwrap();
    put(&copy, PmAddr::new(0, 0), &bytes(from));
    copy
}

#[test]
fn repairs_that_are_cut_off_keep_the_file() {
    for is_clean in [true, false] {
        let pm = shared();
        if !is_clean {
            mark_unclean(&pm);
        }
        for fence in 1.. {
            let cut_at = Arc::new(CutAt(u64::MAX.into()));
            let cut = copied(&pm, Some(cut_at.clone()));
            cut_at.0.store(fence, Ordering::SeqCst);
            let ran = catch_unwind(AssertUnwindSafe(|| repaired(&cut, repair::Effort::Safe)));
            let left = copied(&cut, None);
            let report = repaired(&left, repair::Effort::Safe).unwrap();
            assert_eq!(report.left.findings, [], "{report:?}");
            let fs = try_open(left).unwrap();
            let mut found = [0; 4096];
            fs.read(&ctx(), FILE, 0, &mut found).unwrap();
            assert_eq!(found, [TEXT; 4096], "clean: {is_clean}, cut at fence {fence}");
            if ran.is_ok() {
                assert!(fence > 3, "nothing to cut off");
                break;
            }
        }
    }
}

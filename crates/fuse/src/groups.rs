//! What a caller is besides user and group, which is all that the kernel hands over: its other groups, and
//! whether it may keep set-id bits alive.

use std::fs;

use crate::service::Caller;

const CAP_FSETID: u64 = 1 << 4;

/// Whether a caller is in a group, or may act as if it were. A caller that has ended meanwhile is in
/// its first group alone.
pub(crate) fn has(caller: Caller, gid: u32) -> bool {
    caller.gid == gid || has_fsetid(caller) || has_other(caller.pid, gid)
}

fn has_other(pid: u32, gid: u32) -> bool {
    let groups = shown(pid, "Groups:");
    groups.is_some_and(|groups| groups.split_whitespace().any(|group| group.parse() == Ok(gid)))
}

/// Whether a caller has the right to keep set-id bits alive (`CAP_FSETID`): user 0, unless it is seen to have
/// given that up. Of other users it is not asked: whom the kernel acts for, as an NFS server does, may have
/// less than the thread that is seen.
pub(crate) fn has_fsetid(caller: Caller) -> bool {
    let has =
        |set: String| u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & CAP_FSETID != 0);
    caller.uid == 0 && shown(caller.pid, "CapEff:").is_none_or(has)
}

/// What the kernel shows of a thread; `None` of one that has ended, or is in another pid namespace.
fn shown(pid: u32, what: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(what)).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_other_groups_count_as_well() {
        let own = rustix::process::getgroups().unwrap();
        let caller = |gid| Caller { uid: 1, gid, pid: std::process::id() };
        let absent = (1..1000).find(|gid| !own.iter().any(|own| own.as_raw() == *gid)).unwrap();
        assert!(own.iter().all(|group| has(caller(absent), group.as_raw())));
        assert!(!has(caller(0), absent));
        assert!(has(caller(absent), absent));
        assert!(has(Caller { uid: 0, gid: 0, pid: 0 }, absent));
    }
}

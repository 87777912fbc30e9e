//! Which groups a caller is in: the kernel hands over one of them only.

use std::fs;

use crate::service::Caller;

/// Whether a caller is in a group, or may act as if it were. A caller that has ended meanwhile is in
/// its first group alone.
pub(crate) fn has(caller: Caller, gid: u32) -> bool {
    caller.uid == 0 || caller.gid == gid || has_other(caller.pid, gid)
}

fn has_other(pid: u32, gid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    groups.is_some_and(|groups| groups.split_whitespace().any(|group| group.parse() == Ok(gid)))
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

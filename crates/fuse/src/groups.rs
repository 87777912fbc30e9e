//! What a caller is besides user and group, which is all that the kernel hands over: its other groups, and
//! two of its capabilities.

use std::fs;

use crate::service::Caller;

/// May do what owners may.
pub(crate) const CAP_FOWNER: u64 = 1 << 3;
/// May keep set-id bits alive.
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
/// given that up, and others who are seen to have it.
pub(crate) fn has_fsetid(caller: Caller) -> bool {
    capable(caller, CAP_FSETID).unwrap_or(caller.uid == 0)
}

/// Whether a caller is seen to have a capability; none where its thread is not seen, or does not ask for itself, as
/// one of an NFS server that acts for a user.
pub(crate) fn capable(caller: Caller, capability: u64) -> Option<bool> {
    let users = shown(caller.pid, "Uid:")?;
    let user = users.split_whitespace().nth(3)?;
    if user.parse() != Ok(caller.uid) {
        return None;
    }
    // In a user namespace of its own everybody has all, of what is his there.
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/user")).ok();
    if namespace(&caller.pid.to_string())? != namespace("self")? {
        return Some(false);
    }
    let all = u64::from_str_radix(shown(caller.pid, "CapEff:")?.trim(), 16).ok()?;
    Some(all & capability != 0)
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
    fn capabilities_are_those_of_a_thread_that_asks_for_itself() {
        let own =
            Caller { uid: rustix::process::geteuid().as_raw(), gid: 1, pid: std::process::id() };
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let all = u64::from_str_radix(line.trim(), 16).unwrap();
        assert_eq!(capable(own, CAP_FOWNER), Some(all & CAP_FOWNER != 0));
        assert_eq!(capable(Caller { uid: own.uid + 1, ..own }, CAP_FOWNER), None);
        assert_eq!(capable(Caller { pid: 0, ..own }, CAP_FOWNER), None);
    }

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

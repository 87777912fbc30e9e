//! What tests of every operation have in common, and shares of long ones.
#![allow(dead_code, reason = "each test takes what it needs")]

use novale_lab::workload::{Step, parse_steps};

pub(crate) const FILE: &str = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
const DIR: &str = "kind=directory mode=755 uid=0 gid=0 rdev=0 target=%";

/// A tree, and every operation, with something there for it to work on.
pub(crate) fn cases() -> (Vec<Step>, Vec<Step>) {
    let setup = format!(
        "create /d {DIR}\ncreate /d/e {DIR}\ncreate /g {DIR}\ncreate /f {FILE}\ncreate /d/f {FILE}\n\
         create /g/f {FILE}\nwrite /f offset=0 len=20000 fill=1\nwrite /d/f offset=4000 len=300 fill=2\n\
         link /f /d/l\nsetxattr /f name=user.long mode=any len=6000 fill=4\n\
         setxattr /g name=system.posix_acl_default mode=any acl=u:7,u5:6,g:5,m:7,o:0\ncreate /gone {FILE}\nappend /gone len=9000 fill=3\nunlink /gone\n"
    );
    let victims = [
        format!("create /new {FILE}"),
        format!("unnamed /g slot=1 {FILE}"),
        "scatter /f offset=100 len=5000 fill=7 count=3 apart=9000".to_owned(),
        "map /f slot=1".to_owned(),
        format!("create /d/new {DIR}"),
        "create /link kind=symlink mode=777 uid=0 gid=0 rdev=0 target=some/where".to_owned(),
        "write /f offset=4096 len=4096 fill=7".to_owned(),
        "write /f offset=100 len=64 fill=7".to_owned(),
        "write /f offset=30000 len=64 fill=7".to_owned(),
        "write /f offset=1000 len=18000 fill=7".to_owned(),
        "append /d/f len=12 fill=7".to_owned(),
        "append /d/f len=70000 fill=7".to_owned(),
        "set /f size=5000".to_owned(),
        "set /f size=50000".to_owned(),
        "set /f mode=600".to_owned(),
        "allocate /f extend=1 offset=8192 len=40000".to_owned(),
        "punch /f offset=100 len=300".to_owned(),
        "punch /f offset=4000 len=9000".to_owned(),
        "zero /f offset=9000 len=20000".to_owned(),
        "collapse /f offset=4096 len=8192".to_owned(),
        "insert /f offset=8192 len=4096".to_owned(),
        "copy /f /d/f from=100 to=5000 len=9000".to_owned(),
        "copy /f /f from=0 to=12000 len=6000".to_owned(),
        "link /f /g/l".to_owned(),
        "setxattr /f name=user.a mode=any len=10 fill=7".to_owned(),
        "setxattr /f name=user.long mode=any len=20000 fill=7".to_owned(),
        "removexattr /f name=user.long".to_owned(),
        "setxattr /d/f name=system.posix_acl_access mode=any acl=u:6,u5:7,g:4,m:5,o:4".to_owned(),
        format!("create /g/heir {DIR}"),
        "unlink /d/l".to_owned(),
        "unlink /d/f".to_owned(),
        "rmdir /d/e".to_owned(),
        "rename /f /new mode=replace".to_owned(),
        "rename /f /d/f mode=replace".to_owned(),
        "rename /d/e /g/e mode=replace".to_owned(),
        "rename /d /g/f mode=exchange".to_owned(),
    ];
    let steps = |text: &str| parse_steps(text).unwrap();
    (steps(&setup), share(steps(&victims.join("\n"))))
}

/// Of how many points one is tried: of so many, or of each where `NOVALE_LAB_EACH` is set.
pub(crate) fn one_in(points: usize) -> usize {
    if std::env::var_os("NOVALE_LAB_EACH").is_some() { 1 } else { points }
}

/// Whether only a share of the operations is tried.
pub(crate) fn is_share() -> bool {
    std::env::var_os("NOVALE_LAB_SHARE").is_some()
}

/// What is of a share, `NOVALE_LAB_SHARE=2/12`: every twelfth from the third on; else all.
pub(crate) fn share<T>(all: Vec<T>) -> Vec<T> {
    let Ok(text) = std::env::var("NOVALE_LAB_SHARE") else { return all };
    let (first, of) = text.split_once('/').unwrap();
    all.into_iter().skip(first.parse().unwrap()).step_by(of.parse().unwrap()).collect()
}

//! Damage of extended attributes: what it hits is told with structure and place.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::pools::*;

const LONG: &[u8] = b"user.long";
const ACL: &[u8] = b"system.posix_acl_access";

/// A pool closed clean whose file has attributes: a chain of two pages, and a value in three.
pub(crate) fn with_attributes() -> Pm {
    let fs = try_open(pool()).unwrap();
    let set = |name: &[u8], value: &[u8]| {
        fs.setxattr(&ctx(), Node::current(FILE), &SetXattr { name, value, ..SetXattr::default() })
            .unwrap();
    };
    for index in 0..5 {
        set(format!("user.{index}").as_bytes(), &[index; 1000]);
    }
    set(LONG, &[7; 9000]);
    fs.close().unwrap();
    fs.into_pm()
}

pub(crate) fn root(pm: &Pm) -> PmAddr {
    root_of(pm, FILE)
}

fn root_of(pm: &Pm, ino: Ino) -> PmAddr {
    let (_, line) = newest(pm, ino);
    let bytes = pm.load_line(line.log_tail).unwrap();
    let (_, entry) = Entry::decode(&bytes, seed().ino(ino).generation(1)).unwrap();
    let Entry::Attributes(attributes) = entry else { panic!("{entry:?}") };
    attributes.xattr_root
}

fn seed_at(page: PmAddr) -> Seed {
    seed().ino(FILE).generation(1).addr(page)
}

fn header(pm: &Pm, page: PmAddr) -> XattrPageHeader {
    XattrPageHeader::decode(&pm.load_line(page).unwrap(), seed_at(page)).unwrap()
}

/// Stores a page of the chain again, changed, with its checksums right.
fn change(pm: &Pm, page: PmAddr, change: impl Fn(&mut XattrPageHeader, &mut Vec<u8>)) {
    let mut header = header(pm, page);
    let mut payload = vec![0; header.payload_bytes as usize];
    pm.load(page.add(XATTR_PAYLOAD_OFFSET), &mut payload).unwrap();
    change(&mut header, &mut payload);
    let mut crc = Crc32c::new();
    crc.update(&payload);
    header.payload_crc = crc.finish();
    header.payload_bytes = u32::try_from(payload.len()).unwrap();
    put(pm, page, &header.encode(seed_at(page)));
    put(pm, page.add(XATTR_PAYLOAD_OFFSET), &payload);
}

/// The records of the chain, as they are once changed, in its pages again.
fn change_records(pm: &Pm, change_one: impl Fn(&mut Vec<XattrRecord>)) {
    let (first, second) = (root(pm), header(pm, root(pm)).next);
    let mut payload = Vec::new();
    for page in [first, second] {
        let mut bytes = vec![0; header(pm, page).payload_bytes as usize];
        pm.load(page.add(XATTR_PAYLOAD_OFFSET), &mut bytes).unwrap();
        payload.extend(bytes);
    }
    let (mut records, mut rest) = (Vec::new(), &payload[..]);
    while !rest.is_empty() {
        let (record, behind) = XattrRecord::decode(rest).unwrap();
        records.push(record);
        rest = behind;
    }
    change_one(&mut records);
    let mut bytes = Vec::new();
    for record in &records {
        record.encode(&mut bytes);
    }
    let (front, behind) = bytes.split_at(XATTR_PAYLOAD_BYTES_MAX as usize);
    change(pm, first, |_, payload| *payload = front.to_vec());
    change(pm, second, |_, payload| *payload = behind.to_vec());
}

/// The inode with the damage is told, by check and by the caller; another is as it was. After a
/// crash nobody may write.
fn is_told(wound: impl Fn(&Pm), text: &str) {
    let damaged = || {
        let pm = with_attributes();
        wound(&pm);
        pm
    };
    let pm = damaged();
    let report = check(&pm, &Serial, &|_| {}).unwrap();
    let told = |what: &str| what.contains("inode 3 extended attributes") && what.contains(text);
    assert!(report.findings.iter().any(|finding| told(&finding.what)), "{text}: {report:?}");
    let fs = try_open(pm).unwrap();
    let error = fs.getxattr(Node::current(FILE), LONG).unwrap_err();
    assert!(told(&error.to_string()), "{text}: {error}");
    assert_eq!(fs.getattr(DIR).unwrap().kind, FileKind::Directory);
    let pm = damaged();
    mark_unclean(&pm);
    let refused = try_open(pm).unwrap_err();
    assert!(told(&refused.to_string()), "{text}: {refused}");
    let pm = damaged();
    mark_unclean(&pm);
    let fs = open_read_only(pm).unwrap();
    assert!(told(&fs.getxattr(Node::current(FILE), LONG).unwrap_err().to_string()));
    assert_eq!(fs.getattr(DIR).unwrap().kind, FileKind::Directory);
}

#[test]
fn of_the_pages_of_the_chain() {
    let second = |pm: &Pm| header(pm, root(pm)).next;
    is_told(|pm| put(pm, root(pm).add(12), &[1]), "checksum");
    is_told(|pm| put(pm, second(pm).add(100), &[1; 8]), "payload checksum");
    is_told(|pm| put(pm, second(pm), &[0; 64]), "blank");
    is_told(|pm| change(pm, root(pm), |header, _| header.next = root(pm)), "of another chain");
    is_told(|pm| change(pm, second(pm), |header, _| header.page_index = 0), "of another chain");
    is_told(|pm| change(pm, second(pm), |header, _| header.op_seq += 1), "of another chain");
    is_told(|pm| change(pm, root(pm), |_, payload| payload.truncate(4000)), "not full");
    is_told(
        |pm| change(pm, root(pm), |header, _| header.next = PmAddr::new(0, 1 << 40)),
        "not in the pool",
    );
    is_told(
        |pm| change(pm, second(pm), |_, payload| payload.truncate(payload.len() - 1)),
        "no more than the payload holds",
    );
    let both = |pm: &Pm, edit: &dyn Fn(&mut XattrPageHeader)| {
        for page in [second(pm), root(pm)] {
            change(pm, page, |header, _| edit(header));
        }
    };
    is_told(|pm| both(pm, &|header| header.pages += 1), "5 pages and summary 0x0");
    is_told(
        |pm| both(pm, &|header| header.summary = XattrPageHeader::HAS_ACL_ACCESS),
        "the header says 5 and 0x2",
    );
}

#[test]
fn of_records() {
    is_told(|pm| change_records(pm, |records| records.swap(0, 1)), "not behind the one before");
    is_told(
        |pm| change_records(pm, |records| records[1].name = records[0].name.clone()),
        "not behind the one before",
    );
    is_told(
        |pm| {
            change_records(pm, |records| {
                let XattrValue::Paged { extents, .. } = &mut records[5].value else { panic!() };
                extents[0].addr = PmAddr::new(0, 16 * MB - PAGE);
            });
        },
        "not in the pool",
    );
}

/// What the pages of a value hold is read by check and by the call that asks for it, and by no other.
#[test]
fn of_a_value() {
    let pm = with_attributes();
    change_records(&pm, |records| {
        let XattrValue::Paged { extents, .. } = &records[5].value else { panic!() };
        put(&pm, extents[0].addr.add(5), &[1]);
    });
    let report = check(&pm, &Serial, &|_| {}).unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].what.contains("inode 3 extended attributes"), "{report:?}");
    mark_unclean(&pm);
    let fs = try_open(pm).unwrap();
    assert!(
        fs.getxattr(Node::current(FILE), LONG).unwrap_err().to_string().contains("value checksum")
    );
    assert_eq!(fs.getxattr(Node::current(FILE), b"user.1").unwrap(), [1; 1000]);
    assert_eq!(fs.getattr(FILE).unwrap().size, 5000);
}

/// No name of a pool was shown by whose root's attributes the header of a page was damaged, and nothing of a
/// file, though all of that was whole. In a pool that is written to they are refused as a whole: what is
/// stored of them would lack the attributes.
#[test]
fn keeps_nothing_but_them_from_being_read() {
    for (ino, unclean) in [(Ino::ROOT, false), (Ino::ROOT, true), (FILE, false), (FILE, true)] {
        let fs = try_open(pool()).unwrap();
        let set = SetXattr { name: LONG, value: &[7; 9000], ..SetXattr::default() };
        fs.setxattr(&ctx(), Node::current(ino), &set).unwrap();
        fs.set_quota(&ctx(), 2, Usage { pages: 100, inodes: 0 }).unwrap();
        fs.close().unwrap();
        let wounded = || {
            let pm = empty_pool();
            put(&pm, PmAddr::new(0, 0), &bytes(fs.pm()));
            put(&pm, root_of(&pm, ino).add(12), &[1; 16]);
            if unclean {
                mark_unclean(&pm);
            }
            pm
        };
        let name = format!("inode {} extended attributes", ino.get());
        let refused = match try_open(wounded()) {
            Ok(fs) => fs.getattr(ino).map(drop),
            Err(error) => Err(error),
        };
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(&name), "{said}");
        let shown = open_read_only(wounded()).unwrap();
        let node = Node::current(ino);
        let asked = [shown.getxattr(node, LONG), shown.getxattr(node, ACL), shown.listxattr(node)];
        for asked in asked {
            let said = asked.unwrap_err().to_string();
            assert!(said.contains(&name), "{said}");
        }
        assert_eq!(shown.lookup(&ctx(), Node::ROOT, b"f").unwrap().ino, FILE);
        assert_eq!(shown.lookup(&ctx(), Node::current(DIR), b"x").unwrap().kind, FileKind::File);
        let mut read = [0; 5000];
        assert_eq!(shown.read(&ctx(), FILE, 0, &mut read).unwrap(), 5000);
        assert_eq!(read, [1; 5000]);
        assert_eq!(shown.opened().damaged, u64::from(unclean));
    }
}

/// What is no list was shown as it lies there, where the kernel, which reads lists, shows none.
#[test]
fn of_a_list_that_is_none() {
    let pm = with_attributes();
    let (first, second) = (root(&pm), header(&pm, root(&pm)).next);
    change_records(&pm, |records| {
        let value = XattrValue::Inline(b"no list".to_vec());
        records.push(XattrRecord { namespace: XattrNamespace::AclAccess, name: vec![], value });
    });
    for page in [second, first] {
        change(&pm, page, |header, _| header.summary = XattrPageHeader::HAS_ACL_ACCESS);
    }
    let told =
        |what: &str| what.contains("inode 3 extended attributes") && what.contains("AclAccess");
    let report = check(&pm, &Serial, &|_| {}).unwrap();
    assert!(report.findings.len() == 1 && told(&report.findings[0].what), "{report:?}");
    let fs = try_open(pm).unwrap();
    let shown = fs.getxattr(Node::current(FILE), ACL).unwrap_err();
    assert!(told(&shown.to_string()), "{shown}");
    assert_eq!(fs.getxattr(Node::current(FILE), b"user.1").unwrap(), [1; 1000]);
    let set = |value| SetXattr { name: ACL, value, ..SetXattr::default() };
    assert!(matches!(
        fs.setxattr(&ctx(), Node::current(FILE), &set(b"no list")),
        Err(Error::Invalid(_))
    ));
    fs.removexattr(&ctx(), Node::current(FILE), ACL).unwrap();
    fs.close().unwrap();
    assert!(check(&fs.into_pm(), &Serial, &|_| {}).unwrap().findings.is_empty());
}

/// Pages that a file and another's attributes own together are nobody's to write to.
#[test]
fn of_pages_with_two_owners() {
    let pm = with_attributes();
    let dir_log = newest(&pm, DIR).1.log_head;
    change_records(&pm, |records| {
        let XattrValue::Paged { extents, .. } = &mut records[5].value else { panic!() };
        let count = extents.iter().map(|extent| extent.count).sum();
        *extents = vec![XattrExtent { addr: dir_log, count }];
    });
    let report = check(&pm, &Serial, &|_| {}).unwrap();
    assert!(report.findings.iter().any(|finding| finding.what.contains("another owner")));
    mark_unclean(&pm);
    assert!(matches!(try_open(pm), Err(Error::Unrecoverable { .. })));
}

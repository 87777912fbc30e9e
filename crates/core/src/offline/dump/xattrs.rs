//! An inode's extended attributes: the headers of their pages, and their names.

use std::collections::HashSet;

use novale_layout::{Ino, PmAddr, Structure, XATTR_CHAIN_PAGES_MAX, XattrPageHeader};

use crate::inode::media::MediaInode;
use crate::inode::state::LogId;
use crate::offline::dump::Dump;
use crate::offline::dump::names::ReplayedLog;
use crate::offline::dump::shown::Shown;
use crate::op::xattr_set::Xattrs;

/// The extended attributes of an inode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XattrsDump {
    /// The headers of the pages, along the chain.
    pub pages: Vec<Shown>,
    /// The names, with their prefixes.
    pub names: Vec<Vec<u8>>,
    /// Why they are refused; none where they validate.
    pub refused: Option<String>,
}

impl Dump<'_> {
    pub(super) fn xattrs(&self, ino: Ino, media: &MediaInode, replay: &ReplayedLog) -> XattrsDump {
        let mut dump = XattrsDump::default();
        let Ok(identity) = &media.identity else { return dump };
        let root = replay.xattr_root.unwrap_or(identity.xattr_root);
        let id = LogId::new(self.seed, ino, identity.generation);
        let (mut page, mut seen) = (root, HashSet::new());
        while !page.is_null() && seen.len() < XATTR_CHAIN_PAGES_MAX as usize && seen.insert(page) {
            let seeded = id.seed.addr(page);
            let decode = |line: &[u8; 64]| XattrPageHeader::decode(line, seeded);
            let (shown, header) = self.line(Structure::XattrPage, page, decode);
            dump.pages.push(shown);
            page = header.map_or(PmAddr::NULL, |header| header.next);
        }
        match Xattrs::read(self.pm, &id, root) {
            Ok(xattrs) => {
                let names = xattrs.names();
                let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
                dump.names = names.map(<[u8]>::to_vec).collect();
                dump.refused = xattrs.check_values(self.pm, &id).err().map(|why| why.to_string());
            }
            Err(error) => dump.refused = Some(error.to_string()),
        }
        dump
    }
}

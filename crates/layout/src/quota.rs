//! The limits of directory trees: the value of an attribute of the root directory.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::LayoutError;
use crate::error::check;

const QUOTA: &str = "quota";

raw! {
    struct RawQuota, "Quota", 24 {
        0 project: U32,
        4 pad: [u8; 4],
        8 pages_max: U64,
        16 inodes_max: U64,
    }
}

/// Bytes of a quota.
pub const QUOTA_BYTES: usize = size_of::<RawQuota>();

/// What a directory tree may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaLimit {
    /// The tree, by the `project` of its inodes; not 0.
    pub project: u32,
    /// Pages, 0: any number.
    pub pages_max: u64,
    /// Inodes, 0: any number.
    pub inodes_max: u64,
}

impl QuotaLimit {
    /// The bytes to store of all quotas, which rise by project.
    #[must_use]
    pub fn encode_all(limits: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(limits.len() * QUOTA_BYTES);
        for limit in limits {
            let raw = RawQuota {
                project: limit.project.into(),
                pad: [0; 4],
                pages_max: limit.pages_max.into(),
                inodes_max: limit.inodes_max.into(),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        bytes
    }

    /// The quotas that were stored.
    ///
    /// # Errors
    /// [`LayoutError::Field`] for a length that is not that of whole quotas, a project of 0, and
    /// projects that do not rise.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, LayoutError> {
        let len = bytes.len() as u64;
        check(bytes.len().is_multiple_of(QUOTA_BYTES), QUOTA, "length", "whole quotas", len)?;
        let mut limits: Vec<Self> = Vec::new();
        for chunk in bytes.chunks_exact(QUOTA_BYTES) {
            let Ok(raw) = RawQuota::read_from_bytes(chunk) else { break };
            let project = raw.project.get();
            let rises = limits.last().map_or(0, |last| last.project) < project;
            check(rises, QUOTA, "project", "projects that rise from 1", project.into())?;
            let (pages_max, inodes_max) = (raw.pages_max.get(), raw.inodes_max.get());
            limits.push(Self { project, pages_max, inodes_max });
        }
        Ok(limits)
    }
}

//! Recognises what a device or file holds already, so that mkfs does not overwrite it unasked.

/// The name of the format that the first bytes of a device or file show, if it is known.
///
/// Hand in the first 2 MB, or all there is: ZFS and Btrfs keep their marks that far in. An unknown
/// format is no proof of free space.
#[must_use]
pub fn known_signature(first_bytes: &[u8]) -> Option<&'static str> {
    SIGNATURES
        .iter()
        .find(|(offset, magic, _)| has(first_bytes, *offset, magic))
        .or_else(|| ZFS.iter().find(|signature| has_uberblock(first_bytes, signature.1)))
        .or_else(|| WEAK.iter().find(|(offset, magic, _)| has(first_bytes, *offset, magic)))
        .map(|(_, _, name)| *name)
}

fn has(bytes: &[u8], offset: usize, magic: &[u8]) -> bool {
    bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic))
}

/// Whether one of the first label's 128 uberblocks is there; which of them are in use varies.
fn has_uberblock(bytes: &[u8], magic: &[u8]) -> bool {
    bytes
        .get(UBERBLOCKS_OFFSET..)
        .is_some_and(|ring| ring.chunks(1024).take(128).any(|block| block.starts_with(magic)))
}

/// Offset in bytes, the bytes there, the format.
type Signature = (usize, &'static [u8], &'static str);

const UBERBLOCKS_OFFSET: usize = 128 << 10;

const ZFS: &[Signature] = &[
    (UBERBLOCKS_OFFSET, b"\x0c\xb1\xba\x00\x00\x00\x00\x00", "ZFS"),
    (UBERBLOCKS_OFFSET, b"\x00\x00\x00\x00\x00\xba\xb1\x0c", "ZFS"),
];

/// Signatures of two bytes, and marks that several formats share; asked last.
const WEAK: &[Signature] = &[
    (1080, b"\x53\xef", "ext2/3/4"),
    (1030, b"\x34\x34", "NILFS2"),
    (510, b"\x55\xaa", "MBR"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"MZ", "PE"),
];

const SIGNATURES: &[Signature] = &[
    (0, &crate::superblock::MAGIC, "Novale"),
    (2048, &crate::slot::MAGIC, "Novale"),
    // Other users of persistent memory.
    (4, b"AVON", "NOVA"),
    (0, b"PMEMOBJ\0", "PMDK pool"),
    (0, b"PMEMBLK\0", "PMDK pool"),
    (0, b"PMEMLOG\0", "PMDK pool"),
    (4096, b"BTT_ARENA_INFO\0\0", "NVDIMM block translation table"),
    (4096, b"NVDIMM_PFN_INFO\0", "NVDIMM fsdax namespace"),
    (4096, b"NVDIMM_DAX_INFO\0", "NVDIMM devdax namespace"),
    // File systems.
    (0, b"XFSB", "XFS"),
    (65_600, b"_BHRfS_M", "Btrfs"),
    (4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "bcachefs"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"),
    (1024, b"\x10\x20\xf5\xf2", "F2FS"),
    (1024, b"\xe2\xe1\xf5\xe0", "EROFS"),
    (32_768, b"JFS1", "JFS"),
    (65_588, b"ReIsEr", "ReiserFS"),
    (65_536, b"\x01\x16\x19\x70", "GFS2"),
    (2048, b"OCFSV2", "OCFS2"),
    (3, b"NTFS    ", "NTFS"),
    (3, b"EXFAT   ", "exFAT"),
    (82, b"FAT32   ", "FAT"),
    (54, b"FAT16   ", "FAT"),
    (54, b"FAT12   ", "FAT"),
    (1024, b"H+\0\x04", "HFS+"),
    (1024, b"HX\0\x05", "HFS+"),
    (32, b"NXSB", "APFS"),
    (32_769, b"CD001", "ISO 9660"),
    (32_769, b"BEA01", "UDF"),
    (0, b"hsqs", "squashfs"),
    (0, b"\x45\x3d\xcd\x28", "cramfs"),
    (0, b"-rom1fs-", "romfs"),
    (0, b"UBI#", "UBI"),
    // Swap, whose mark ends a page of 4 to 64 KB.
    (4086, b"SWAPSPACE2", "swap"),
    (4086, b"SWAP-SPACE", "swap"),
    (8182, b"SWAPSPACE2", "swap"),
    (16_374, b"SWAPSPACE2", "swap"),
    (32_758, b"SWAPSPACE2", "swap"),
    (65_526, b"SWAPSPACE2", "swap"),
    // Volumes and partitions.
    (0, b"LUKS\xba\xbe", "LUKS"),
    (16_384, b"SKUL\xba\xbe", "LUKS"),
    (3, b"-FVE-FS-", "BitLocker"),
    (0, b"LABELONE", "LVM"),
    (512, b"LABELONE", "LVM"),
    (1024, b"LABELONE", "LVM"),
    (1536, b"LABELONE", "LVM"),
    (0, b"\xfc\x4e\x2b\xa9", "Linux RAID"),
    (4096, b"\xfc\x4e\x2b\xa9", "Linux RAID"),
    (0, b"bluestore block device", "Ceph BlueStore"),
    (512, b"EFI PART", "GPT"),
    (4096, b"EFI PART", "GPT"),
    // Images of virtual machines.
    (0, b"QFI\xfb", "QCOW2"),
    (0, b"KDMV", "VMDK"),
    (0, b"vhdxfile", "VHDX"),
    (64, b"\x7f\x10\xda\xbe", "VirtualBox image"),
    // Files.
    (0, b"\x7fELF", "ELF"),
    (0, b"SQLite format 3\0", "SQLite"),
    (16, b"\xde\xc0\xef\xbe", "LMDB"),
    (0, b"REDIS0", "Redis dump"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5"),
    (0, b"PAR1", "Parquet"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"GIF8", "GIF"),
    (0, b"%PDF-", "PDF"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "RAR"),
    (257, b"ustar", "tar"),
    (0, b"!<arch>\n", "ar"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska"),
    (4, b"ftyp", "MP4"),
    (0, b"OggS", "Ogg"),
    (0, b"fLaC", "FLAC"),
    (0, b"PACK\0\0\0\x02", "git pack"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 MB of zeros with these bytes at these offsets.
    fn image(marks: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 2 << 20];
        for (offset, mark) in marks {
            bytes[*offset..][..mark.len()].copy_from_slice(mark);
        }
        bytes
    }

    #[test]
    fn free_space_is_not_recognised() {
        for bytes in [&[][..], &[0; 600], &image(&[]), &vec![0xff; 2 << 20]] {
            assert_eq!(known_signature(bytes), None);
        }
    }

    #[test]
    fn our_own_slots_are_recognised() {
        let header = crate::SlotHeader {
            pool_uuid: [1; 16],
            slot_uuid: [2; 16],
            index: 1,
            kind: 0,
            pages: 64,
            endurance: 0,
            wear_offset: 4096,
            bad_pages_offset: 8192,
            state_offset: 3072,
        };
        assert_eq!(known_signature(&image(&[(2048, &header.encode())])), Some("Novale"));
        let superblock = crate::Superblock {
            pool_uuid: [1; 16],
            features_compat: 0,
            features_ro_compat: 0,
            features_incompat: 0,
            lane_count: 1,
            slot_count: 1,
            default_policy: 0,
            created_ns: 0,
            roots: crate::Roots::default(),
        };
        assert_eq!(known_signature(&superblock.encode()), Some("Novale"));
    }

    #[test]
    fn files_are_recognised_from_their_first_bytes() {
        // What `printf novale | gzip -nc` writes.
        let gzip =
            b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xcb\xcb\x2f\x4b\xcc\x49\x05\0\x3e\xc0\x8f\x6b\x06\0\0\0";
        assert_eq!(known_signature(gzip), Some("gzip"));
        let this_program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(known_signature(&this_program), Some("ELF"));
        assert_eq!(known_signature(b"%PDF-1.7\n"), Some("PDF"));
        assert_eq!(known_signature(b"\x1f"), None);
    }

    #[test]
    fn a_file_system_is_named_before_the_boot_mark_that_it_shares() {
        let boot: (usize, &[u8]) = (510, b"\x55\xaa");
        assert_eq!(known_signature(&image(&[boot])), Some("MBR"));
        assert_eq!(known_signature(&image(&[boot, (512, b"EFI PART")])), Some("GPT"));
        assert_eq!(known_signature(&image(&[boot, (1080, b"\x53\xef")])), Some("ext2/3/4"));
        assert_eq!(known_signature(&image(&[boot, (3, b"NTFS    ")])), Some("NTFS"));
        assert_eq!(known_signature(&image(&[boot, (82, b"FAT32   ")])), Some("FAT"));
    }

    #[test]
    fn marks_far_in_are_found() {
        assert_eq!(known_signature(&image(&[(0x1_0040, b"_BHRfS_M")])), Some("Btrfs"));
        assert_eq!(known_signature(&image(&[(0xff6, b"SWAPSPACE2")])), Some("swap"));
        let uberblock = 0x00ba_b10c_u64;
        for ring in [0, 1, 127] {
            let offset = (128 << 10) + ring * 1024;
            let native: (usize, &[u8]) = (offset, &uberblock.to_le_bytes());
            assert_eq!(known_signature(&image(&[native])), Some("ZFS"), "uberblock {ring}");
        }
    }

    #[test]
    fn marks_at_other_offsets_are_not_taken_for_a_format() {
        assert_eq!(known_signature(&image(&[(1, b"XFSB"), (65_601, b"_BHRfS_M")])), None);
    }

    #[test]
    fn every_mark_lies_in_the_first_2_mb() {
        for (offset, magic, name) in SIGNATURES.iter().chain(WEAK).chain(ZFS) {
            assert!(offset + magic.len() <= 2 << 20, "{name}");
            assert_eq!(known_signature(&image(&[(*offset, magic)])), Some(*name));
        }
    }
}

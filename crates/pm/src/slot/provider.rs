//! What the kernel's NVDIMM subsystem says of the memory below a DAX device or file.
//!
//! A DAX mapping says that stores reach the memory itself. What that memory survives is another
//! question: it may be a file of a machine outside (virtio-pmem), or plain memory that was set aside
//! when the kernel started (`memmap=512M!1G`).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::SlotMemory;

/// What a DAX device's or file's bytes are in: `on_dimm`, unless its provider says otherwise.
pub(super) fn memory(file: &File, on_dimm: SlotMemory) -> SlotMemory {
    let Ok(metadata) = file.metadata() else { return on_dimm };
    let (kind, number) =
        if metadata.is_file() { ("block", metadata.dev()) } else { ("char", metadata.rdev()) };
    let link = format!("/sys/dev/{kind}/{}:{}", libc::major(number), libc::minor(number));
    let command = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    weaker(Path::new(&link), &command).unwrap_or(on_dimm)
}

/// The memory of a device that survives less than an NVDIMM, by its link in sysfs and the kernel's
/// command line.
fn weaker(link: &Path, command: &str) -> Option<SlotMemory> {
    let device = fs::canonicalize(link).ok()?;
    let provider =
        device.ancestors().find_map(|at| fs::read_to_string(at.join("provider")).ok())?;
    let is_set_aside = |word: &str| word.starts_with("memmap=") && word.contains('!');
    match provider.trim() {
        "virtio-pmem" => Some(SlotMemory::VirtioPmem),
        // Firmware tells of old NVDIMMs in the same way.
        "e820" if command.split_whitespace().any(is_set_aside) => Some(SlotMemory::SetAside),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// What `weaker` says of a namespace's device on a bus of this provider.
    fn found(provider: &str, command: &str) -> Option<SlotMemory> {
        let sysfs = tempfile::tempdir().unwrap();
        let bus = sysfs.path().join("devices/platform/ndbus0");
        let device = bus.join("region0/dax0.0/dax0.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(bus.join("provider"), format!("{provider}\n")).unwrap();
        let link = sysfs.path().join("253:0");
        symlink(device, &link).unwrap();
        weaker(&link, command)
    }

    #[test]
    fn memory_of_a_host_and_of_a_command_line_is_no_nvdimm() {
        let plain = "root=/dev/vda1 memmap=64K$0x10000";
        let set_aside = "root=/dev/vda1 memmap=4G!12G quiet";
        assert_eq!(found("ACPI.NFIT", set_aside), None);
        assert_eq!(found("virtio-pmem", plain), Some(SlotMemory::VirtioPmem));
        assert_eq!(found("e820", set_aside), Some(SlotMemory::SetAside));
        assert_eq!(found("e820", plain), None);
    }

    #[test]
    fn a_device_of_no_such_bus_says_nothing() {
        let sysfs = tempfile::tempdir().unwrap();
        assert_eq!(weaker(sysfs.path(), "memmap=4G!12G"), None);
        assert_eq!(weaker(&sysfs.path().join("7:0"), "memmap=4G!12G"), None);
    }
}

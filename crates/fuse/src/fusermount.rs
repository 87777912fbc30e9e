//! Mounting as a user without privileges, through the set-uid program fusermount3.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::mount::MountError;

const PROGRAM: &str = "fusermount3";

/// Lets fusermount3 mount and hand over the device.
pub(crate) fn mount(
    words: &[&str],
    source: &OsStr,
    subtype: &str,
    target: &Path,
) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = UnixStream::pair().map_err(MountError::Device)?;
    let mut options = OsString::from(format!("subtype={subtype},{},fsname=", words.join(",")));
    options.push(escape(source));
    // The socket is the child's standard input: descriptor 0, inherited without further ado.
    let child = Command::new(PROGRAM)
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(target)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| missing(&error))?;
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(MountError::Device)?;
    match device {
        Ok(device) if output.status.success() => Ok(device),
        Err(error) if output.status.success() => Err(MountError::Device(error)),
        _ => Err(refused(&output.stderr)),
    }
}

/// Lets fusermount3 unmount, or detach.
pub(crate) fn unmount(target: &Path, lazy: bool) -> Result<(), MountError> {
    let output = Command::new(PROGRAM)
        .args(if lazy { &["-u", "-z", "--"][..] } else { &["-u", "--"][..] })
        .arg(target)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| missing(&error))?;
    if output.status.success() {
        return Ok(());
    }
    if String::from_utf8_lossy(&output.stderr).contains("busy") {
        return Err(MountError::Busy { target: target.to_owned() });
    }
    Err(refused(&output.stderr))
}

fn missing(error: &io::Error) -> MountError {
    MountError::Fusermount(format!(
        "cannot run it ({error}); install it (package fuse3), or mount as root"
    ))
}

fn refused(stderr: &[u8]) -> MountError {
    let said = String::from_utf8_lossy(stderr);
    let said = said.trim();
    MountError::Fusermount(said.strip_prefix("fusermount3: ").unwrap_or(said).to_owned())
}

/// Commas and backslashes would end the name.
fn escape(source: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut escaped = Vec::new();
    for byte in source.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    OsString::from_vec(escaped)
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(descriptor) = descriptors.next()
        {
            return Ok(descriptor);
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "fusermount3 sent no device"))
}

//! Gives the shared library its name for the dynamic linker, which ends in the ABI's number.

use std::path::Path;

fn main() {
    let source = Path::new("src/border/version.rs");
    println!("cargo::rerun-if-changed={}", source.display());
    let text = std::fs::read_to_string(source).unwrap_or_default();
    let number = text
        .lines()
        .find_map(|line| line.strip_prefix("pub const NOVALE_ABI: u32 = ")?.strip_suffix(';'));
    match number {
        Some(abi) => println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnovale.so.{abi}"),
        None => println!("cargo::error=src/border/version.rs says no NOVALE_ABI"),
    }
}

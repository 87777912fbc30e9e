//! Links the unwinder into the library, where the compiler has it for that: a program that starts
//! finds, maps and relocates one library less. The compiler's start files stay out: what they do, at the start
//! and in the end, is nothing, on pages of its own.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("gnu") {
        return;
    }
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    let found = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    // What it does not know it gives back as it is.
    let (Ok(archive), Ok(folder)) = (found, std::env::var("OUT_DIR")) else { return };
    if !Path::new(&archive).is_absolute() {
        return;
    }
    // rustc asks for `gcc_s`: here that is found first.
    let script = Path::new(&folder).join("libgcc_s.so");
    if std::fs::write(script, format!("INPUT({archive})\n")).is_ok() {
        println!("cargo::rustc-link-search=native={folder}");
    }
}

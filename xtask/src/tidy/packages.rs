//! The workspace's crates and what they depend on, as `cargo metadata` tells.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

/// A crate of the workspace and what it depends on.
#[derive(Debug)]
pub(super) struct Package {
    /// Its package name, such as `novale-core`.
    pub(super) name: String,
    /// Its Cargo.toml, relative to the root.
    pub(super) manifest: String,
    /// That file's text.
    pub(super) text: String,
    pub(super) dependencies: Vec<Dependency>,
}

/// A direct dependency.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// Used by tests and examples only.
    pub(super) dev: bool,
    /// A crate of this workspace.
    pub(super) own: bool,
}

/// Reads the workspace's crates through `cargo metadata`.
pub(super) fn read(root: &Path) -> anyhow::Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    anyhow::ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata.pointer("/packages").and_then(Value::as_array);
    packages.context("no packages")?.iter().map(|package| read_package(root, package)).collect()
}

fn read_package(root: &Path, package: &Value) -> anyhow::Result<Package> {
    let text = |value: &Value, key: &str| {
        let found = value.get(key).and_then(Value::as_str).map(str::to_owned);
        found.with_context(|| format!("no `{key}` in {value}"))
    };
    let dependencies = package.get("dependencies").and_then(Value::as_array);
    let manifest = text(package, "manifest_path")?;
    Ok(Package {
        name: text(package, "name")?,
        text: std::fs::read_to_string(&manifest).with_context(|| manifest.clone())?,
        manifest: Path::new(&manifest).strip_prefix(root)?.to_string_lossy().into_owned(),
        dependencies: dependencies
            .context("no dependencies")?
            .iter()
            .map(|dependency| {
                Ok(Dependency {
                    name: text(dependency, "name")?,
                    dev: dependency.get("kind").and_then(Value::as_str) == Some("dev"),
                    own: dependency.get("path").is_some(),
                })
            })
            .collect::<anyhow::Result<_>>()?,
    })
}

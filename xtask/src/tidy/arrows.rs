//! Which crate may use which: the arrows of docs/ARCHITECTURE.md, as data.

use super::Finding;
use super::packages::{Dependency, Package};

/// A crate's place in the order of layers.
struct Layer {
    name: &'static str,
    /// The crates just below; what they may use, it may use too.
    uses: &'static [&'static str],
    /// Outside crates that it must not know, so that it stays what it is.
    never: Never,
}

enum Never {
    Nothing,
    These(&'static [&'static str]),
    Anything,
}

/// What a crate needs to be free of to be handed its world: system calls, time, chance, threads.
const WORLD: Never =
    Never::These(&["fastrand", "fuser", "getrandom", "libc", "nix", "rayon", "rustix"]);

/// The allowed arrows. A crate that is missing here may not exist.
const LAYERS: &[Layer] = &[
    Layer { name: "novale-crc", uses: &[], never: WORLD },
    Layer { name: "novale-layout", uses: &["novale-crc"], never: WORLD },
    Layer { name: "novale-pm", uses: &["novale-layout"], never: Never::These(&["fuser"]) },
    Layer { name: "novale-arena", uses: &[], never: Never::These(&["fuser"]) },
    Layer { name: "novale-policy", uses: &["novale-layout"], never: WORLD },
    Layer {
        name: "novale-core",
        uses: &["novale-crc", "novale-layout", "novale-pm", "novale-policy", "novale-arena"],
        never: WORLD,
    },
    Layer { name: "novale-posix", uses: &["novale-core"], never: Never::These(&["fuser"]) },
    Layer { name: "novale-fuse", uses: &["novale-posix"], never: Never::Nothing },
    Layer { name: "novale-preload", uses: &["novale-posix"], never: Never::These(&["fuser"]) },
    Layer { name: "novale-capi", uses: &["novale-posix"], never: Never::These(&["fuser"]) },
    Layer {
        name: "novale-cli",
        uses: &["novale-fuse", "novale-preload", "novale-capi"],
        never: Never::Nothing,
    },
    Layer { name: "novale-edges", uses: &[], never: Never::Anything },
    Layer { name: "novale-model", uses: &[], never: Never::Anything },
    Layer {
        name: "novale-lab",
        uses: &["novale-core", "novale-posix", "novale-model", "novale-pm", "novale-edges"],
        never: Never::Nothing,
    },
    Layer {
        name: "novale-bench",
        uses: &["novale-cli", "novale-lab", "novale-model"],
        never: Never::Nothing,
    },
    Layer { name: "xtask", uses: &[], never: Never::Nothing },
];

/// Arrows that are not allowed, crates without a layer, and crates without the workspace's lints.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Finding> {
    let mut messages = Vec::new();
    if !package.text.contains("[lints]\nworkspace = true") {
        messages.push("lacks `[lints] workspace = true`".to_owned());
    }
    if let Some(layer) = LAYERS.iter().find(|layer| layer.name == package.name) {
        let below = closure(layer);
        for dependency in &package.dependencies {
            messages.extend(forbidden(layer, &below, dependency));
        }
    } else {
        messages.push(format!("`{}` has no layer; give it one in xtask's arrows", package.name));
    }
    let path = &package.manifest;
    messages
        .into_iter()
        .map(|message| Finding { path: path.clone(), line: 0, rule: "arrow", message })
        .collect()
}

fn forbidden(layer: &Layer, below: &[&str], dependency: &Dependency) -> Option<String> {
    let name = dependency.name.as_str();
    let allowed = match (dependency.own, &layer.never) {
        (true, _) => below.contains(&name),
        // Tests may have a world; only the oracle is alone in them too.
        (false, Never::Anything) => false,
        (false, Never::These(names)) => dependency.dev || !names.contains(&name),
        (false, Never::Nothing) => true,
    };
    (!allowed).then(|| format!("`{}` must not use `{name}`", layer.name))
}

/// Every crate below a layer, its own excluded.
fn closure(layer: &Layer) -> Vec<&'static str> {
    let mut below: Vec<&'static str> = layer.uses.to_vec();
    let mut at = 0;
    // Ends: each name is added once, and there are finitely many.
    while let Some(name) = below.get(at).copied() {
        let next = LAYERS.iter().find(|layer| layer.name == name).map_or(&[][..], |l| l.uses);
        for name in next {
            if !below.contains(name) {
                below.push(name);
            }
        }
        at += 1;
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, bool, bool)]) -> Package {
        let dependencies = dependencies.iter().map(|(name, own, dev)| Dependency {
            name: (*name).to_owned(),
            dev: *dev,
            own: *own,
        });
        Package {
            name: name.to_owned(),
            manifest: "Cargo.toml".to_owned(),
            text: "[lints]\nworkspace = true\n".to_owned(),
            dependencies: dependencies.collect(),
        }
    }

    fn found(name: &str, dependencies: &[(&str, bool, bool)]) -> usize {
        check(&[package(name, dependencies)]).len()
    }

    #[test]
    fn arrows_go_down_only() {
        assert_eq!(found("novale-cli", &[("novale-layout", true, false)]), 0);
        assert_eq!(found("novale-pm", &[("novale-core", true, false)]), 1);
        assert_eq!(found("novale-arena", &[("novale-layout", true, false)]), 1);
        assert_eq!(found("novale-cli", &[("novale-lab", true, false)]), 1);
        assert_eq!(found("novale-core", &[("novale-lab", true, true)]), 1, "in tests neither");
        assert_eq!(found("novale-extra", &[]), 1, "a crate without a layer");
    }

    #[test]
    fn a_layer_stays_free_of_its_world() {
        assert_eq!(found("novale-core", &[("libc", false, false)]), 1);
        assert_eq!(found("novale-core", &[("fastrand", false, true)]), 0, "a test may roll dice");
        assert_eq!(found("novale-model", &[("fastrand", false, true)]), 1);
        assert_eq!(found("novale-fuse", &[("fuser", false, false)]), 0);
        assert_eq!(found("novale-posix", &[("fuser", false, false)]), 1);
    }

    #[test]
    fn no_layer_is_below_itself() {
        for layer in LAYERS {
            assert!(!closure(layer).contains(&layer.name), "{} is in a circle", layer.name);
        }
    }

    #[test]
    fn a_crate_without_the_workspace_lints_fails() {
        let mut bare = package("novale-core", &[]);
        bare.text.clear();
        assert_eq!(check(&[bare]).len(), 1);
    }
}

//! Which crate may use which: the manifests are the architecture.

use std::path::Path;

use crate::sources::Source;

/// Each crate's folder and the crates of this workspace that it may use. The root package, `perf`, `ci` and `benches` stand
/// outside: they may use anything, and nothing uses them, but for the root package, which offers `perf` and `tuning` as commands.
const ALLOWED: [(&str, &[&str]); 7] = [
    ("src/wire", &[]),
    ("shards", &[]),
    ("src/commit_log", &["shards", "wire"]),
    ("src/consumer_groups", &["wire"]),
    ("src/broker", &["commit_log", "consumer_groups", "shards", "wire"]),
    ("src/client", &["wire"]),
    ("tuning", &[]),
];
/// Crates whose use in tests is allowed beyond the table: a broker is tested through the client that people use.
const ALLOWED_IN_TESTS: [(&str, &str); 1] = [("src/broker", "corelane_client")];
/// Every crate of the workspace.
const OURS: [&str; 10] =
    ["wire", "shards", "commit_log", "consumer_groups", "broker", "corelane_client", "tuning", "perf", "ci", "benches"];
/// The only place that may name the runtime.
const RUNTIME_FOLDER: &str = "shards/src/real";
/// The runtime's crate, spelt so that this file does not name it.
const RUNTIME: &str = concat!("glom", "mio");

/// Complaints about dependencies between crates that the architecture does not allow.
///
/// # Errors
///
/// When a manifest cannot be read or parsed.
pub fn check_manifests(root: &Path) -> std::io::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (folder, allowed) in ALLOWED {
        let path = format!("{folder}/Cargo.toml");
        let text = std::fs::read_to_string(root.join(&path))?;
        let manifest: toml::Table = text.parse().map_err(std::io::Error::other)?;
        complaints.extend(check_manifest(folder, allowed, &path, &manifest));
    }
    Ok(complaints)
}

fn check_manifest(folder: &str, allowed: &[&str], path: &str, manifest: &toml::Table) -> Vec<String> {
    let mut complaints = Vec::new();
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let Some(dependencies) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
        for name in dependencies.keys() {
            let is_allowed_in_tests = section == "dev-dependencies" && ALLOWED_IN_TESTS.contains(&(folder, name.as_str()));
            if OURS.contains(&name.as_str()) && !allowed.contains(&name.as_str()) && !is_allowed_in_tests {
                complaints.push(format!("{path}: [{section}] must not name `{name}`: see the table of edges in ci/src/edges.rs"));
            }
            if name == RUNTIME && folder != "shards" {
                complaints.push(format!("{path}: only `shards` may depend on {RUNTIME}"));
            }
        }
    }
    complaints
}

/// Complaints about Rust code that names the runtime outside of its one place. Comments may: they explain.
pub fn check_runtime_wall(sources: &[Source]) -> Vec<String> {
    let outside = sources.iter().filter(|source| source.is_rust() && !source.path.starts_with(RUNTIME_FOLDER));
    let mut complaints = Vec::new();
    for source in outside {
        for (number, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains(&format!("{RUNTIME}::")) {
                complaints.push(format!("{}:{}: {RUNTIME} is named outside {RUNTIME_FOLDER}", source.path, number + 1));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(folder: &str, allowed: &[&str], manifest: &str) -> Vec<String> {
        check_manifest(folder, allowed, "Cargo.toml", &manifest.parse().unwrap())
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_refused() {
        let bad = complaints("src/wire", &[], "[dependencies]\nshards.workspace = true\nrkyv.workspace = true");
        assert_eq!(bad.len(), 1);
        assert!(bad[0].contains("`shards`"), "{bad:?}");
        assert_eq!(complaints("src/client", &["wire"], "[dependencies]\nwire.workspace = true"), Vec::<String>::new());
    }

    #[test]
    fn a_test_may_use_what_the_crate_may_not() {
        let test = "[dev-dependencies]\ncorelane_client.workspace = true";
        assert!(complaints("src/broker", &[], test).is_empty());
        assert_eq!(complaints("src/broker", &[], "[dependencies]\ncorelane_client.workspace = true").len(), 1);
    }

    #[test]
    fn the_runtime_is_found_outside_its_place() {
        let source = |path: &str, text: String| Source { path: path.into(), text };
        let code = format!("use {RUNTIME}::Task;");
        let sources = [source("shards/src/real/disk.rs", code.clone()), source("src/broker/src/a.rs", code.clone())];
        assert_eq!(check_runtime_wall(&sources).len(), 1);
        assert!(check_runtime_wall(&[source("src/a.rs", format!("// {code}"))]).is_empty());
    }
}

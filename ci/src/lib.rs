//! Checks of the repository itself, run as tests and as `cargo run -p ci`.
//!
//! ```text
//!   manifests ──► edges: who may depend on whom           ┐
//!   sources   ──► edges: `glommio` only in shards/src/real ├──► complaints: file, line, what to do
//!   sources   ──► tidy: nothing postponed, nothing silenced ┘
//! ```
//!
//! Invariants: the checks read the working tree and write nothing; an empty list of complaints is the only success.

pub mod edges;
pub mod sources;
pub mod tidy;

use std::path::PathBuf;

/// The root of the repository.
pub fn root() -> PathBuf {
    let ci = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    ci.parent().expect("the crate stands in a folder of the repository").to_owned()
}

/// Every complaint of every check, for a person; empty when all is well.
///
/// # Errors
///
/// When a file or folder of the repository cannot be read.
pub fn complaints() -> std::io::Result<Vec<String>> {
    let root = root();
    let sources = sources::read(&root)?;
    let mut complaints = edges::check_manifests(&root)?;
    complaints.extend(edges::check_runtime_wall(&sources));
    complaints.extend(tidy::check(&sources));
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy_and_its_layers_hold() {
        let complaints = super::complaints().unwrap();
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }
}

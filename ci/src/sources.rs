//! The repository's text files.

use std::path::{Path, PathBuf};

/// Folders that hold no source of ours.
const SKIPPED_FOLDERS: [&str; 5] = ["target", ".git", "golden", "corelane-data", "results"];
/// Where peers of `perf peer` are installed, at the root only.
const PEERS_FOLDER: &str = "peer";
/// Endings of the files that are checked.
const ENDINGS: [&str; 5] = ["rs", "toml", "md", "yaml", "sh"];

/// One text file.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path below the root, with `/` between folders.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// Whether this is Rust code.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Reads every text file of the repository, sorted by path.
///
/// # Errors
///
/// When a folder or file cannot be read, or a text file is not UTF-8.
pub fn read(root: &Path) -> std::io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                let is_peers = name == PEERS_FOLDER && folder == root;
                if !is_peers && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                    folders.push(entry.path());
                }
            } else if is_text(&entry.path()) {
                let path = entry.path();
                let below = path.strip_prefix(root).expect("every entry stands below the root");
                sources.push(Source { path: below.to_string_lossy().into_owned(), text: std::fs::read_to_string(&path)? });
            }
        }
    }
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(sources)
}

fn is_text(path: &PathBuf) -> bool {
    let ending = Path::new(path).extension().map(|ending| ending.to_string_lossy().into_owned());
    let is_ci_script = path.ends_with(".ci/run");
    is_ci_script || ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

//! What does not belong in the repository: postponed work, silenced lints, left-over debugging, places of one machine.

use crate::sources::Source;

/// A text that must not stand in Rust code, and what to do about it. Each is spelt in two parts, so that this file is clean.
const BANNED_IN_CODE: [(&str, &str, &str); 8] = [
    ("TO", "DO", "write the test that fails, and the code"),
    ("FIX", "ME", "fix it, with a test"),
    ("todo", "!(", "write the code"),
    ("unimpl", "emented!(", "write the code"),
    ("#[ig", "nore", "a test that is not run is not a test"),
    ("#[al", "low(", "use #[expect(lint, reason = \"...\")]"),
    ("dbg", "!(", "remove it"),
    ("mod ut", "ils", "name the file after the noun it holds"),
];
/// Folders of one machine, which no file may name.
const BANNED_EVERYWHERE: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/home", "/")];

/// Complaints about all sources.
pub fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(check_one).collect()
}

fn check_one(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let mut complain = |what: String| complaints.push(format!("{}:{}: {what}", source.path, number + 1));
        for (left, right, remedy) in BANNED_IN_CODE {
            if source.is_rust() && line.contains(&format!("{left}{right}")) {
                complain(format!("`{left}{right}`: {remedy}"));
            }
        }
        for (left, right) in BANNED_EVERYWHERE {
            if line.contains(&format!("{left}{right}")) {
                complain(format!("`{left}{right}` is a folder of one machine"));
            }
        }
        if line.ends_with([' ', '\t']) {
            complain("blank at the end of the line".into());
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(&[Source { path: path.into(), text: text.into() }]).len()
    }

    #[test]
    fn each_banned_text_is_found() {
        for (left, right, _) in BANNED_IN_CODE {
            assert_eq!(complaints("a.rs", &format!("    // {left}{right}")), 1, "{left}{right}");
        }
        for (left, right) in BANNED_EVERYWHERE {
            assert_eq!(complaints("a.md", &format!("see {left}{right}x")), 1, "{left}{right}");
        }
        assert_eq!(complaints("a.rs", "let a = 1; "), 1);
        assert_eq!(complaints("a.rs", "let a = 1;\n"), 0);
    }
}

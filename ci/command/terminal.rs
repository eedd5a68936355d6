//! Colour is for terminals.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::call;

const ESCAPE: char = '\u{1b}';

#[test]
fn colour_is_only_for_a_terminal() {
    assert!(!call::run(&["--help"]).ok().contains(ESCAPE));
    assert!(!call::run(&["serve", "--no-such-flag"]).fails_with(2).error.contains(ESCAPE));
    assert!(on_terminal(&["--help"], None).contains(ESCAPE));
    assert!(!on_terminal(&["--help"], Some("1")).contains(ESCAPE), "NO_COLOR is heeded");
}

/// What the command shows on a terminal.
fn on_terminal(arguments: &[&str], no_color: Option<&str>) -> String {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&controller).expect("a terminal of ours");
    unlockpt(&controller).expect("a terminal of ours");
    let path = ptsname(&controller, Vec::new()).expect("a terminal has a name").into_string().expect("text");
    let terminal = File::options().read(true).write(true).open(path).expect("the other end");
    let mut command = call::command(arguments);
    if let Some(value) = no_color {
        command.env("NO_COLOR", value);
    }
    let mut child = command
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(terminal.try_clone().expect("a second handle"))
        .stderr(terminal)
        .spawn()
        .expect("the command starts");
    // The command holds the other end as long as it is not dropped.
    drop(command);
    let mut shown = Vec::new();
    // A terminal whose other end is closed ends with an error: what was shown before is there.
    let _ = File::from(controller).read_to_end(&mut shown);
    child.wait().expect("a child of ours can be awaited");
    String::from_utf8_lossy(&shown).into_owned()
}

//! One run of the command.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Done {
    /// The arguments, for messages.
    arguments: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) error: String,
}

/// The command, in an environment that changes nothing about it. Times are in UTC.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(arguments).env("TZ", "UTC");
    for name in ["CORELANE_BROKER", "CORELANE_CONFIG", "CORELANE_LOG", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

/// Runs the command without a broker.
pub(crate) fn run(arguments: &[&str]) -> Done {
    finish(command(arguments), b"")
}

/// Runs a command to its end, with this on standard input.
pub(crate) fn finish(mut command: Command, input: &[u8]) -> Done {
    let arguments = command.get_args().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the command starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let output = std::thread::scope(|scope| {
        // Beside reading: neither pipe holds everything. A command that has had enough closes its end.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("a child of ours can be awaited")
    });
    let text = |bytes| String::from_utf8(bytes).expect("the command prints text");
    Done { arguments, code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

impl Done {
    /// Its output, after success.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        self.fails_with(0).out
    }

    /// Its lines of output, after success.
    #[track_caller]
    pub(crate) fn lines(self) -> Vec<String> {
        self.ok().lines().map(str::to_owned).collect()
    }

    /// Its output as JSON, after success.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let out = self.ok();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}:\n{out}"))
    }

    /// It, if it ended with this exit code.
    #[track_caller]
    pub(crate) fn fails_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "corelane {}\n{}{}", self.arguments, self.out, self.error);
        self
    }

    /// It, if it said this on standard error.
    #[track_caller]
    pub(crate) fn saying(self, part: &str) -> Self {
        assert!(self.error.contains(part), "corelane {}: {part:?} is not in:\n{}", self.arguments, self.error);
        self
    }
}

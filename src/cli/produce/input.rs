//! Messages from lines of standard input, or from files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use corelane_client::ErrorCode;
use tokio::sync::mpsc;

use super::super::failure::Failure;

/// The largest message any topic can allow; reading stops there instead of filling memory.
const MESSAGE_BYTES_MAX: u64 = wire::limits::MESSAGE_BYTES_MAX_CEILING as u64;

/// Messages read ahead of sending, in groups: a group costs one wake-up.
const GROUPS_AHEAD_MAX: usize = 16;

/// Messages of a group.
const GROUP_MESSAGES_MAX: usize = 256;

/// Bytes of a group.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Bytes asked of standard input at once; as much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// A message to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Vec<u8>,
}

/// What remains to be sent.
pub(super) struct Input {
    groups: mpsc::Receiver<Result<Vec<Message>, Failure>>,
    ready: VecDeque<Message>,
}

impl Input {
    /// Begins to read, on a thread: standard input cannot be awaited.
    pub(super) fn open(files: &[PathBuf], key_separator: Option<&str>) -> Self {
        let (sender, groups) = mpsc::channel(GROUPS_AHEAD_MAX);
        let files = files.to_vec();
        let separator = key_separator.map(|separator| separator.as_bytes().to_vec());
        // Detached: a read that never returns does not keep the command from ending.
        std::thread::spawn(move || {
            let read = match files.is_empty() {
                true => standard_input().and_then(|mut input| read_lines(&mut input, separator.as_deref(), &sender)),
                false => read_files(&files, &sender),
            };
            if let Err(failure) = read {
                // Nobody listens when sending has failed already.
                let _ = sender.blocking_send(Err(failure));
            }
        });
        Self { groups, ready: VecDeque::new() }
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Failure> {
        while self.ready.is_empty() {
            match self.groups.recv().await {
                None => return Ok(None),
                Some(group) => self.ready.extend(group?),
            }
        }
        Ok(self.ready.pop_front())
    }
}

/// Standard input with a buffer one can look into: what is in it are the lines that can be read without waiting.
fn standard_input() -> Result<BufReader<File>, Failure> {
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned().map_err(of_standard_input)?;
    Ok(BufReader::with_capacity(READ_BYTES, File::from(descriptor)))
}

fn of_standard_input(error: std::io::Error) -> Failure {
    Failure::Failed(format!("cannot read standard input: {error}"))
}

type Groups = mpsc::Sender<Result<Vec<Message>, Failure>>;

fn read_lines<R: Read>(input: &mut BufReader<R>, separator: Option<&[u8]>, groups: &Groups) -> Result<(), Failure> {
    let mut group = Vec::new();
    let mut group_bytes = 0;
    for number in 1_u64.. {
        let mut line = Vec::new();
        let length = input.by_ref().take(MESSAGE_BYTES_MAX + 2).read_until(b'\n', &mut line).map_err(of_standard_input)?;
        if length == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if let Err(failure) = check_size(line.len() as u64, || format!("line {number}")) {
            // The lines before it are well: they are sent first.
            let _ = groups.blocking_send(Ok(group));
            return Err(failure);
        }
        group_bytes += line.len();
        group.push(split(line, separator));
        // What has been read is not held back while waiting for more: a person may be typing.
        let full = group.len() >= GROUP_MESSAGES_MAX || group_bytes >= GROUP_BYTES_MAX;
        if full || !input.buffer().contains(&b'\n') {
            group_bytes = 0;
            if groups.blocking_send(Ok(std::mem::take(&mut group))).is_err() {
                return Ok(());
            }
        }
    }
    assert!(group.is_empty(), "the last line finds an empty buffer behind it");
    Ok(())
}

fn split(line: Vec<u8>, separator: Option<&[u8]>) -> Message {
    let found = separator.filter(|separator| !separator.is_empty()).and_then(|separator| {
        let at = line.windows(separator.len()).position(|window| window == separator)?;
        Some((at, at + separator.len()))
    });
    match found {
        Some((key_end, value_begin)) => Message { key: Some(line[..key_end].to_vec()), value: line[value_begin..].to_vec() },
        None => Message { key: None, value: line },
    }
}

fn read_files(files: &[PathBuf], groups: &Groups) -> Result<(), Failure> {
    for path in files {
        let message = if path == Path::new("-") {
            let mut value = Vec::new();
            std::io::stdin().lock().take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut value).map_err(of_standard_input)?;
            check_size(value.len() as u64, || "standard input".to_owned())?;
            Message { key: None, value }
        } else {
            let failed = |error: std::io::Error| Failure::of_file(path, &error);
            let length = std::fs::metadata(path).map_err(failed)?.len();
            check_size(length, || path.display().to_string())?;
            let value = std::fs::read(path).map_err(failed)?;
            let name = path.file_name().map(|name| name.as_encoded_bytes().to_vec());
            Message { key: name, value }
        };
        if groups.blocking_send(Ok(vec![message])).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn check_size(bytes: u64, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if bytes > MESSAGE_BYTES_MAX {
        let text = ErrorCode::MessageTooLarge.text();
        let what = what();
        return Err(Failure::NotAllowed(format!("{what} has {bytes} bytes or more, {MESSAGE_BYTES_MAX} are possible: {text}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one chunk a read, as a pipe gives what was written at once.
    struct Chunks(VecDeque<Vec<u8>>);

    impl Read for Chunks {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let Some(mut chunk) = self.0.pop_front() else { return Ok(0) };
            let length = chunk.len().min(out.len());
            out[..length].copy_from_slice(&chunk[..length]);
            if length < chunk.len() {
                self.0.push_front(chunk.split_off(length));
            }
            Ok(length)
        }
    }

    /// The values of each group that comes of these chunks, and how reading ended.
    fn groups(chunks: &[&str]) -> (Vec<Vec<String>>, Result<(), Failure>) {
        let (sender, mut receiver) = mpsc::channel(1000);
        let chunks = chunks.iter().map(|chunk| chunk.as_bytes().to_vec()).collect();
        let end = read_lines(&mut BufReader::with_capacity(READ_BYTES, Chunks(chunks)), None, &sender);
        drop(sender);
        let mut groups = Vec::new();
        while let Some(group) = receiver.blocking_recv() {
            let texts = group.expect("a group").into_iter().map(|message| String::from_utf8(message.value).expect("text"));
            groups.push(texts.collect());
        }
        (groups, end)
    }

    #[test]
    fn lines_that_are_there_together_are_sent_together() {
        let cases: [(&[&str], &[&[&str]]); 6] = [
            (&["a\nb\nc\n"], &[&["a", "b", "c"]]),
            (&["a\nb\n", "c\n"], &[&["a", "b"], &["c"]]),
            // Half a line keeps nothing back.
            (&["a\nb\nha", "lf\nc"], &[&["a", "b"], &["half"], &["c"]]),
            (&["a\n\nb"], &[&["a", ""], &["b"]]),
            (&["no newline"], &[&["no newline"]]),
            (&[], &[]),
        ];
        for (chunks, expected) in cases {
            let (found, end) = groups(chunks);
            assert_eq!(found, expected, "{chunks:?}");
            end.expect("the end");
        }
    }

    #[test]
    fn a_group_is_bounded() {
        let (found, _) = groups(&["x\n".repeat(GROUP_MESSAGES_MAX * 2 + 1).as_str()]);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [GROUP_MESSAGES_MAX, GROUP_MESSAGES_MAX, 1]);
    }

    #[test]
    fn a_line_above_every_limit_is_named_and_those_before_it_are_sent() {
        let long = "x".repeat(usize::try_from(MESSAGE_BYTES_MAX).expect("64 bits") + 1);
        let (found, end) = groups(&["a\n", "b\n", &long]);
        assert_eq!(found.concat(), ["a", "b"]);
        let text = end.expect_err("too long").to_string();
        assert!(text.starts_with("line 3 has"), "{text}");
    }
}

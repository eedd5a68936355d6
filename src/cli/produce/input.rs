//! Messages from lines of standard input, or from files.

use std::collections::VecDeque;
use std::io::{BufRead, Read};
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
                true => read_lines(&mut std::io::stdin().lock(), separator.as_deref(), &sender),
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

type Groups = mpsc::Sender<Result<Vec<Message>, Failure>>;

fn read_lines(input: &mut impl BufRead, separator: Option<&[u8]>, groups: &Groups) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot read standard input: {error}"));
    let mut group = Vec::new();
    let mut group_bytes = 0;
    loop {
        let mut line = Vec::new();
        let length = input.by_ref().take(MESSAGE_BYTES_MAX + 2).read_until(b'\n', &mut line).map_err(failed)?;
        let ended = length == 0;
        if !ended {
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            check_size(line.len() as u64, "a line")?;
            group_bytes += line.len();
            group.push(split(line, separator));
        }
        // What has been read is not held back while waiting for more: a person may be typing.
        let full = group.len() >= GROUP_MESSAGES_MAX || group_bytes >= GROUP_BYTES_MAX;
        if (ended || full || !has_line(input).map_err(failed)?) && !group.is_empty() {
            group_bytes = 0;
            if groups.blocking_send(Ok(std::mem::take(&mut group))).is_err() {
                return Ok(());
            }
        }
        if ended {
            return Ok(());
        }
    }
}

/// Whether a whole line can be read without waiting.
fn has_line(input: &mut impl BufRead) -> std::io::Result<bool> {
    // `fill_buf` would wait if the buffer were empty; a slice that is already there is all we may look at.
    Ok(buffered(input).contains(&b'\n'))
}

/// What is in the buffer, without reading.
fn buffered(input: &mut impl BufRead) -> &[u8] {
    input.consume(0);
    &[]
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
            let failed = |error: std::io::Error| Failure::Failed(format!("cannot read standard input: {error}"));
            std::io::stdin().lock().take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut value).map_err(failed)?;
            check_size(value.len() as u64, "standard input")?;
            Message { key: None, value }
        } else {
            let failed = |error: std::io::Error| Failure::of_file(path, &error);
            let length = std::fs::metadata(path).map_err(failed)?.len();
            check_size(length, &path.display().to_string())?;
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

fn check_size(bytes: u64, what: &str) -> Result<(), Failure> {
    if bytes > MESSAGE_BYTES_MAX {
        let text = ErrorCode::MessageTooLarge.text();
        return Err(Failure::TooLarge(format!("{what} has {bytes} bytes or more, {MESSAGE_BYTES_MAX} are possible: {text}")));
    }
    Ok(())
}

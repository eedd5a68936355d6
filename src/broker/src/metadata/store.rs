//! The catalog on disk: a snapshot and the journal of what came after it.
//!
//! ```text
//!  snapshot-<g>   the whole catalog (checked file)            journal-<g>   changes after it
//!  write snapshot g+1 ─► make journal g+1 ─► remove generation g
//!          └ a crash anywhere leaves one complete generation, and the highest complete one is right
//! ```
//!
//! A snapshot is written when the journal has outgrown it, so that each change pays a constant share of it.

use super::{
    catalog::{Catalog, Change},
    journal::{Journal, JournalError, journal_path},
    producers::{NamedProducer, Producers},
    topic::{StoredTopic, Topic},
};
use crate::data_directory::{FileError, read_checked, sync_folder_of, write_checked};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};
use wire::{ProducerEpoch, ProducerId};

/// A journal below this length is not worth a snapshot.
const JOURNAL_BYTES_MIN: u64 = 4 << 20;

/// Why the stored metadata cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The snapshot.
    #[error(transparent)]
    Snapshot(#[from] FileError),
    /// The folder cannot be read.
    #[error("cannot read {path}: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The topics were stored here once, and are gone.
    #[error("{path} holds no metadata, but this broker stored topics there: restore it from a copy")]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// A record passes its checksum and cannot be understood.
    #[error("{path}: {what}: written by a later version?")]
    NotUnderstood {
        /// The folder.
        path: PathBuf,
        /// What is not understood.
        what: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u64,
    topics: Vec<StoredTopic>,
    deleting: Vec<StoredTopic>,
    producer_ids_end: i64,
    producers: Vec<StoredProducer>,
}

/// The stored form of a named producer. Fields may be added with a default, never removed or given another meaning.
#[derive(Serialize, Deserialize)]
struct StoredProducer {
    name: String,
    id: i64,
    epoch: i16,
    continued: bool,
    retired: Vec<i64>,
    begun_ms: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredChange {
    Put(StoredTopic),
    Deleting(StoredTopic),
    Purged(String),
    ProducerIds(i64),
    Producer(StoredProducer),
    ProducerForgotten(StoredProducer),
}

/// The open store. One per process, used by one thread.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    generation: u64,
    journal: Journal,
    snapshot_bytes: u64,
}

impl Store {
    /// Opens the metadata in `folder`, with the catalog as last stored. `must_exist`: an empty folder is an error.
    pub(crate) fn open(folder: &Path, must_exist: bool) -> Result<(Store, Catalog), MetadataError> {
        let generations = generations(folder)?;
        if generations.is_empty() && must_exist {
            return Err(MetadataError::Missing { path: folder.to_owned() });
        }
        let generation = generations.iter().copied().max().unwrap_or(0);
        let (mut catalog, snapshot_bytes) = read_snapshot(folder, generation)?;
        let journal = match Journal::replay(folder, generation)? {
            Some((journal, records)) => {
                for record in records {
                    for change in decode_changes(folder, &record)? {
                        catalog.apply(&change);
                    }
                }
                journal
            }
            None => Journal::create(folder, generation)?,
        };
        catalog.producers.opened();
        for old in generations.into_iter().filter(|old| *old != generation) {
            remove_generation(folder, old)?;
        }
        Ok((Store { folder: folder.to_owned(), generation, journal, snapshot_bytes }, catalog))
    }

    /// Makes `changes` durable as one unit.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<(), MetadataError> {
        let stored: Vec<StoredChange> = changes.iter().map(StoredChange::from).collect();
        let payload = serde_json::to_vec(&stored).expect("changes are plain data");
        Ok(self.journal.append(&payload)?)
    }

    /// Writes a snapshot of `catalog`, which holds every appended change, when the journal has outgrown the last one.
    pub(crate) fn compact(&mut self, catalog: &Catalog) -> Result<(), MetadataError> {
        if self.journal.bytes() < self.snapshot_bytes.max(JOURNAL_BYTES_MIN) {
            return Ok(());
        }
        let next = self.generation + 1;
        self.snapshot_bytes = write_snapshot(&self.folder, next, catalog)?;
        self.journal = Journal::create(&self.folder, next)?;
        remove_generation(&self.folder, self.generation)?;
        self.generation = next;
        Ok(())
    }
}

impl From<&Change> for StoredChange {
    fn from(change: &Change) -> Self {
        match change {
            Change::Put(topic) => StoredChange::Put(StoredTopic::from(&**topic)),
            Change::Deleting(topic) => StoredChange::Deleting(StoredTopic::from(&**topic)),
            Change::Purged(id) => StoredChange::Purged(id.to_hex()),
            Change::ProducerIds { end } => StoredChange::ProducerIds(*end),
            Change::Producer(producer) => StoredChange::Producer(StoredProducer::from(&**producer)),
            Change::ProducerForgotten(producer) => StoredChange::ProducerForgotten(StoredProducer::from(&**producer)),
        }
    }
}

impl From<&NamedProducer> for StoredProducer {
    fn from(producer: &NamedProducer) -> Self {
        StoredProducer {
            name: producer.name.clone(),
            id: producer.id.0,
            epoch: producer.epoch.0,
            continued: producer.is_continued,
            retired: producer.retired.iter().map(|id| id.0).collect(),
            begun_ms: producer.begun_ms,
        }
    }
}

impl From<StoredProducer> for NamedProducer {
    fn from(stored: StoredProducer) -> Self {
        NamedProducer {
            name: stored.name,
            id: ProducerId(stored.id),
            epoch: ProducerEpoch(stored.epoch),
            is_continued: stored.continued,
            retired: stored.retired.into_iter().map(ProducerId).collect(),
            begun_ms: stored.begun_ms,
        }
    }
}

fn decode_changes(folder: &Path, record: &[u8]) -> Result<Vec<Change>, MetadataError> {
    let not_understood = |what: String| MetadataError::NotUnderstood { path: folder.to_owned(), what };
    let stored: Vec<StoredChange> = serde_json::from_slice(record).map_err(|error| not_understood(error.to_string()))?;
    stored
        .into_iter()
        .map(|change| match change {
            StoredChange::Put(topic) => topic.into_topic().map(|topic| Change::Put(Arc::new(topic))),
            StoredChange::Deleting(topic) => topic.into_topic().map(|topic| Change::Deleting(Arc::new(topic))),
            StoredChange::Purged(id) => wire::TopicId::from_hex(&id).map(Change::Purged),
            StoredChange::ProducerIds(end) => Some(Change::ProducerIds { end }),
            StoredChange::Producer(producer) => Some(Change::Producer(Arc::new(producer.into()))),
            StoredChange::ProducerForgotten(producer) => Some(Change::ProducerForgotten(Arc::new(producer.into()))),
        })
        .map(|change| change.ok_or_else(|| not_understood("a topic id is not one".to_owned())))
        .collect()
}

fn snapshot_path(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("snapshot-{generation:016x}"))
}

fn read_snapshot(folder: &Path, generation: u64) -> Result<(Catalog, u64), MetadataError> {
    let path = snapshot_path(folder, generation);
    let Some(snapshot) = read_checked::<Snapshot>(&path)? else {
        if generation == 0 {
            return Ok((Catalog::default(), 0));
        }
        return Err(MetadataError::Missing { path });
    };
    let topics = |stored: Vec<StoredTopic>| -> Option<Vec<Topic>> { stored.into_iter().map(StoredTopic::into_topic).collect() };
    let not_understood = || MetadataError::NotUnderstood { path: path.clone(), what: "a topic id is not one".to_owned() };
    let catalog = Catalog::restored(
        snapshot.version,
        topics(snapshot.topics).ok_or_else(not_understood)?,
        topics(snapshot.deleting).ok_or_else(not_understood)?,
        Producers::restored(snapshot.producer_ids_end, snapshot.producers.into_iter().map(NamedProducer::from)),
    );
    let bytes = fs::metadata(&path).map_err(|source| MetadataError::Folder { path: path.clone(), source })?.len();
    Ok((catalog, bytes))
}

fn write_snapshot(folder: &Path, generation: u64, catalog: &Catalog) -> Result<u64, MetadataError> {
    let mut topics: Vec<&Arc<Topic>> = catalog.topics().collect();
    topics.sort_by_key(|topic| topic.id);
    let mut producers: Vec<StoredProducer> =
        catalog.named_producers().map(|producer| StoredProducer::from(&**producer)).collect();
    producers.sort_by_key(|producer| producer.id);
    let snapshot = Snapshot {
        version: catalog.version(),
        topics: topics.into_iter().map(|topic| StoredTopic::from(&**topic)).collect(),
        deleting: catalog.deleting().map(|topic| StoredTopic::from(&**topic)).collect(),
        producer_ids_end: catalog.producers.reserved_end(),
        producers,
    };
    let path = snapshot_path(folder, generation);
    write_checked(&path, &snapshot)?;
    Ok(fs::metadata(&path).map_err(|source| MetadataError::Folder { path: path.clone(), source })?.len())
}

fn remove_generation(folder: &Path, generation: u64) -> Result<(), MetadataError> {
    // The snapshot goes last: a journal alone, above generation 0, would look like damage.
    for path in [journal_path(folder, generation), snapshot_path(folder, generation)] {
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(MetadataError::Folder { path, source }),
            _ => {}
        }
    }
    let folder_error = |source| MetadataError::Folder { path: folder.to_owned(), source };
    sync_folder_of(&journal_path(folder, generation)).map_err(folder_error)
}

/// The generations of which a file exists.
fn generations(folder: &Path) -> Result<Vec<u64>, MetadataError> {
    let error = |source| MetadataError::Folder { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(error)? {
        let name = entry.map_err(error)?.file_name();
        let name = name.to_string_lossy();
        // A `.tmp` that a crash left behind has no generation: it does not parse.
        let number = name.strip_prefix("snapshot-").or_else(|| name.strip_prefix("journal-"));
        if let Some(generation) = number.and_then(|number| u64::from_str_radix(number, 16).ok())
            && !found.contains(&generation)
        {
            found.push(generation);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::catalog::NewTopic;
    use super::*;
    use crate::config::Limits;
    use wire::{TopicConfig, TopicId};

    fn put(catalog: &mut Catalog, number: u32) -> Change {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        let name = format!("topic-{number}");
        let new = NewTopic { id: TopicId(id), name: &name, config: &TopicConfig::default(), created_ms: 1 };
        let change = catalog.create(new, &Limits::default()).unwrap();
        catalog.apply(&change);
        change
    }

    fn names(catalog: &Catalog) -> Vec<String> {
        let mut names: Vec<_> = catalog.topics().map(|topic| topic.name.clone()).collect();
        names.sort();
        names
    }

    #[test]
    fn changes_survive_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, mut catalog) = Store::open(folder.path(), false).unwrap();
        let changes: Vec<_> = (0..5).map(|number| put(&mut catalog, number)).collect();
        store.append(&changes).unwrap();
        let deleting = catalog.delete("topic-3").unwrap();
        store.append(std::slice::from_ref(&deleting)).unwrap();
        catalog.apply(&deleting);
        let (_, reopened) = Store::open(folder.path(), true).unwrap();
        assert_eq!(names(&reopened), names(&catalog));
        assert_eq!(reopened.version(), catalog.version());
        assert_eq!(reopened.deleting().count(), 1);
    }

    #[test]
    fn producers_survive_reopening_and_snapshots() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, mut catalog) = Store::open(folder.path(), false).unwrap();
        let ask = |store: &mut Store, catalog: &mut Catalog, name: Option<&str>| {
            let request = wire::InitProducerRequest { name: name.map(str::to_owned), current: None };
            let (identity, changes) = catalog.producers.init(&request, 7).unwrap();
            changes.iter().for_each(|change| catalog.apply(change));
            if !changes.is_empty() {
                store.append(&changes).unwrap();
            }
            (identity.id.0, identity.epoch.0)
        };
        assert_eq!(ask(&mut store, &mut catalog, None), (0, 0));
        assert_eq!(ask(&mut store, &mut catalog, Some("a")), (1, 0));
        assert_eq!(ask(&mut store, &mut catalog, Some("a")), (1, 1));
        let (mut store, mut catalog) = Store::open(folder.path(), true).unwrap();
        assert_eq!(ask(&mut store, &mut catalog, Some("a")), (1, 2));
        let (unnamed, _) = ask(&mut store, &mut catalog, None);
        assert!(unnamed >= 1_000, "what the first process may have given is not given again: {unnamed}");

        write_snapshot(folder.path(), 1, &catalog).unwrap();
        let (mut store, mut catalog) = Store::open(folder.path(), true).unwrap();
        assert_eq!(ask(&mut store, &mut catalog, Some("a")), (1, 3));
        assert!(ask(&mut store, &mut catalog, None).0 > unnamed);
    }

    #[test]
    fn the_journal_is_compacted_and_old_generations_go() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, mut catalog) = Store::open(folder.path(), false).unwrap();
        let changes: Vec<_> = (0..20_000).map(|number| put(&mut catalog, number)).collect();
        store.append(&changes).unwrap();
        store.compact(&catalog).unwrap();
        store.append(&[put(&mut catalog, 20_000)]).unwrap();
        store.compact(&catalog).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let (_, reopened) = Store::open(folder.path(), true).unwrap();
        assert_eq!(reopened.topics().count(), 20_001);
        assert_eq!(reopened.version(), catalog.version());
    }

    #[test]
    fn a_crash_between_snapshot_and_journal_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, mut catalog) = Store::open(folder.path(), false).unwrap();
        store.append(&[put(&mut catalog, 1)]).unwrap();
        write_snapshot(folder.path(), 1, &catalog).unwrap();
        drop(store);
        let (_, reopened) = Store::open(folder.path(), true).unwrap();
        assert_eq!(names(&reopened), ["topic-1"]);
        assert_eq!(generations(folder.path()).unwrap(), [1]);
    }

    #[test]
    fn lost_metadata_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Store::open(folder.path(), true), Err(MetadataError::Missing { .. })));
    }
}

//! Keeps a store's objects in a file, so that a server that was killed finds them again.
//!
//! One line for each write: collection, key, and the object or null. A line that a crash cut off
//! counts as never written. The file is written anew, without what is past, at each start. The
//! system's buffers are trusted: what is lost with the machine is lost.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde_json::Value;

use super::Stored;

/// Objects by collection and key.
pub(super) type Objects = BTreeMap<(String, String), Value>;

/// A file to which writes are added.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Reads what the file holds and opens it for more.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Objects)> {
        let objects = read(path)?;
        let part = path.with_extension("part");
        let mut text = Vec::new();
        for ((collection, key), object) in &objects {
            line(&mut text, collection, key, Some(object));
        }
        fs::write(&part, text)?;
        fs::rename(&part, path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok((Self { file }, objects))
    }

    /// Adds writes, oldest first; none stands for a deletion.
    pub(super) fn add(&mut self, writes: &[(String, String, Option<Stored>)]) {
        let mut text = Vec::new();
        for (collection, key, object) in writes {
            line(&mut text, collection, key, object.as_ref().map(Stored::value));
        }
        // The writes are done and seen already: a full disk must not undo them.
        if let Err(error) = self.file.write_all(&text) {
            tracing::error!(%error, "keep a write for the next start");
        }
    }
}

fn line(text: &mut Vec<u8>, collection: &str, key: &str, object: Option<&Value>) {
    text.extend(serde_json::to_vec(&(collection, key, object)).unwrap_or_default());
    text.push(b'\n');
}

fn read(path: &Path) -> io::Result<Objects> {
    let mut objects = Objects::new();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(objects),
        Err(error) => return Err(error),
    };
    for text in BufReader::new(file).split(b'\n') {
        let parsed = serde_json::from_slice::<(String, String, Option<Value>)>(&text?);
        match parsed {
            Ok((collection, key, Some(object))) => objects.insert((collection, key), object),
            Ok((collection, key, None)) => objects.remove(&(collection, key)),
            Err(_) => continue,
        };
    }
    Ok(objects)
}

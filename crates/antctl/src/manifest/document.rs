//! Cuts files into documents and documents into objects, each with its line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Error, Spanned};

use super::kinds::Reader;
use super::{Complaint, Place};

/// Reads all objects of a file.
pub(super) fn read(path: &PathBuf, reader: &mut Reader) {
    let file: Arc<Path> = Arc::from(path.as_path());
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return reader.error(Place { file, line: 1 }, error.to_string()),
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count() as u64;
            return reader.error(Place { file, line }, "not UTF-8".to_owned());
        }
    };
    if path.extension().is_some_and(|ending| ending == "json") {
        return read_json(&file, &text, reader);
    }
    for (before, document) in documents(&text) {
        read_yaml(&file, before, &document, reader);
    }
}

fn read_json(file: &Arc<Path>, text: &str, reader: &mut Reader) {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    loop {
        let offset = stream.byte_offset();
        let blank = text[offset..].len() - text[offset..].trim_start().len();
        let line = 1 + text[..offset + blank].matches('\n').count() as u64;
        let place = Place { file: file.clone(), line };
        match stream.next() {
            None => return,
            Some(Ok(object)) => put(&place, object, &|_| place.clone(), reader),
            Some(Err(error)) => {
                let line = error.line() as u64;
                let text = without_position(&error.to_string());
                return reader.error(Place { file: file.clone(), line }, text);
            }
        }
    }
}

/// A list whose items know their lines.
#[derive(Deserialize)]
struct Lines {
    #[serde(default)]
    items: Vec<Spanned<serde::de::IgnoredAny>>,
}

fn read_yaml(file: &Arc<Path>, before: u64, text: &str, reader: &mut Reader) {
    let at = |line: u64| Place { file: file.clone(), line: before + line };
    let object: Value = match parse(text) {
        Ok(Value::Null) => return,
        Ok(object) => object,
        Err(error) => {
            let line = error.location().map_or(1, |location| location.line());
            return reader.error(at(line), without_position(&error.to_string()));
        }
    };
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let first = text.lines().take_while(|line| !is_content(line)).count() as u64 + 1;
    let lines = object.get("items").and_then(|_| parse::<Lines>(text).ok());
    let item = |index: usize| {
        let line = lines.as_ref().and_then(|lines| lines.items.get(index));
        at(line.map_or(first, |item| item.referenced.line()))
    };
    put(&at(first), object, &item, reader);
}

/// `yes`, `no`, `on` and `y` are words here, as in YAML 1.2: a Namespace may be called so.
fn parse<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Error> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: None,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// The first line of a message, without the place it names: it counts from where a document begins.
fn without_position(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    first.split(" at line ").next().unwrap_or_default().to_owned()
}

/// Puts away an object, or each object of a list.
fn put(place: &Place, mut object: Value, item: &dyn Fn(usize) -> Place, reader: &mut Reader) {
    strip_nulls(&mut object);
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_list = kind.ends_with("List") && object.get("items").is_some_and(Value::is_array);
    if !is_list {
        return reader.put(place.clone(), object);
    }
    let api = object.get("apiVersion").cloned();
    let Some(Value::Array(items)) = object.get_mut("items").map(Value::take) else { return };
    for (index, mut object) in items.into_iter().enumerate() {
        // The items of a typed list need not say what they are.
        if let Some(fields) = object.as_object_mut()
            && kind != "List"
        {
            let word = kind.trim_end_matches("List");
            fields.entry("kind").or_insert_with(|| Value::String(word.to_owned()));
            if let Some(api) = &api {
                fields.entry("apiVersion").or_insert_with(|| api.clone());
            }
        }
        reader.put(item(index), object);
    }
}

/// A field that is null is a field that is not there.
fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

/// The documents of a YAML stream, each with the number of lines before it.
fn documents(text: &str) -> Vec<(u64, String)> {
    let mut documents = vec![(0, String::new())];
    for (number, line) in text.lines().enumerate() {
        // At the beginning of a line these three characters end even a block of text.
        let marker = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        let ends = line.trim_end() == "...";
        if marker.is_some() || ends {
            documents.push((number as u64, String::new()));
        }
        if let Some((_, document)) = documents.last_mut() {
            match marker {
                Some(rest) => document.extend(["   ", rest]),
                None if ends => {}
                None => document.push_str(line),
            }
            document.push('\n');
        }
    }
    documents
}

impl Reader {
    /// Notes something that could not be read.
    pub(super) fn error(&mut self, place: Place, text: String) {
        self.complaints.push(Complaint { place, text, is_error: true });
    }
}

#[cfg(test)]
mod tests {
    use super::documents;

    #[test]
    fn documents_know_their_lines() {
        let text = "a: 1\n---\nb: |\n  ---\n  x\n--- # comment\nc: 3\n...\n---\nd: 4\n";
        let cut = documents(text);
        let lines: Vec<_> = cut.iter().map(|(before, _)| *before).collect();
        assert_eq!(lines, [0, 1, 5, 7, 8]);
        assert_eq!(cut[1].1, "   \nb: |\n  ---\n  x\n");
        assert_eq!(cut[2].1, "    # comment\nc: 3\n");
    }
}

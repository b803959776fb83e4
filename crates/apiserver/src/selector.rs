//! Label and field selectors of list and watch.

use serde_json::Value;

use crate::status::ApiError;

/// A selector over labels: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut tokens = Tokens { rest: text };
        let mut requirements = Vec::new();
        if tokens.peek().is_empty() {
            return Ok(Self(requirements));
        }
        loop {
            requirements.push(requirement(&mut tokens)?);
            match tokens.next() {
                "" => return Ok(Self(requirements)),
                "," if !tokens.peek().is_empty() => {}
                found => return Err(expected(found, "',' or 'end of string'")),
            }
        }
    }

    /// Whether an object's labels satisfy the selector.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|Requirement { key, test }| {
            let value = labels.get(key).and_then(Value::as_str);
            match test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|v| values.iter().any(|own| own == v)),
                Test::NotIn(values) => value.is_none_or(|v| values.iter().all(|own| own != v)),
            }
        })
    }

    /// Whether every object matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn expected(found: &str, what: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: found '{found}', expected: {what}"))
}

struct Tokens<'a> {
    rest: &'a str,
}

const SIGNS: [char; 7] = ['=', '!', ',', '(', ')', '<', '>'];

impl<'a> Tokens<'a> {
    fn next(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let length = if self.rest.starts_with("==") || self.rest.starts_with("!=") {
            2
        } else if self.rest.starts_with(SIGNS) {
            1
        } else {
            let end = |c: char| c.is_whitespace() || SIGNS.contains(&c);
            self.rest.find(end).unwrap_or(self.rest.len())
        };
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        token
    }

    fn peek(&self) -> &'a str {
        Tokens { rest: self.rest }.next()
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(SIGNS)
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, ApiError> {
    let mut first = tokens.next();
    let absent = first == "!";
    if absent {
        first = tokens.next();
    }
    if !is_word(first) {
        return Err(expected(first, "!, identifier, or 'end of string'"));
    }
    let key = first.to_owned();
    if absent {
        return Ok(Requirement { key, test: Test::Absent });
    }
    let test = match tokens.peek() {
        "" | "," => Test::Exists,
        "=" | "==" => {
            tokens.next();
            Test::In(vec![word_or_empty(tokens)?])
        }
        "!=" => {
            tokens.next();
            Test::NotIn(vec![word_or_empty(tokens)?])
        }
        "in" => {
            tokens.next();
            Test::In(list(tokens)?)
        }
        "notin" => {
            tokens.next();
            Test::NotIn(list(tokens)?)
        }
        found => {
            return Err(expected(found, "in, notin, =, ==, !=, gt, lt"));
        }
    };
    Ok(Requirement { key, test })
}

fn word_or_empty(tokens: &mut Tokens<'_>) -> Result<String, ApiError> {
    match tokens.peek() {
        "" | "," => Ok(String::new()),
        word if is_word(word) => Ok(tokens.next().to_owned()),
        found => Err(expected(found, "identifier")),
    }
}

fn list(tokens: &mut Tokens<'_>) -> Result<Vec<String>, ApiError> {
    match tokens.next() {
        "(" => {}
        found => return Err(expected(found, "'('")),
    }
    let mut values = Vec::new();
    loop {
        match tokens.next() {
            word if is_word(word) => {
                values.push(word.to_owned());
                match tokens.next() {
                    ")" => return Ok(values),
                    "," => {}
                    found => return Err(expected(found, "',' or ')'")),
                }
            }
            "," => values.push(String::new()),
            ")" if !values.is_empty() => return Ok(values),
            found => return Err(expected(found, "',', ')' or identifier")),
        }
    }
}

/// A selector over fields: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses `metadata.name=a,spec.nodeName!=b`.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let terms = text.split(',').filter(|term| !term.is_empty()).map(|term| {
            let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = term.split_once("==") {
                (path, value, true)
            } else if let Some((path, value)) = term.split_once('=') {
                (path, value, true)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                )));
            };
            Ok(Term { path: path.trim().to_owned(), value: value.to_owned(), equal })
        });
        terms.collect::<Result<_, _>>().map(Self)
    }

    /// Refuses paths that the resource does not offer besides the two that all have.
    pub fn check(&self, offered: &[&str]) -> Result<(), ApiError> {
        for Term { path, .. } in &self.0 {
            let common = matches!(path.as_str(), "metadata.name" | "metadata.namespace");
            if common || offered.contains(&path.as_str()) {
                continue;
            }
            return Err(ApiError::bad_request(if offered.is_empty() {
                format!(
                    "{path:?} is not a known field selector: only \"metadata.name\", \
                     \"metadata.namespace\""
                )
            } else {
                format!("field label not supported: {path}")
            }));
        }
        Ok(())
    }

    /// Whether an object's fields satisfy the selector; a missing field equals an empty one.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|Term { path, value, equal }| {
            let found = path.split('.').fold(object, |inner, name| &inner[name]);
            let same = match found {
                Value::String(text) => text == value,
                Value::Null => value.is_empty() || value == "false",
                other => format!("{other}") == *value,
            };
            same == *equal
        })
    }

    /// The value that `path` must equal, if the selector says so.
    pub fn wanted(&self, path: &str) -> Option<&str> {
        let mut terms = self.0.iter().filter(|term| term.equal && term.path == path);
        terms.next().map(|term| term.value.as_str())
    }

    /// Whether every object matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_select() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": ""}}});
        for (selector, want) in [
            ("", true),
            ("a=1", true),
            ("a==1,b", true),
            ("a!=1", false),
            ("a in (2, 1)", true),
            ("a notin (1)", false),
            ("c notin (1)", true),
            ("!c", true),
            ("!a", false),
            ("c", false),
            ("b=", true),
            ("a in (1),c", false),
        ] {
            let parsed = LabelSelector::parse(selector).unwrap();
            assert_eq!(parsed.matches(&object), want, "{selector}");
        }
        for bad in ["a in (", "a in", "=", "a=1,", "a b", "!", "a in ()", "(", "a=1=2", ",,"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(
            LabelSelector::parse("a in (").unwrap_err().message,
            "unable to parse requirement: found '', expected: ',', ')' or identifier"
        );
    }

    #[test]
    fn field_selectors_select() {
        let object = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}});
        for (selector, want) in [
            ("metadata.name=p", true),
            ("metadata.name==p,spec.nodeName=n", true),
            ("spec.nodeName!=n", false),
            ("status.phase=", true),
            ("spec.nodeName=", false),
        ] {
            assert_eq!(
                FieldSelector::parse(selector).unwrap().matches(&object),
                want,
                "{selector}"
            );
        }
        assert!(FieldSelector::parse("data.a=b").unwrap().check(&[]).is_err());
        assert!(FieldSelector::parse("nonsense").is_err());
    }
}

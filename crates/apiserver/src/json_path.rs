//! The JSONPath that printer columns use: `.a.b`, `['a']`, `[0]`, `[*]`, `[?(@.x=="y")].z`.

use serde_json::Value;

/// The first value that a path leads to.
pub fn first<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    find(object, path.trim_start_matches('$').trim()).into_iter().next()
}

fn find<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    if path.is_empty() {
        return vec![value];
    }
    if let Some(rest) = path.strip_prefix('[') {
        let Some((inside, rest)) = split_bracket(rest) else { return Vec::new() };
        return step(value, inside).into_iter().flat_map(|inner| find(inner, rest)).collect();
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    let end = name_end(path);
    let (name, rest) = path.split_at(end);
    if name.is_empty() {
        return if rest.starts_with('[') { find(value, rest) } else { Vec::new() };
    }
    let name = name.replace("\\.", ".");
    value.get(&name).map(|inner| find(inner, rest)).unwrap_or_default()
}

/// End of a name: the next dot or bracket that no backslash hides.
fn name_end(path: &str) -> usize {
    let mut hidden = false;
    for (at, c) in path.char_indices() {
        match c {
            _ if hidden => hidden = false,
            '\\' => hidden = true,
            '.' | '[' => return at,
            _ => {}
        }
    }
    path.len()
}

/// What stands in a bracket, and what follows it; quotes hide a closing bracket.
fn split_bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some((&text[..at], &text[at + 1..])),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

fn unquote(text: &str) -> Option<&str> {
    let text = text.trim();
    ['\'', '"'].iter().find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q))
}

fn step<'a>(value: &'a Value, inside: &str) -> Vec<&'a Value> {
    if let Some(name) = unquote(inside) {
        return value.get(name).into_iter().collect();
    }
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if inside == "*" {
        return items.iter().collect();
    }
    if let Ok(index) = inside.parse::<usize>() {
        return items.get(index).into_iter().collect();
    }
    let Some(test) = inside.strip_prefix("?(").and_then(|test| test.strip_suffix(')')) else {
        return Vec::new();
    };
    let Some((path, wanted)) = test.split_once("==") else { return Vec::new() };
    let path = path.trim().trim_start_matches('@');
    let wanted = unquote(wanted).unwrap_or(wanted.trim());
    items
        .iter()
        .filter(|item| {
            find(item, path).first().is_some_and(|found| match found {
                Value::String(text) => text == wanted,
                other => format!("{other}") == wanted,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({
            "a": {"b": 1, "x.y": 2},
            "list": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}],
        });
        for (path, want) in [
            (".a.b", Some(json!(1))),
            ("$.a.b", Some(json!(1))),
            (".a['x.y']", Some(json!(2))),
            (".a.x\\.y", Some(json!(2))),
            (".list[1].type", Some(json!("B"))),
            (".list[*].type", Some(json!("A"))),
            (".list[?(@.type==\"B\")].status", Some(json!("False"))),
            (".list[?(@.type=='C')].status", None),
            (".none", None),
            (".list[9]", None),
            (".[", None),
            ("..", None),
        ] {
            assert_eq!(first(&object, path).cloned(), want, "{path}");
        }
    }
}

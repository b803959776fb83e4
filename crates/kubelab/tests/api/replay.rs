//! Recorded exchanges with Kubernetes' own server: ours gives the same answers.
//!
//! A fixture is a list of steps. Text in angle brackets stands for what varies: `<uid:1>` is
//! bound where it is first met and must be the same from then on, so that a version that should
//! stay is seen to stay. Reads are repeated for a while, as some answers come from control loops.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use kubelab::client::{Answer, Client};
use kubelab::testing;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

type Bindings = BTreeMap<String, String>;

/// Puts what is bound in place of its names.
fn fill(value: &Value, bindings: &Bindings) -> Value {
    match value {
        Value::String(text) => json!(fill_text(text, bindings)),
        Value::Array(items) => items.iter().map(|item| fill(item, bindings)).collect(),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| (key.clone(), fill(value, bindings)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

fn fill_text(text: &str, bindings: &Bindings) -> String {
    let mut text = text.to_owned();
    for (name, value) in bindings {
        text = text.replace(name, value);
    }
    text
}

/// Matches text against a pattern, binding names where they are met first.
fn match_text(want: &str, got: &str, bindings: &mut Bindings) -> bool {
    let want = fill_text(want, bindings);
    let Some((before, rest)) = want.split_once('<') else { return want == got };
    let Some((name, after)) = rest.split_once('>') else { return want == got };
    let known = ["any", "time", "age"].contains(&name) || name.contains(':');
    if !known {
        return want == got; // `<none>` in a table is text.
    }
    let Some(got) = got.strip_prefix(before) else { return false };
    let next = after.split('<').next().unwrap_or("");
    let end = if next.is_empty() { Some(got.len()) } else { got.find(next) };
    let Some(end) = end else { return false };
    let (value, rest) = got.split_at(end);
    let fits = match name {
        "any" => true,
        "time" => value.len() == 20 && value.ends_with('Z'),
        "age" => value.ends_with('s'),
        _ => {
            bindings.insert(format!("<{name}>"), value.to_owned());
            !value.is_empty()
        }
    };
    fits && match_text(after, rest, bindings)
}

/// Compares; with `part`, objects may hold more than is wanted.
fn compare(
    want: &Value,
    got: &Value,
    part: bool,
    bindings: &mut Bindings,
    path: &str,
) -> Result<(), String> {
    let differs = || Err(format!("{path}: want {want}, got {got}"));
    match (want, got) {
        (Value::String(want), Value::String(got)) if match_text(want, got, bindings) => Ok(()),
        (Value::Array(wanted), Value::Array(items)) if wanted.len() == items.len() => {
            wanted.iter().zip(items).enumerate().try_for_each(|(at, (w, g))| {
                compare(w, g, part, bindings, &format!("{path}[{at}]"))
            })
        }
        (Value::Object(wanted), Value::Object(map)) => {
            if let Some(extra) = map.keys().find(|key| !part && !wanted.contains_key(*key)) {
                return Err(format!("{path}.{extra}: unexpected {}", map[extra]));
            }
            wanted.iter().try_for_each(|(key, want)| {
                let got = map.get(key).unwrap_or(&Value::Null);
                compare(want, got, part, bindings, &format!("{path}.{key}"))
            })
        }
        (want, got) if want == got && !want.is_string() => Ok(()),
        _ => differs(),
    }
}

/// A slice's endpoints have no order: that of their addresses is as good as any.
fn sort_endpoints(answer: &mut Value) {
    let slices = answer.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
    for endpoints in slices.filter_map(|slice| slice.get_mut("endpoints")?.as_array_mut()) {
        endpoints.sort_by_key(|endpoint| endpoint["addresses"][0].to_string());
    }
}

/// Table columns as lists, without their descriptions.
fn short_columns(answer: &mut Value) {
    if let Some(columns) = answer["columnDefinitions"].as_array() {
        answer["columnDefinitions"] = columns
            .iter()
            .map(|c| json!([c["name"], c["type"], c["format"], c["priority"]]))
            .collect();
    }
}

async fn send(client: &Client, step: &Value, bindings: &Bindings) -> Answer {
    let text = |name: &str| step[name].as_str();
    let method: Method = text("method").unwrap().parse().unwrap();
    let path = fill_text(text("path").unwrap(), bindings).replace(' ', "%20");
    let body = match &step["body"] {
        Value::Null => String::new(),
        Value::String(raw) => raw.clone(),
        body => fill(body, bindings).to_string(),
    };
    let mut headers = Vec::new();
    if !body.is_empty() {
        headers.push(("content-type", text("type").unwrap_or("application/json")));
    }
    headers.push(("accept", text("accept").unwrap_or("application/json")));
    if let Some(user) = step["as"][0].as_str() {
        headers.push(("impersonate-user", user));
    }
    if let Some(group) = step["as"][1].as_str() {
        headers.push(("impersonate-group", group));
    }
    client.send(method, &path, &headers, body).await.unwrap()
}

fn check(step: &Value, answer: &Answer, bindings: &mut Bindings) -> Result<(), String> {
    if step["code"] != answer.code {
        return Err(format!("want code {}, got {}: {}", step["code"], answer.code, answer.json()));
    }
    for header in ["warning", "retry-after"] {
        let got = answer.headers.get(header).and_then(|value| value.to_str().ok());
        if step[header].as_str() != got {
            return Err(format!("{header}: want {}, got {got:?}", step[header]));
        }
    }
    let mut got = match step["answer"] {
        Value::Null => return Ok(()),
        Value::String(_) => json!(String::from_utf8_lossy(&answer.body)),
        _ => answer.json(),
    };
    short_columns(&mut got);
    sort_endpoints(&mut got);
    let mut attempt = bindings.clone();
    compare(&step["answer"], &got, step["part"] == true, &mut attempt, "")?;
    *bindings = attempt;
    Ok(())
}

async fn replay(fixture: &str) {
    let served = testing::start_with(|options| {
        options.service_cidrs = vec!["127.100.0.0/16".parse().unwrap()];
    });
    let served = served.await.unwrap();
    let client = served.admin_client().unwrap();
    let steps: Vec<Value> = serde_json::from_str(fixture).unwrap();
    let mut bindings = Bindings::new();
    let mut wrong = Vec::new();
    for step in &steps {
        let deadline = Instant::now() + Duration::from_secs(1);
        let result = loop {
            let answer = send(&client, step, &bindings).await;
            let result = check(step, &answer, &mut bindings);
            if result.is_ok() || step["method"] != "GET" || Instant::now() > deadline {
                break result;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        if let Err(why) = result {
            wrong.push(format!("{} {} {}: {why}", step["name"], step["method"], step["path"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! replays {
    ($($name:ident => $file:literal,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                replay(include_str!(concat!("exchanges/", $file, ".json"))).await;
            }
        )*
    };
}

replays! {
    namespaces => "namespaces",
    pods => "pods",
    services_and_slices => "services",
    config_maps_leases_and_nodes => "configmaps-leases-nodes",
    errors => "errors",
    lists_selectors_and_pages => "list-select-page",
    patches => "patch",
    applies => "apply",
    tables_and_metadata => "table-partial",
    deletes_and_dry_runs => "delete-gc-dryrun",
    tokens_and_reviews => "auth",
}

use serde_json::json;

use super::*;

fn mk_schema() -> Schema {
    let schema = json!({
        "type": "object", "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object", "required": ["size"],
                "properties": {
                    "size": { "type": "integer", "minimum": 1, "maximum": 10 },
                    "mode": { "type": "string", "enum": ["A", "B"], "default": "A" },
                    "id": { "type": "string", "maxLength": 8, "pattern": "^[a-z]+$" },
                    "tags": {
                        "type": "array", "items": { "type": "string" },
                        "x-kubernetes-list-type": "set",
                    },
                    "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "nested": {
                        "type": "object", "default": {},
                        "properties": { "on": { "type": "boolean", "default": true } },
                    },
                    "port": { "x-kubernetes-int-or-string": true },
                    "net": { "type": "string", "format": "cidr", "nullable": true },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                    "one": {
                        "type": "object",
                        "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
                        "oneOf": [{ "required": ["a"] }, { "required": ["b"] }],
                    },
                },
            },
        },
    });
    compile(&schema, "schema").unwrap()
}

#[test]
fn unknown_fields_go_and_defaults_come() {
    let mut object = json!({
        "apiVersion": "v1", "kind": "K", "metadata": { "name": "a", "labels": { "l": "1" } },
        "spec": { "size": 3, "bogus": 1, "any": { "x": { "y": 1 } }, "labels": { "k": "v" },
                  "one": { "a": "x", "c": 1 } },
        "more": 1,
    });
    mk_schema().prune_and_default(&mut object);
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1", "kind": "K", "metadata": { "name": "a", "labels": { "l": "1" } },
            "spec": { "size": 3, "any": { "x": { "y": 1 } }, "labels": { "k": "v" }, "mode": "A",
                      "nested": { "on": true }, "one": { "a": "x" } },
        })
    );
}

#[test]
fn values_are_checked() {
    let schema = mk_schema();
    for (spec, want) in [
        (json!({ "size": 3 }), ""),
        (
            json!({ "size": 11 }),
            "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
        ),
        (
            json!({ "size": 1, "mode": "C" }),
            "spec.mode: Unsupported value: \"C\": supported values: \"A\", \"B\"",
        ),
        (
            json!({ "size": 1, "id": "ABC" }),
            "spec.id: Invalid value: \"ABC\": spec.id in body should match '^[a-z]+$'",
        ),
        (
            json!({ "size": 1, "id": "abcdefghi" }),
            "spec.id: Too long: may not be more than 8 bytes",
        ),
        (json!({ "size": 1, "tags": ["t", "t"] }), "spec.tags[1]: Duplicate value: \"t\""),
        (
            json!({ "size": "x" }),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (json!({}), "spec.size: Required value"),
        (json!({ "size": 1, "port": 1, "net": null }), ""),
        (json!({ "size": 1, "port": "http", "net": "10.0.0.0/8" }), ""),
        (
            json!({ "size": 1, "port": true }),
            "spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({ "size": 1, "net": "10.0.0.0/33" }),
            "spec.net: Invalid value: \"10.0.0.0/33\": spec.net in body must be of type cidr: \"10.0.0.0/33\"",
        ),
        (json!({ "size": 1, "one": { "a": "x" } }), ""),
        (
            json!({ "size": 1, "one": {} }),
            "spec.one: Invalid value: {}: \"spec.one\" must validate one and only one schema (oneOf)",
        ),
        (
            json!({ "size": 1, "labels": { "k": 1 } }),
            "spec.labels.k: Invalid value: \"integer\": spec.labels.k in body must be of type string: \"integer\"",
        ),
    ] {
        let errors = schema.validate(&json!({ "spec": spec }));
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.join("; "), want, "{spec}");
    }
}

#[test]
fn schemas_must_be_structural() {
    for (schema, want) in [
        (json!({ "type": "object", "properties": { "a": {} } }), Some("s.properties[a].type: ")),
        (json!({ "type": "string", "pattern": "(" }), Some("s.pattern: ")),
        (json!({ "type": "object", "anyOf": [{ "required": ["x"] }] }), None),
    ] {
        let errors = compile(&schema, "s").err().unwrap_or_default();
        let text = errors.first().map(ToString::to_string);
        match (&text, want) {
            (Some(text), Some(want)) => assert!(text.starts_with(want), "{text}"),
            (text, want) => assert_eq!(text.as_deref(), want),
        }
    }
}

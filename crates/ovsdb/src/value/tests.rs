use proptest::prelude::*;

use super::*;

fn atom() -> impl Strategy<Value = Atom> {
    prop_oneof![
        any::<i64>().prop_map(Atom::Integer),
        // Eighths: serde_json does not promise the last bit of every float.
        any::<i32>().prop_map(|i| Atom::Real(f64::from(i) / 8.0)),
        any::<bool>().prop_map(Atom::Boolean),
        any::<String>().prop_map(Atom::String),
        any::<u128>().prop_map(|u| Atom::Uuid(Uuid::from_u128(u))),
        any::<String>().prop_map(Atom::NamedUuid),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        atom().prop_map(Value::Atom),
        prop::collection::vec(atom(), 0..5).prop_map(Value::Set),
        prop::collection::vec((atom(), atom()), 0..5).prop_map(Value::Map),
    ]
}

/// Any JSON, mostly of the shapes that values have.
fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        prop_oneof![Just("set"), Just("map"), Just("uuid"), Just("named-uuid"), Just("x")]
            .prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::hash_map("[a-c]", inner, 0..3)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_comes_back_from_its_json(value in value()) {
        let text = value.to_json().to_string();
        let json: Json = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(Value::from_json(&json).unwrap(), value);
    }

    #[test]
    fn any_json_is_read_or_refused(json in json()) {
        if let Ok(value) = Value::from_json(&json) {
            prop_assert_eq!(Value::from_json(&value.to_json()).unwrap(), value);
        }
    }
}

#[test]
fn malformed_values_name_what_was_expected() {
    for (text, expected) in [
        ("null", "not an atom: null"),
        (r#"["set",[["uuid","1"]]]"#, r#"not an atom: ["uuid","1"]"#),
        (r#"["bag",[]]"#, r#"not a set or a map: ["bag",[]]"#),
        (r#"["map",[["k"]]]"#, r#"not a pair: ["k"]"#),
        (r#"{}"#, "not an atom: {}"),
    ] {
        let error = Value::from_json(&serde_json::from_str(text).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[test]
fn a_long_value_is_shown_by_its_beginning() {
    let error = ValueError::new("an atom", &Json::from("é".repeat(500)));
    assert_eq!(error.found.chars().count(), 81);
}

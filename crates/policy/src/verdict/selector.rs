//! Label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub(super) type Labels = BTreeMap<String, String>;

/// Whether a selector matches labels. An empty one matches all; an unknown operator matches none.
pub(super) fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key).is_some_and(|have| have == value));
    equal
        && selector.match_expressions.iter().flatten().all(|need| {
            let have = labels.get(&need.key);
            let listed =
                || have.is_some_and(|have| need.values.iter().flatten().any(|value| value == have));
            match need.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => have.is_some(),
                "DoesNotExist" => have.is_none(),
                _ => false,
            }
        })
}

/// The first operator of a selector that has no meaning.
pub(super) fn unknown_operator(selector: &LabelSelector) -> Option<&str> {
    let needs = selector.match_expressions.iter().flatten();
    needs
        .map(|need| need.operator.as_str())
        .find(|operator| !["In", "NotIn", "Exists", "DoesNotExist"].contains(operator))
}

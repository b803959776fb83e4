use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn mk_pod(namespace: &str, name: &str, labels: &[(&str, &str)]) -> PodInput {
    PodInput {
        namespace: namespace.into(),
        name: name.into(),
        labels: mk_labels(labels),
        node: "n1".into(),
        ips: vec!["10.0.0.1".parse().unwrap()],
        service_account: "default".into(),
        ..PodInput::default()
    }
}

fn mk_labels(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn set_namespace(index: &mut Index, name: &str, labels: Option<&[(&str, &str)]>) -> Vec<Effect> {
    match labels {
        Some(labels) => {
            let input = NamespaceInput {
                name: name.into(),
                labels: mk_labels(labels),
                log_policies: false,
            };
            let effects = index.namespace_effects(name, Some(&pack_labels(&input)));
            index.upsert_namespace(&input, &effects);
            effects
        }
        None => {
            let effects = index.namespace_effects(name, None);
            index.remove_namespace(name, &effects);
            effects
        }
    }
}

fn in_namespace(index: &mut Index, namespace: &str, selector: Selector) -> SelectorId {
    let namespace = index.use_namespace(namespace);
    index.use_selector(Scope::Namespace(namespace), selector)
}

fn in_namespaces(index: &mut Index, namespaces: &Selector, selector: Selector) -> SelectorId {
    let namespaces = index.use_namespace_selector(namespaces);
    index.use_selector(Scope::Namespaces(namespaces), selector)
}

fn selected(index: &Index, id: SelectorId) -> BTreeSet<String> {
    let cohorts = index.selected(id).iter();
    let pods = cohorts.flat_map(|cohort| index.cohort_of(*cohort).pods());
    pods.map(|pod| {
        let record = index.pod(*pod).unwrap().1;
        format!("{}/{}", record.namespace(), record.name())
    })
    .collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn membership_follows_pods_and_namespaces() {
    let mut index = Index::default();
    let web = Selector::equal("app", "web");
    let prod = Selector::equal("env", "prod");
    let own = in_namespace(&mut index, "x", web.clone());
    let wide = in_namespaces(&mut index, &prod, web.clone());
    index.upsert_pod(mk_pod("x", "a", &[("app", "web")]));
    let b = index.upsert_pod(mk_pod("y", "b", &[("app", "db")]));
    set_namespace(&mut index, "x", Some(&[]));
    set_namespace(&mut index, "y", Some(&[("env", "prod")]));
    assert_eq!(selected(&index, own), names(&["x/a"]));
    assert_eq!(selected(&index, wide), names(&[]));
    // A Pod's labels change.
    let moved = index.upsert_pod(mk_pod("y", "b", &[("app", "web")]));
    assert_eq!(moved.pod, b.pod);
    assert_eq!(selected(&index, wide), names(&["y/b"]));
    // A namespace's labels change, and a new Pod of it inherits that.
    assert_eq!(set_namespace(&mut index, "x", Some(&[("env", "prod")])).len(), 1);
    index.upsert_pod(mk_pod("x", "c", &[("app", "web"), ("v", "2")]));
    assert_eq!(selected(&index, wide), names(&["x/a", "x/c", "y/b"]));
    set_namespace(&mut index, "y", None);
    assert_eq!(selected(&index, wide), names(&["x/a", "x/c"]));
    let a = index.find_pod("x", "a").unwrap();
    index.remove_pod(a.pod);
    assert_eq!(selected(&index, own), names(&["x/c"]));
    // The same selector is the same number.
    assert_eq!(in_namespace(&mut index, "x", web), own);
}

#[test]
fn service_accounts_are_no_labels() {
    let mut index = Index::default();
    index.upsert_pod(mk_pod("x", "a", &[]));
    let key = "internal.antrea.io/service-account";
    index.upsert_pod(PodInput {
        service_account: "other".into(),
        ..mk_pod("x", "b", &[(key, "default")])
    });
    let account = in_namespace(&mut index, "x", Selector::equal(SERVICE_ACCOUNT_LABEL, "default"));
    assert_eq!(selected(&index, account), names(&["x/a"]));
    let label = in_namespace(&mut index, "x", Selector::equal(key, "default"));
    assert_eq!(selected(&index, label), names(&["x/b"]));
}

#[test]
fn nothing_is_kept_that_nobody_uses() {
    let mut index = Index::default();
    let a = in_namespaces(&mut index, &Selector::equal("k", "v"), Selector::equal("a", "b"));
    let b = in_namespace(&mut index, "z", Selector::everything());
    set_namespace(&mut index, "z", Some(&[("k", "v")]));
    for n in 0..10 {
        let value = n.to_string();
        index.upsert_pod(mk_pod("z", &value, &[("n", value.as_str()), ("a", "b")]));
    }
    assert_eq!(selected(&index, a).len(), 10);
    for n in 0..10 {
        let pod = index.find_pod("z", &n.to_string()).unwrap();
        index.remove_pod(pod.pod);
    }
    assert_eq!(index.release_selector(a), Released::Gone);
    assert_eq!(index.release_selector(b), Released::Gone);
    set_namespace(&mut index, "z", None);
    assert!(index.cohorts.is_empty() && index.selectors.is_empty() && index.pods.is_empty());
    assert!(index.namespaces.is_empty() && index.namespace_selectors.is_empty());
    assert!(index.cohorts_by_label.is_empty() && index.selectors_by_label.is_empty());
    assert_eq!(index.label_sets.len(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Pod(u8, u8, Vec<(u8, u8)>),
    NoPod(u8, u8),
    Namespace(u8, Vec<(u8, u8)>),
    NoNamespace(u8),
    Select(Option<u8>, Vec<(u8, u8, u8)>, Vec<(u8, u8, u8)>),
    Unselect(u8),
}

fn labels_strategy() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((0u8..3, 0u8..3), 0..3)
}

fn selector_strategy() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((0u8..5, 0u8..3, 0u8..3), 0..3)
}

fn step_strategy() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..3, 0u8..4, labels_strategy()).prop_map(|(n, p, l)| Step::Pod(n, p, l)),
        1 => (0u8..3, 0u8..4).prop_map(|(n, p)| Step::NoPod(n, p)),
        2 => (0u8..3, labels_strategy()).prop_map(|(n, l)| Step::Namespace(n, l)),
        1 => (0u8..3).prop_map(Step::NoNamespace),
        3 => (prop::option::of(0u8..3), selector_strategy(), selector_strategy())
            .prop_map(|(n, s, p)| Step::Select(n, s, p)),
        1 => any::<u8>().prop_map(Step::Unselect),
    ]
}

fn text(labels: &[(u8, u8)]) -> Vec<(String, String)> {
    labels.iter().map(|(key, value)| (format!("k{key}"), format!("v{value}"))).collect()
}

fn compile(parts: &[(u8, u8, u8)]) -> Selector {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
    let expressions = parts.iter().map(|(operator, key, value)| {
        let one = || Some(vec![format!("v{value}")]);
        let (operator, values) = match operator {
            0 => ("In", one()),
            1 => ("In", Some(vec!["v0".to_owned(), format!("v{value}")])),
            2 => ("NotIn", one()),
            3 => ("Exists", None),
            _ => ("DoesNotExist", None),
        };
        LabelSelectorRequirement { key: format!("k{key}"), operator: operator.into(), values }
    });
    let selector =
        LabelSelector { match_expressions: Some(expressions.collect()), match_labels: None };
    Selector::compile(&selector).unwrap()
}

proptest! {
    #[test]
    fn selection_equals_matching_every_pod(steps in prop::collection::vec(step_strategy(), 1..60)) {
        let mut index = Index::default();
        let mut pods = std::collections::BTreeMap::new();
        let mut namespaces = std::collections::BTreeMap::new();
        let mut groups: Vec<(Option<u8>, Selector, Selector, SelectorId)> = Vec::new();
        for step in steps {
            match step {
                Step::Pod(namespace, name, labels) => {
                    let mut pod = mk_pod(&format!("n{namespace}"), &format!("p{name}"), &[]);
                    pod.labels = text(&labels);
                    index.upsert_pod(pod);
                    pods.insert((namespace, name), labels);
                }
                Step::NoPod(namespace, name) => {
                    if let Some(pod) = index.find_pod(&format!("n{namespace}"), &format!("p{name}")) {
                        index.remove_pod(pod.pod);
                    }
                    pods.remove(&(namespace, name));
                }
                Step::Namespace(name, labels) => {
                    let input = NamespaceInput {
                        name: format!("n{name}"),
                        labels: text(&labels),
                        log_policies: false,
                    };
                    let effects = index.namespace_effects(&input.name, Some(&pack_labels(&input)));
                    index.upsert_namespace(&input, &effects);
                    namespaces.insert(name, labels);
                }
                Step::NoNamespace(name) => {
                    set_namespace(&mut index, &format!("n{name}"), None);
                    namespaces.remove(&name);
                }
                Step::Select(namespace, scope, selector) => {
                    let (scope, selector) = (compile(&scope), compile(&selector));
                    let id = match namespace {
                        Some(n) => in_namespace(&mut index, &format!("n{n}"), selector.clone()),
                        None => in_namespaces(&mut index, &scope, selector.clone()),
                    };
                    groups.push((namespace, scope, selector, id));
                }
                Step::Unselect(which) => {
                    if !groups.is_empty() {
                        let gone = groups.swap_remove(usize::from(which) % groups.len());
                        index.release_selector(gone.3);
                    }
                }
            }
        }
        for (namespace, scope, selector, id) in &groups {
            let mut want = BTreeSet::new();
            for ((own, name), labels) in &pods {
                let in_scope = match namespace {
                    Some(namespace) => namespace == own,
                    None => namespaces.get(own).is_some_and(|labels| {
                        let labels = text(labels);
                        scope.matches(&Labels::pack(
                            labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))))
                    }),
                };
                let labels = text(labels);
                let labels = Labels::pack(labels.iter().map(|(k, v)| (k.as_str(), v.as_str())));
                if in_scope && selector.matches(&labels) {
                    want.insert(format!("n{own}/p{name}"));
                }
            }
            prop_assert_eq!(selected(&index, *id), want);
        }
    }
}

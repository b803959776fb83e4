//! What is done to policies and labels, and which exchanges there are then.

use super::table::{Allows, Cell, World};

/// One change.
pub(super) enum Do {
    /// Applies manifests.
    Apply(String),
    /// Deletes the policy or group of a manifest.
    Delete(String),
    /// Sets a label of a Pod.
    LabelPod {
        /// Its namespace.
        namespace: &'static str,
        /// Its name.
        pod: &'static str,
        /// Key and value.
        label: (&'static str, &'static str),
    },
    /// Sets a label of a namespace.
    LabelNamespace {
        /// Its name.
        namespace: &'static str,
        /// Key and value.
        label: (&'static str, &'static str),
    },
}

/// Changes, and the table after them.
pub(super) struct Step {
    pub(super) what: Vec<Do>,
    pub(super) allows: Box<Allows>,
}

/// Steps one after another; policies are gone behind them.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
    pub(super) undo: Vec<Do>,
}

pub(super) fn step(what: Vec<Do>, allows: impl Fn(&Cell<'_>) -> bool + Sync + 'static) -> Step {
    Step { what, allows: Box::new(allows) }
}

pub(super) fn scene(name: &'static str, steps: Vec<Step>) -> Scene {
    Scene { name, steps, undo: Vec::new() }
}

/// A policy in a namespace, by the lines of its `spec`.
pub(super) fn policy(namespace: &str, name: &str, spec: &str) -> Do {
    let spec: String = spec.lines().map(|line| format!("  {}\n", line.trim_end())).collect();
    Do::Apply(format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: \"{name}\", \
         namespace: \"{namespace}\"}}\nspec:\n{spec}"
    ))
}

/// Selects Pod `a` and lets some peers in.
fn into_a(from: &str) -> String {
    format!("podSelector: {{matchLabels: {{pod: a}}}}\npolicyTypes: [Ingress]\ningress:\n- {from}")
}

const X_A: (&str, &str) = ("x", "a");

/// All scenes.
pub(super) fn all(world: &World) -> Vec<Scene> {
    let mut all = peers();
    all.extend(addresses(world));
    all.extend(ports());
    all.extend(egress());
    all.extend(changes());
    all
}

fn peers() -> Vec<Scene> {
    vec![
        scene(
            "default deny of ingress",
            vec![step(
                vec![policy("x", "deny", "podSelector: {}\npolicyTypes: [Ingress]")],
                |cell| cell.to().0 != "x",
            )],
        ),
        scene(
            "default deny of egress",
            vec![step(
                vec![policy("x", "deny", "podSelector: {}\npolicyTypes: [Egress]")],
                |cell| cell.from().0 != "x",
            )],
        ),
        scene(
            "default deny of both",
            vec![step(
                vec![policy("x", "deny", "podSelector: {}\npolicyTypes: [Ingress, Egress]")],
                |cell| cell.to().0 != "x" && cell.from().0 != "x",
            )],
        ),
        scene(
            "ingress from all",
            vec![step(
                vec![policy("x", "all", "podSelector: {}\npolicyTypes: [Ingress]\ningress: [{}]")],
                |_| true,
            )],
        ),
        scene(
            "ingress by Pod selector",
            vec![step(
                vec![policy("x", "p", &into_a("from: [{podSelector: {matchLabels: {pod: b}}}]"))],
                |cell| cell.to() != X_A || cell.from() == ("x", "b"),
            )],
        ),
        scene(
            "ingress by Pod selector with expressions",
            vec![step(
                vec![policy(
                    "x",
                    "p",
                    &into_a(
                        "from: [{podSelector: {matchExpressions: [{key: pod, operator: NotIn, \
                         values: [b]}]}}]",
                    ),
                )],
                |cell| cell.to() != X_A || cell.from() == ("x", "c"),
            )],
        ),
        scene(
            "ingress by namespace selector",
            vec![step(
                vec![policy(
                    "x",
                    "n",
                    &into_a("from: [{namespaceSelector: {matchLabels: {ns: \"y\"}}}]"),
                )],
                |cell| cell.to() != X_A || cell.from().0 == "y",
            )],
        ),
        scene(
            "ingress by namespace and Pod selector of one peer",
            vec![step(
                vec![policy(
                    "x",
                    "np",
                    &into_a(
                        "from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: In, \
                         values: [\"y\", z]}]}, podSelector: {matchLabels: {pod: b}}}]",
                    ),
                )],
                |cell| cell.to() != X_A || (cell.from().0 != "x" && cell.from().1 == "b"),
            )],
        ),
        scene(
            "ingress by two peers, either of which suffices",
            vec![step(
                vec![policy(
                    "x",
                    "either",
                    &into_a(
                        "from: [{namespaceSelector: {matchLabels: {ns: \"y\"}}}, {podSelector: \
                         {matchLabels: {pod: c}}}]",
                    ),
                )],
                |cell| cell.to() != X_A || cell.from().0 == "y" || cell.from() == ("x", "c"),
            )],
        ),
        scene(
            "policies add up",
            vec![
                step(
                    vec![
                        policy("x", "deny", "podSelector: {}\npolicyTypes: [Ingress]"),
                        policy("x", "b", &into_a("from: [{podSelector: {matchLabels: {pod: b}}}]")),
                    ],
                    |cell| cell.to().0 != "x" || (cell.to() == X_A && cell.from() == ("x", "b")),
                ),
                step(
                    vec![policy(
                        "x",
                        "z",
                        &into_a("from: [{namespaceSelector: {matchLabels: {ns: z}}}]"),
                    )],
                    |cell| {
                        let into_a = cell.from() == ("x", "b") || cell.from().0 == "z";
                        cell.to().0 != "x" || (cell.to() == X_A && into_a)
                    },
                ),
            ],
        ),
    ]
}

fn addresses(world: &World) -> Vec<Scene> {
    let block = |namespace: &str, pod: &str| -> Vec<String> {
        let addresses = &world.place(namespace, pod).addresses;
        let length = |ip: &std::net::IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        addresses.iter().map(|ip| format!("{ip}/{}", length(ip))).collect()
    };
    let peer = |cidr: &str, except: &[String]| {
        let of_family = |net: &&String| net.contains(':') == cidr.contains(':');
        let except: Vec<String> =
            except.iter().filter(of_family).map(|net| format!("\"{net}\"")).collect();
        format!("{{ipBlock: {{cidr: \"{cidr}\", except: [{}]}}}}", except.join(", "))
    };
    let everyone = ["10.77.0.0/16", "fd00:10:77::/48"];
    let has = |cidr: &&&str| {
        let of_family = |ip: &std::net::IpAddr| ip.is_ipv6() == cidr.contains(':');
        world.places[0].addresses.iter().any(of_family)
    };
    let b: Vec<String> = block("x", "b").iter().map(|net| peer(net, &[])).collect();
    let but_c: Vec<String> =
        everyone.iter().filter(has).map(|cidr| peer(cidr, &block("y", "c"))).collect();
    let c_too: Vec<String> = block("y", "c").iter().map(|net| peer(net, &[])).collect();
    vec![
        scene(
            "ingress by address",
            vec![step(
                vec![policy("x", "ip", &into_a(&format!("from: [{}]", b.join(", "))))],
                |cell| cell.to() != X_A || cell.from() == ("x", "b"),
            )],
        ),
        scene(
            "ingress by range except an address, which another policy lets in again",
            vec![
                step(
                    vec![policy("x", "ip", &into_a(&format!("from: [{}]", but_c.join(", "))))],
                    |cell| cell.to() != X_A || cell.from() != ("y", "c"),
                ),
                step(
                    vec![policy("x", "too", &into_a(&format!("from: [{}]", c_too.join(", "))))],
                    |_| true,
                ),
            ],
        ),
    ]
}

fn ports() -> Vec<Scene> {
    vec![
        scene(
            "ingress at a port",
            vec![step(
                vec![policy("x", "p80", &into_a("ports: [{port: 80, protocol: TCP}]"))],
                |cell| cell.to() != X_A || (cell.port() == 80 && cell.tcp()),
            )],
        ),
        scene(
            "ingress at a port of UDP, beside peers at another",
            vec![step(
                vec![policy(
                    "x",
                    "two",
                    "podSelector: {matchLabels: {pod: a}}\ningress:\n\
                     - ports: [{port: 81, protocol: UDP}]\n\
                     - ports: [{port: 80}]\n  from: [{namespaceSelector: {matchLabels: {ns: \"y\"}}}]",
                )],
                |cell| {
                    let any = cell.port() == 81 && cell.udp();
                    let of_y = cell.port() == 80 && cell.tcp() && cell.from().0 == "y";
                    cell.to() != X_A || any || of_y
                },
            )],
        ),
        scene(
            "ingress at a named port",
            vec![step(
                vec![policy(
                    "x",
                    "named",
                    &into_a("ports: [{port: serve-81-tcp}, {port: serve-80-udp, protocol: UDP}]"),
                )],
                |cell| {
                    let tcp = cell.port() == 81 && cell.tcp();
                    cell.to() != X_A || tcp || (cell.port() == 80 && cell.udp())
                },
            )],
        ),
        scene(
            "ingress at a port of SCTP",
            vec![step(
                vec![policy("x", "sctp", &into_a("ports: [{port: 80, protocol: SCTP}]"))],
                |cell| cell.to() != X_A || (cell.port() == 80 && cell.sctp()),
            )],
        ),
        scene(
            "ingress at a named port of SCTP, beside TCP of one namespace",
            vec![step(
                vec![policy(
                    "x",
                    "sctp",
                    "podSelector: {matchLabels: {pod: a}}\ningress:\n\
                     - ports: [{port: serve-81-sctp, protocol: SCTP}]\n\
                     - ports: [{port: 81}]\n  from: [{namespaceSelector: {matchLabels: {ns: \"y\"}}}]",
                )],
                |cell| {
                    let tcp = cell.tcp() && cell.from().0 == "y";
                    cell.to() != X_A || (cell.port() == 81 && (cell.sctp() || tcp))
                },
            )],
        ),
        scene(
            "a named port that no Pod has",
            vec![step(
                vec![policy("x", "none", &into_a("ports: [{port: serve-443-tcp}]"))],
                |cell| cell.to() != X_A,
            )],
        ),
        scene(
            "ingress at a range of ports",
            vec![
                step(vec![policy("x", "r", &into_a("ports: [{port: 79, endPort: 80}]"))], |cell| {
                    cell.to() != X_A || (cell.port() == 80 && cell.tcp())
                }),
                step(vec![policy("x", "r", &into_a("ports: [{port: 80, endPort: 90}]"))], |cell| {
                    cell.to() != X_A || cell.tcp()
                }),
            ],
        ),
    ]
}

fn egress() -> Vec<Scene> {
    let from_a = |rules: &str| {
        format!(
            "podSelector: {{matchLabels: {{pod: a}}}}\npolicyTypes: [Egress]\negress:\n- {rules}"
        )
    };
    vec![
        scene(
            "egress by namespace selector at a port",
            vec![step(
                vec![policy(
                    "x",
                    "e",
                    &from_a(
                        "to: [{namespaceSelector: {matchLabels: {ns: \"y\"}}}]\n  ports: [{port: 80}]",
                    ),
                )],
                |cell| {
                    cell.from() != X_A || (cell.to().0 == "y" && cell.port() == 80 && cell.tcp())
                },
            )],
        ),
        scene(
            "egress at a port of SCTP",
            vec![step(
                vec![policy("x", "e", &from_a("ports: [{port: 81, protocol: SCTP}]"))],
                |cell| cell.from() != X_A || (cell.port() == 81 && cell.sctp()),
            )],
        ),
        scene(
            "egress to a named port",
            vec![step(vec![policy("x", "e", &from_a("ports: [{port: serve-80-tcp}]"))], |cell| {
                cell.from() != X_A || (cell.port() == 80 && cell.tcp())
            })],
        ),
        scene(
            "egress and ingress have both to allow",
            vec![step(
                vec![
                    policy("x", "e", &from_a("to: [{podSelector: {matchLabels: {pod: b}}}]")),
                    policy(
                        "x",
                        "i",
                        "podSelector: {matchLabels: {pod: b}}\ningress:\n- from: [{podSelector: \
                         {matchLabels: {pod: c}}}]",
                    ),
                ],
                |cell| {
                    let out = cell.from() != X_A || cell.to() == ("x", "b");
                    out && (cell.to() != ("x", "b") || cell.from() == ("x", "c"))
                },
            )],
        ),
    ]
}

fn changes() -> Vec<Scene> {
    let pod = |value| Do::LabelPod { namespace: "x", pod: "b", label: ("pod", value) };
    let namespace = |value| Do::LabelNamespace { namespace: "y", label: ("ns", value) };
    let gone = |what| match what {
        Do::Apply(text) => Do::Delete(text),
        other => other,
    };
    vec![
        scene(
            "a policy is changed and deleted",
            vec![
                step(
                    vec![policy(
                        "x",
                        "p",
                        &into_a("from: [{podSelector: {matchLabels: {pod: b}}}]"),
                    )],
                    |cell| cell.to() != X_A || cell.from() == ("x", "b"),
                ),
                step(
                    vec![policy(
                        "x",
                        "p",
                        &into_a("from: [{podSelector: {matchLabels: {pod: c}}}]"),
                    )],
                    |cell| cell.to() != X_A || cell.from() == ("x", "c"),
                ),
                step(vec![gone(policy("x", "p", "podSelector: {}"))], |_| true),
            ],
        ),
        Scene {
            undo: vec![pod("b")],
            ..scene(
                "labels of a Pod change",
                vec![
                    step(
                        vec![policy(
                            "x",
                            "p",
                            &into_a("from: [{podSelector: {matchLabels: {pod: b2}}}]"),
                        )],
                        |cell| cell.to() != X_A,
                    ),
                    step(vec![pod("b2")], |cell| cell.to() != X_A || cell.from() == ("x", "b")),
                    step(vec![pod("b")], |cell| cell.to() != X_A),
                ],
            )
        },
        Scene {
            undo: vec![namespace("y")],
            ..scene(
                "labels of a namespace change",
                vec![
                    step(
                        vec![policy(
                            "x",
                            "n",
                            &into_a("from: [{namespaceSelector: {matchLabels: {ns: y2}}}]"),
                        )],
                        |cell| cell.to() != X_A,
                    ),
                    step(vec![namespace("y2")], |cell| cell.to() != X_A || cell.from().0 == "y"),
                ],
            )
        },
    ]
}

//! antrea-lab: nodes in namespaces, Pods through the real CNI, scenarios and the demo.

fn main() {}

//! Types of the crd.antrea.io API group and their CRD YAML.

//! An in-memory Kubernetes API server, and the control loops a lab needs.

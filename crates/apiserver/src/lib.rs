//! The serving half of a Kubernetes API: TLS, authentication, authorization, discovery, list and watch.

//! Builders and fixtures for tests: private namespaces, a real Open vSwitch.

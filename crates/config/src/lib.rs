//! Configuration keys of agent and controller, and the registry of feature gates.

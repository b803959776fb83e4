//! Every watch, reflector, lease and typed client of ours, behind plain functions.

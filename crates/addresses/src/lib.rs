//! Pools and allocation of Node Pod CIDRs.

//! The controller: Node IPAM, leader Lease, AntreaControllerInfo.

fn main() {}

//! Project chores: ci, gen, tidy, bench, docs.

fn main() {}

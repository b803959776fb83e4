//! Tables, registers, marks, cookies, and the flows of every feature.

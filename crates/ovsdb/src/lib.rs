//! OVSDB (RFC 7047) values, typed rows, transactions and monitor updates.

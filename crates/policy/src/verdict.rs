//! Answers whether one end may connect to another, straight from a user's objects.

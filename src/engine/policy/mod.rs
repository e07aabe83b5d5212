//! The policy document: read, checked and compiled.

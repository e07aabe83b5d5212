//! What decisions cost in the engine.

fn main() {}

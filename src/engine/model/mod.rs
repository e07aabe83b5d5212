//! The words of scheduling: amounts, records, and the columnar View that decisions read.

pub mod quantity;
pub mod resource_name;

//! The words of scheduling: amounts, records, and the columnar View that decisions read.

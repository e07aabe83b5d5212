//! How state comes in: batches, objects, watched clusters, extender protocols; and what readers then see.
#![cfg(test)]

mod extender;
mod live;
mod objects;
mod publishing;
mod records_of_objects;
mod revisions;
mod sources;
mod storm;

use pumice_test_support as support;

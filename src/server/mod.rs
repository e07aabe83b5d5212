//! The edge: bytes to questions and records, answers to bytes. The only place that knows gRPC and HTTP.

pub mod pb;

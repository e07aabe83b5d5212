//! Kernels: loops over the columns of a chunk, which is 256 nodes in a row.
//!
//! A kernel is compiled for the base instruction set and, on x86-64, also for AVX2 with FMA and for AVX-512; the
//! process chooses one at run time. All versions give the same bits. None reorders or fuses the steps of a formula.
//! Only division is computed differently, see [`division`].
//!
//! Kernels are no generic functions: those would be compiled where they are called, and this crate is one codegen unit
//! so that all of a kernel is optimized together.

mod blocks;
pub mod columns;
pub mod division;
pub mod fragments;
pub mod integers;
mod kernel;
pub mod mask;
pub mod mean;
pub mod requested;
pub mod requested_floats;
mod rounding;
pub mod selection;
pub mod shortage;
pub mod totals;
pub mod truncated_mean;

//! Decoding and encoding again, by command: what the golden files, the smoke test and the fuzz targets share.
#![allow(dead_code)]

pub mod hex;
pub mod recode;
pub mod samples;

//! GPUs, a folder per vendor: vendors have too little in common for one trait.

pub mod nvidia;

//! The four patch types, server-side apply and managed fields. Pure functions: no I/O, no clock.

mod combine;
mod conflict;
mod entries;
mod gofmt;
mod json_patch;
mod last_applied;
pub mod managed;
pub mod patch;
mod path;
mod reset;
mod set;
mod shape;
mod strategic;
mod strategic_list;
mod updater;
mod walk;
pub mod zero;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

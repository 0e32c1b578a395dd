//! The four patch types, server-side apply and managed fields. Pure functions: no I/O, no clock.
//!
//! A write takes one of three paths, after its body was decoded and before admission:
//!
//! | request | call |
//! |---|---|
//! | create, update | [`managed::update`] with the new object |
//! | JSON, merge and strategic merge patch | [`patch::apply`], then [`managed::update`] with the result |
//! | server-side apply | [`managed::apply`] |
//!
//! The result has its `managedFields` and still has to be defaulted, admitted and validated. At the end,
//! [`managed::unchanged`] decides whether to store it: a write that changes only times is a no-op.
//! Writes of a Scale go through [`scale`].
//!
//! # Field ownership
//!
//! Each `managedFields` entry is a set of paths: `f:` a field, `k:` a list item by its keys, `v:` an item of a set,
//! `.` the container itself. Schemas decide where paths end: scalars and *atomic* lists and maps are leaves.
//! The rules are those of structured-merge-diff, as used by kube-apiserver, and of its field manager:
//!
//! - An **update** takes ownership of every field that it changes or adds; removed fields have no owner. It never
//!   conflicts.
//! - An **apply** owns exactly the fields of its configuration. Changing a field of another manager is a conflict,
//!   unless forced; setting it to the same value shares ownership. Fields of the previous apply that are absent now are
//!   removed, unless another manager owns them. List items are in the order of the configuration, others keep their
//!   position.
//! - A manager is identified by name, operation, subresource and, for updates, version. Ten Update entries are kept;
//!   the oldest are merged into `ancient-changes`. Fields from before the first apply of an untracked object belong to
//!   `before-first-apply`.
//! - kubectl's last-applied annotation eases migration: fields that still have their last-applied value do not conflict
//!   for the manager `kubectl`, and its applies update the annotation.
//! - Sending `managedFields: [{}]` (for built-in objects also `[]`) resets all managed fields.
//! - Fields that an endpoint ignores are not recorded either: [`managed::Reset`].
//!
//! kube-apiserver holds built-in objects in Go structs, in which nested structs always exist; [`zero`] lists them.
//!
//! # Reading the code
//!
//! `path` and `set` are the field paths and sets, `shape` is the merge view of a schema, `walk` compares typed values,
//! `combine` merges and prunes them, `updater` decides ownership, `managed` and `entries` connect that to objects. The
//! cases in `tests/cases/apply` are requests with responses recorded from kube-apiserver.

mod combine;
mod conflict;
mod entries;
pub(crate) mod gofmt;
mod json_patch;
mod last_applied;
pub mod managed;
pub(crate) mod overlay;
pub mod patch;
mod path;
mod reset;
pub mod scale;
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

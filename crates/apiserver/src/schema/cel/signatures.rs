//! Signatures of the functions that expressions may call.

use std::collections::HashMap;

use super::types::Ty;

/// Name, `m` for methods, overload ID, argument and result types; one overload per line, in the order of resolution in
/// kube-apiserver.
const TABLE: &str = include_str!("signatures.tsv");

/// An overload of a function.
pub(super) struct Overload {
    /// Overload ID, by which costs are looked up.
    pub(super) id: &'static str,
    pub(super) method: bool,
    /// Argument types; the target of a method is the first.
    pub(super) args: Vec<Ty>,
    pub(super) result: Ty,
}

thread_local! {
    static FUNCTIONS: HashMap<&'static str, Vec<Overload>> = read();
}

fn read() -> HashMap<&'static str, Vec<Overload>> {
    let mut functions: HashMap<&str, Vec<Overload>> = HashMap::new();
    for line in TABLE.lines() {
        let columns: Vec<&'static str> = line.split('\t').collect();
        let [name, method, id, args, result] = columns[..] else { continue };
        let args = args.split(';').filter(|arg| !arg.is_empty()).map(Ty::declared).collect();
        let overload = Overload { id, method: method == "m", args, result: Ty::declared(result) };
        functions.entry(name).or_default().push(overload);
    }
    functions
}

/// Calls `visit` with the overloads of a function; `None` if there is no such function.
pub(super) fn with<T>(name: &str, visit: impl FnOnce(&[Overload]) -> T) -> Option<T> {
    FUNCTIONS.with(|functions| functions.get(name).map(|overloads| visit(overloads)))
}

//! Functions that expressions may call, with the types they take and give.

use std::collections::HashMap;

use super::types::Ty;

/// Name, `m` for methods, identity, types of the arguments and of the result, one overload a line and in the order in
/// which a real server tries them.
const TABLE: &str = include_str!("signatures.tsv");

/// One way to call a function.
pub(super) struct Overload {
    /// By which costs are known.
    pub(super) id: &'static str,
    pub(super) method: bool,
    /// The target of a method is the first.
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

/// What is known of a function; nothing if there is none of this name.
pub(super) fn with<T>(name: &str, look: impl FnOnce(&[Overload]) -> T) -> Option<T> {
    FUNCTIONS.with(|functions| functions.get(name).map(|overloads| look(overloads)))
}

//! Operands: the parts of a product, each deployed and reported on its own.
//!
//! A product lists its operands in a `const`, and [`decide`] runs the list. Rule: while any operand cannot be planned,
//! nothing is pruned.

use crate::{LiveObjects, Object, Ref};

/// The objects of an operand; an error is a message for the user.
pub type Outcome<T> = Result<T, String>;

/// A part of a product that is deployed and reported as one. `E` is `fn(&Cx) -> bool` and `O` is `fn(&Cx) ->
/// Outcome<Vec<Object>>`, for the context `Cx` of the product.
#[derive(Clone, Copy, Debug)]
pub struct Operand<E, O> {
    /// Its name in messages.
    pub name: &'static str,
    /// Type of its condition.
    pub condition: &'static str,
    /// The deploy label of the nodes that should run it, if that is all that selects them.
    pub deploy: Option<&'static str>,
    /// Whether it is enabled.
    pub enabled: E,
    /// Its objects.
    pub objects: O,
}

/// An operand with its objects or error.
pub type Part<'a, E, O> = (&'a Operand<E, O>, Outcome<Vec<Object>>);

/// The result of a list of operands.
pub struct Decided<'a, E, O> {
    /// Each enabled operand.
    pub parts: Vec<Part<'a, E, O>>,
    /// All desired objects, deduplicated.
    pub objects: Vec<Object>,
}

impl<E, O> Decided<'_, E, O> {
    /// Whether every operand could be planned.
    pub fn is_complete(&self) -> bool {
        self.parts.iter().all(|(_, part)| part.is_ok())
    }
}

/// Runs a list of operands. `finish` completes an object before it is applied, or drops it.
pub fn decide<'a, Cx, E, O>(
    operands: &'a [Operand<E, O>],
    cx: &Cx,
    live: &LiveObjects,
    finish: impl Fn(&Operand<E, O>, Object) -> Option<Object>,
) -> Decided<'a, E, O>
where
    E: Fn(&Cx) -> bool,
    O: Fn(&Cx) -> Outcome<Vec<Object>>,
{
    let wanted = operands.iter().filter(|operand| (operand.enabled)(cx));
    let part = |operand: &'a Operand<E, O>| {
        let objects = (operand.objects)(cx);
        let finished = objects.map(|objects| objects.into_iter().filter_map(|one| finish(operand, one)).collect());
        (operand, finished)
    };
    let parts: Vec<Part<'a, E, O>> = wanted.map(part).collect();
    let mut objects: Vec<Object> = Vec::new();
    for object in parts.iter().filter_map(|(_, part)| part.as_ref().ok()).flatten() {
        // Shared objects are listed by each operand.
        if !objects.iter().any(|one| one.reference == object.reference) {
            objects.push(object.clone());
        }
    }
    let mut decided = Decided { parts, objects };
    if !decided.is_complete() {
        ignore_unplanned(&mut decided.objects, live);
    }
    decided
}

/// While any operand cannot be planned, nothing is pruned: live objects may be its.
pub fn ignore_unplanned(objects: &mut Vec<Object>, live: &LiveObjects) {
    let wanted: Vec<Ref> = objects.iter().map(|object| object.reference.clone()).collect();
    let rest = live.iter().map(|(reference, _)| reference).filter(|one| !wanted.contains(one));
    objects.extend(rest.cloned().map(Object::unmanaged));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::Policy;
    use crate::kit::Scope;

    /// Names of what is wanted, or an error.
    struct Cx(Vec<Outcome<&'static str>>);

    type Test = Operand<fn(&Cx) -> bool, fn(&Cx) -> Outcome<Vec<Object>>>;

    fn at(cx: &Cx, index: usize) -> Outcome<Vec<Object>> {
        let scope = Scope { namespace: "n".into(), manager: "m", ..Scope::default() };
        let map = |name: &str| ConfigMap { metadata: scope.meta(name), ..ConfigMap::default() };
        cx.0[index].clone().map(|name| vec![Object::new(&map(name)), Object::new(&map("shared"))])
    }

    const OPERANDS: &[Test] = &[
        Operand { name: "a", condition: "A", deploy: None, enabled: |_| true, objects: |cx| at(cx, 0) },
        Operand { name: "b", condition: "B", deploy: None, enabled: |cx| cx.0.len() > 1, objects: |cx| at(cx, 1) },
    ];

    fn decided(names: Vec<Outcome<&'static str>>) -> Vec<(String, Policy)> {
        let mut live = LiveObjects::default();
        live.insert(Ref::of::<ConfigMap>("n", "running"), Arc::new(json!({})));
        let decided = decide(OPERANDS, &Cx(names), &live, |_, object| Some(object));
        decided.objects.into_iter().map(|object| (object.reference.name, object.policy)).collect()
    }

    fn keep(names: &[&str]) -> Vec<(String, Policy)> {
        names.iter().map(|name| ((*name).to_owned(), Policy::Apply)).collect()
    }

    #[test]
    fn what_operands_share_is_there_once_and_the_rest_is_pruned() {
        assert_eq!(decided(vec![Ok("x")]), keep(&["x", "shared"]));
        assert_eq!(decided(vec![Ok("x"), Ok("y")]), keep(&["x", "shared", "y"]));
    }

    #[test]
    fn while_one_is_undecided_nothing_is_pruned() {
        let unmanaged = ("running".to_owned(), Policy::Unmanaged);
        assert_eq!(decided(vec![Ok("x"), Err("why".into())]), [keep(&["x", "shared"]), vec![unmanaged]].concat());
    }
}

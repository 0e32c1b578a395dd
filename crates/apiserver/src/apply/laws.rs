//! Property tests of server-side apply.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::entries::{self, Manager, Operation};
use super::managed::{Force, Versions};
use super::patch::without_nulls;
use super::path::Element;
use super::set::Set;
use super::shape::Shape;
use super::testing::{Widget, spec};
use super::walk;

/// One request in the history of an object.
#[derive(Clone, Debug)]
enum Step {
    Apply(&'static str, Value),
    Update(&'static str, Value),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let manager = prop_oneof![Just("a"), Just("b"), Just("c")];
    let step = (any::<bool>(), manager, spec()).prop_map(|(apply, manager, spec)| match apply {
        true => Step::Apply(manager, spec),
        false => Step::Update(manager, spec),
    });
    prop::collection::vec(step, 1..5)
}

/// The object after all steps.
fn run(widget: &Widget, steps: &[Step]) -> Value {
    let mut live = None;
    for (i, step) in steps.iter().enumerate() {
        let minute = i as i64;
        live = Some(match step {
            Step::Apply(manager, spec) => {
                widget.apply(live.as_ref(), manager, minute, spec, Force::Yes).expect("force always succeeds")
            }
            Step::Update(manager, spec) => widget.update(live.as_ref(), manager, minute, spec),
        });
    }
    live.expect("there is a step")
}

fn fields(widget: &Widget, object: &Value) -> Set {
    let schema = widget.schema("example.com/v1").expect("it exists");
    walk::fields_of(Shape::root(schema), object)
}

/// The fields that `manager` owns by applying, and those of all others.
fn owners(object: &Value, manager: &str) -> (Set, Set) {
    let applier = Manager::new(manager, Operation::Apply, "", "");
    let (mut own, mut others) = (Set::default(), Set::default());
    for (manager, owned) in &entries::decode(entries::of(object)).expect("valid") {
        if *manager == applier { own.extend(owned.set()) } else { others.extend(owned.set()) }
    }
    (own, others)
}

/// Paths of scalars and atomic values.
fn leaves(set: &Set) -> Vec<Vec<Element>> {
    let has_children =
        |path: &[Element]| set.paths().iter().any(|other| other.len() > path.len() && other.starts_with(path));
    set.paths().into_iter().filter(|path| !has_children(path)).collect()
}

const META: [&str; 4] = ["apiVersion", "kind", "name", "uid"];

fn is_meta(path: &[Element]) -> bool {
    matches!(path.last(), Some(Element::Field(name)) if META.contains(&name.as_str()) && path.len() < 3)
        || path.get(1) == Some(&Element::field("managedFields"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn applying_twice_is_applying_once(steps in steps(), spec in spec()) {
        let widget = Widget::new();
        let live = run(&widget, &steps);
        let once = widget.apply(Some(&live), "a", 10, &spec, Force::Yes).expect("forced");
        let twice = widget.apply(Some(&once), "a", 20, &spec, Force::No).expect("nothing is left to conflict");
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn what_needs_no_force_does_not_change_by_it(steps in steps(), spec in spec()) {
        let widget = Widget::new();
        let live = run(&widget, &steps);
        if let Ok(gentle) = widget.apply(Some(&live), "a", 10, &spec, Force::No) {
            prop_assert_eq!(widget.apply(Some(&live), "a", 10, &spec, Force::Yes).expect("forced"), gentle);
        }
    }

    #[test]
    fn applied_values_are_there_and_owned(steps in steps(), spec in spec()) {
        let widget = Widget::new();
        let live = run(&widget, &steps);
        let object = widget.apply(Some(&live), "a", 10, &spec, Force::Yes).expect("forced");
        let wanted = fields(&widget, &json!({"spec": spec}));
        prop_assert!(wanted.difference(&fields(&widget, &object)).is_empty());
        prop_assert_eq!(owners(&object, "a").0, wanted);
        // Applying the same configuration again changes nothing.
        let again = widget.apply(Some(&object), "z", 20, &spec, Force::No).expect("the values are the same");
        prop_assert_eq!(&again["spec"], &object["spec"]);
    }

    #[test]
    fn giving_up_everything_removes_exactly_what_nobody_else_owns(steps in steps(), spec in spec()) {
        let widget = Widget::new();
        let live = run(&widget, &steps);
        let before = widget.apply(Some(&live), "a", 10, &spec, Force::Yes).expect("forced");
        let after = widget.apply(Some(&before), "a", 20, &json!({"size": 1}), Force::Yes).expect("forced");
        let (own, others) = owners(&before, "a");
        let left = fields(&widget, &after);
        for path in own.paths() {
            // A container is kept for the fields of others in it.
            let kept = path == [Element::field("spec"), Element::field("size")]
                || others.paths().iter().any(|other| other.starts_with(&path));
            prop_assert!(kept || !left.has(&path), "{} is still there", super::path::display(&path));
        }
        for path in others.paths().iter().filter(|path| fields(&widget, &before).has(path)) {
            let size = path.last() == Some(&Element::field("size"));
            // Removing an item or container also removes the unowned values below it.
            let hung = (1..path.len()).any(|length| own.has(&path[..length]) && !others.has(&path[..length]));
            prop_assert!(size || hung || left.has(path), "{} is gone", super::path::display(path));
        }
        prop_assert_eq!(owners(&after, "a").0, Set::of_fields(&[&["spec", "size"]]));
    }

    #[test]
    fn every_value_has_an_owner(steps in steps()) {
        let widget = Widget::new();
        let object = run(&widget, &steps);
        let (own, others) = owners(&object, "a");
        let owned = own.union(&others);
        // A list that lost its last item is null, which is not a value.
        for path in leaves(&fields(&widget, &without_nulls(&object))).iter().filter(|path| !is_meta(path)) {
            let covered = (1..=path.len()).any(|length| owned.has(&path[..length]));
            prop_assert!(covered, "nobody owns {}", super::path::display(path));
        }
    }

    #[test]
    fn nobody_owns_what_is_not_there(steps in steps()) {
        let widget = Widget::new();
        let object = run(&widget, &steps);
        let (own, others) = owners(&object, "a");
        let there = fields(&widget, &object);
        for path in own.union(&others).paths() {
            let found = there.has(&path) || there.paths().iter().any(|other| other.starts_with(&path));
            prop_assert!(found, "{} is owned and not there", super::path::display(&path));
        }
    }

    #[test]
    fn an_update_that_changes_nothing_leaves_managers_alone(steps in steps()) {
        let widget = Widget::new();
        let object = run(&widget, &steps);
        prop_assert_eq!(widget.update(Some(&object), "other", 30, &object["spec"]), object);
    }
}

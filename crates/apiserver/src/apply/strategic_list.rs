//! Lists in strategic merge patches: item directives, and the order of the result.

use serde_json::Value;

use super::gofmt;
use super::strategic::{Fault, Merged, PATCH, bad_directive, bad_type, no_key};

/// Element type of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Items {
    Maps,
    Scalars,
}

/// How the result is ordered.
pub(super) struct Order<'a> {
    /// The list before the patch.
    pub live: &'a [Value],
    /// Merge key; empty for scalars.
    pub key: &'a str,
}

/// Element type of both lists, which must be the same.
pub(super) fn element_type(live: &[Value], patch: &[Value]) -> Merged<Items> {
    let all = || live.iter().chain(patch);
    let Some(first) = all().next() else {
        return Err(Fault::Other("no elements in any of the given slices".into()));
    };
    if first.is_array() {
        return Err(Fault::Content);
    }
    if all().any(|item| gofmt::type_name(item) != gofmt::type_name(first)) {
        let lists = gofmt::plain(&Value::Array(vec![live.to_vec().into(), patch.to_vec().into()]));
        return Err(Fault::Other(format!("list element types are not identical: {lists}")));
    }
    Ok(if first.is_object() { Items::Maps } else { Items::Scalars })
}

/// Index of the item whose `key` is `value`.
pub(super) fn find(items: &[Value], key: &str, value: &Value) -> Merged<Option<usize>> {
    for (i, item) in items.iter().enumerate() {
        let Value::Object(fields) = item else {
            return Err(Fault::Other(format!("value for key {i} is not a map")));
        };
        if fields.get(key) == Some(value) {
            return Ok(Some(i));
        }
    }
    Ok(None)
}

/// Applies the items with a `$patch` directive to `live`; returns the new `live` and the remaining items.
pub(super) fn obey_directives(mut live: Vec<Value>, patch: Vec<Value>, key: &str) -> Merged<(Vec<Value>, Vec<Value>)> {
    let mut rest = Vec::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(fields) = &item else { return Err(bad_type("map[string]interface {}", &item)) };
        let Some(directive) = fields.get(PATCH) else {
            rest.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = fields.get(key).ok_or_else(|| no_key(fields, key))?;
                while let Some(index) = find(&live, key, value)? {
                    live.remove(index);
                }
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Fault::Other("merging lists cannot yet be specified in the patch".into()));
            }
            _ => return Err(bad_directive(directive, fields)),
        }
    }
    Ok(if replace { (rest, Vec::new()) } else { (live, rest) })
}

/// The live list as kube-apiserver sees it when it sorts the result by `$setElementOrder`: items are deleted and
/// appended in the same backing array, so appended items overwrite the slots of deleted ones.
pub(super) fn overwritten(live: &[Value], patch: &[Value], key: &str) -> Vec<Value> {
    let mut slots = live.to_vec();
    let mut length = slots.len();
    let directive = |item: &Value| item.get(PATCH).and_then(Value::as_str).map(str::to_owned);
    for item in patch.iter().filter(|item| directive(item).as_deref() == Some("delete")) {
        while let Some(at) = slots[..length].iter().position(|slot| slot.get(key) == item.get(key)) {
            // Later items move up by one, and the last slot keeps its value.
            slots[at..length].rotate_left(1);
            length -= 1;
            if length > 0 && at < length {
                slots[length] = slots[length - 1].clone();
            }
        }
    }
    let replaces = patch.iter().any(|item| directive(item).as_deref() == Some("replace"));
    for item in patch.iter().filter(|item| !replaces && directive(item).is_none()) {
        let known = slots[..length].iter().any(|slot| slot.get(key) == item.get(key));
        if !known {
            if length == slots.len() {
                break;
            }
            slots[length] = item.clone();
            length += 1;
        }
    }
    slots
}

/// Deduplicates scalars. The last item takes the place of a duplicate, as in kube-apiserver.
pub(super) fn without_repeats(mut items: Vec<Value>) -> Vec<Value> {
    let mut i = 0;
    while i < items.len() {
        let mut j = i + 1;
        while j < items.len() {
            if items[i] == items[j] {
                items.swap_remove(j);
            } else {
                j += 1;
            }
        }
        i += 1;
    }
    items
}

/// Checks that the items of `patch` are in the order of `order` (`$setElementOrder`), and that it lists them all.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: &str) -> Merged<()> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let deletes = |item: &Value| item.get(PATCH).is_some_and(|directive| directive == "delete");
    if !key.is_empty()
        && let Some(other) = patch.iter().find(|item| !item.is_object())
    {
        return Err(bad_type("map[string]interface {}", other));
    }
    let mut items = patch.iter().filter(|item| key.is_empty() || !deletes(item)).peekable();
    let mut orders = order.iter().peekable();
    while let Some(item) = items.peek() {
        let Some(wanted) = orders.peek() else {
            let (patch, order) = (gofmt::plain(&patch.to_vec().into()), gofmt::plain(&order.to_vec().into()));
            let message =
                format!("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n");
            return Err(Fault::Other(message));
        };
        if item.get(PATCH).is_some() {
            items.next();
            continue;
        }
        if identity(item, key)? == identity(wanted, key)? {
            items.next();
        }
        orders.next();
    }
    Ok(())
}

fn identity<'v>(item: &'v Value, key: &str) -> Merged<&'v Value> {
    if key.is_empty() {
        return Ok(item);
    }
    match item {
        Value::Object(fields) => fields.get(key).ok_or_else(|| no_key(fields, key)),
        other => Err(bad_type("map[string]interface {}", other)),
    }
}

/// `merged` with the items of `patch` in its order, and the others interleaved in the order of the live list.
pub(super) fn ordered(merged: Vec<Value>, patch: &[Value], order: &Order<'_>) -> Merged<Vec<Value>> {
    let key = order.key;
    let mut ours = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let value = identity(&item, key)?.clone();
        let known = match key.is_empty() {
            true => patch.contains(&value),
            false => find(patch, key, &value)?.is_some(),
        };
        if known { ours.push(item) } else { others.push(item) }
    }
    for item in patch.iter().chain(order.live) {
        identity(item, key)?;
    }
    let place = |list: &[Value], item: &Value| {
        let value = identity(item, key).ok()?;
        list.iter().position(|other| identity(other, key).ok() == Some(value))
    };
    // Whether one precedes the other, if both are in the list.
    let before = |list: &[Value], left: &Value, right: &Value| Some(place(list, left)? < place(list, right)?);
    // Items that are not in the list go to the front, the last one first: the result of kube-apiserver's sort, whose
    // comparison claims that each of two such items precedes the other.
    let sort = |items: &mut Vec<Value>, list: &[Value]| {
        for end in 1..items.len() {
            let mut i = end;
            while i > 0 && before(list, &items[i], &items[i - 1]).unwrap_or(true) {
                items.swap(i, i - 1);
                i -= 1;
            }
        }
    };
    sort(&mut ours, patch);
    sort(&mut others, order.live);

    let mut out = Vec::with_capacity(ours.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in ours {
        while let Some(other) = others.next_if(|other| before(order.live, other, &item) == Some(true)) {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others);
    Ok(out)
}

//! Static cost estimation: the worst-case cost of an expression, by which kube-apiserver rejects rules.

mod functions;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr};

use super::cost::{LIST, MAP};
use super::declare::Decl;
use super::expand::UNUSED;
use super::infer::Checked;
use super::types::Ty;

/// Minimum and maximum size of a value.
#[derive(Clone, Copy, Debug)]
struct Size {
    min: u64,
    max: u64,
}

impl Size {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    /// Identity of union.
    const NONE: Self = Self { min: u64::MAX, max: 0 };

    fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Sizes of the keys and values of a container.
#[derive(Clone, Copy, Debug)]
struct Entries {
    list: bool,
    key: Size,
    value: Size,
}

impl Entries {
    fn union(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = (one?, other?);
        Some(Self { list: one.list, key: one.key.union(other.key), value: one.value.union(other.value) })
    }
}

/// Path of a value from a variable. Paths grow as Go slices do: two that grow from one share its backing array, and the
/// later append overwrites the earlier one. kube-apiserver's estimates depend on that, so it is reproduced.
#[derive(Clone, Default)]
struct Path {
    room: Rc<RefCell<Vec<Rc<str>>>>,
    len: usize,
    capacity: usize,
}

impl Path {
    fn of(name: &str) -> Self {
        Self { room: Rc::new(RefCell::new(vec![name.into()])), len: 1, capacity: 1 }
    }

    fn then(&self, step: &str) -> Self {
        let len = self.len + 1;
        if self.len < self.capacity {
            let mut room = self.room.borrow_mut();
            match room.get_mut(self.len) {
                Some(taken) => *taken = step.into(),
                None => room.push(step.into()),
            }
            return Self { room: self.room.clone(), len, capacity: self.capacity };
        }
        let mut room = self.room.borrow()[..self.len].to_vec();
        room.push(step.into());
        Self { room: Rc::new(RefCell::new(room)), len, capacity: (self.capacity * 2).max(1) }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }
}

struct Local {
    name: String,
    path: Path,
    size: Option<Size>,
    entries: Option<Entries>,
}

/// Worst-case cost of an expression on such a value.
pub(super) fn estimate(checked: &Checked, root: &Rc<Decl>) -> u64 {
    let mut estimator = CostEstimator {
        checked,
        root,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    estimator.cost(&checked.expression)
}

struct CostEstimator<'a> {
    checked: &'a Checked,
    root: &'a Rc<Decl>,
    paths: HashMap<u64, Path>,
    sizes: HashMap<u64, Size>,
    entries: HashMap<u64, Entries>,
    locals: Vec<Local>,
}

/// Cost of a call, with or without its arguments.
struct Estimate {
    cost: u64,
    size: Option<Size>,
    with_args: bool,
}

impl CostEstimator<'_> {
    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expression: &IdedExpr) -> Path {
        if let Expr::Ident(name) = &expression.expr
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expression.id).cloned().unwrap_or_default()
    }

    fn step(&self, expression: &IdedExpr, step: &str) -> Path {
        self.path(expression).then(step)
    }

    /// The declared size of the value at a path. Paths are always resolved from the root.
    fn declared(&self, path: &Path) -> Option<Size> {
        let room = path.room.borrow();
        let part = self.root.part(room.get(1..path.len)?)?;
        Some(Size { min: 0, max: part.most })
    }

    fn size(&mut self, expression: &IdedExpr) -> Option<Size> {
        if let Some(size) = self.sizes.get(&expression.id) {
            return Some(*size);
        }
        let fixed = match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => Some(text.inner().chars().count()),
            Expr::Literal(LiteralValue::Bytes(bytes)) => Some(bytes.inner().len()),
            Expr::Literal(_) => Some(1),
            Expr::List(list) => Some(list.elements.len()),
            Expr::Map(map) => Some(map.entries.len()),
            _ => None,
        };
        if let Some(size) = fixed {
            return Some(Size::fixed(size as u64));
        }
        let path = self.path(expression);
        if let Some(size) = self.declared(&path) {
            self.sizes.insert(expression.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.ty(expression.id)) {
            return Some(Size::fixed(1));
        }
        match &expression.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn known(&mut self, expression: &IdedExpr) -> Size {
        self.size(expression).unwrap_or(Size::UNKNOWN)
    }

    fn entries(&self, expression: &IdedExpr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expression.id) {
            return Some(*entries);
        }
        match &expression.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    fn set_size(&mut self, id: u64, size: Option<Size>) {
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
    }

    fn set_entries(&mut self, id: u64, entries: Option<Entries>) {
        if let Some(entries) = entries {
            self.entries.insert(id, entries);
        }
    }

    fn cost(&mut self, expression: &IdedExpr) -> u64 {
        match &expression.expr {
            Expr::Literal(_) | Expr::Unspecified | Expr::Struct(_) => 0,
            Expr::Ident(name) => {
                let path = self.local(name).map_or_else(|| Path::of(name), |local| local.path.clone());
                self.paths.insert(expression.id, path);
                1
            }
            // A qualified type name.
            Expr::Select(select) if matches!(self.checked.ty(expression.id), Ty::Type(_)) => {
                self.paths.insert(expression.id, Path::of(&select.field));
                1
            }
            Expr::Select(select) => {
                let cost = self.cost(&select.operand);
                if select.test {
                    return cost;
                }
                let path = self.step(&select.operand, &select.field);
                self.paths.insert(expression.id, path);
                let counts =
                    matches!(self.checked.ty(select.operand.id), Ty::Map(..) | Ty::Object(..) | Ty::Library(_));
                cost.saturating_add(u64::from(counts))
            }
            Expr::Call(call) => self.call(expression, call),
            Expr::List(list) => self.list(expression.id, list),
            Expr::Map(map) => self.map(expression.id, map),
            Expr::Comprehension(fold) if fold.iter_var == UNUSED => self.bound(expression.id, fold),
            Expr::Comprehension(fold) => self.fold(expression.id, fold),
        }
    }

    fn list(&mut self, id: u64, list: &ListExpr) -> u64 {
        let mut value = if list.elements.is_empty() { Size::fixed(0) } else { Size::NONE };
        let mut cost = LIST;
        for element in &list.elements {
            cost = cost.saturating_add(self.cost(element));
            value = value.union(self.known(element));
        }
        self.entries.insert(id, Entries { list: true, key: Size::fixed(1), value });
        cost
    }

    fn map(&mut self, id: u64, map: &MapExpr) -> u64 {
        let none = if map.entries.is_empty() { Size::fixed(0) } else { Size::NONE };
        let (mut key, mut value, mut cost) = (none, none, MAP);
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            for (part, size) in [(&entry.key, &mut key), (&entry.value, &mut value)] {
                cost = cost.saturating_add(self.cost(part));
                *size = size.union(self.known(part));
            }
        }
        self.entries.insert(id, Entries { list: false, key, value });
        cost
    }

    fn iterate(&mut self, name: &str, range: &IdedExpr, keys: bool) {
        let entries = self.entries(range);
        let size = entries.map(|entries| if keys { entries.key } else { entries.value });
        let list = entries.map_or_else(|| matches!(self.checked.ty(range.id), Ty::List(_)), |entries| entries.list);
        let step = match (keys, list) {
            (true, true) => "@indices",
            (true, false) => "@keys",
            (false, true) => "@items",
            (false, false) => "@values",
        };
        let path = self.step(range, step);
        self.locals.push(Local { name: name.to_owned(), path, size, entries: None });
    }

    fn bind(&mut self, name: &str, value: &IdedExpr) {
        let local = Local {
            name: name.to_owned(),
            path: self.path(value),
            entries: self.entries(value),
            size: self.size(value),
        };
        self.locals.push(local);
    }

    fn fold(&mut self, id: u64, fold: &ComprehensionExpr) -> u64 {
        let mut cost = self.cost(&fold.iter_range).saturating_add(self.cost(&fold.accu_init));
        let depth = self.locals.len();
        self.bind(&fold.accu_var, &fold.accu_init);
        match &fold.iter_var2 {
            Some(second) => {
                self.iterate(&fold.iter_var, &fold.iter_range, true);
                self.iterate(second, &fold.iter_range, false);
            }
            None => {
                let list = matches!(self.checked.ty(fold.iter_range.id), Ty::List(_));
                let list = self.entries(&fold.iter_range).map_or(list, |entries| entries.list);
                self.iterate(&fold.iter_var, &fold.iter_range, !list);
            }
        }
        let step = self.cost(&fold.loop_cond).saturating_add(self.cost(&fold.loop_step));
        self.locals.truncate(depth + 1);
        cost = cost.saturating_add(self.cost(&fold.result));
        self.locals.truncate(depth);
        let count = self.known(&fold.iter_range);
        match &fold.accu_init.expr {
            Expr::Literal(_) => {
                let size = self.size(&fold.accu_init);
                self.set_size(id, size);
            }
            Expr::List(_) | Expr::Map(_) => {
                self.set_size(id, Some(count));
                let entries = self.entries(&fold.loop_step);
                self.set_entries(id, entries);
            }
            _ => {}
        }
        cost.saturating_add(count.max.saturating_mul(step))
    }

    /// A `cel.bind`: a loop that never runs.
    fn bound(&mut self, id: u64, fold: &ComprehensionExpr) -> u64 {
        let mut cost = self.cost(&fold.iter_range).saturating_add(self.cost(&fold.accu_init));
        self.bind(&fold.accu_var, &fold.accu_init);
        cost = cost.saturating_add(self.cost(&fold.result));
        self.locals.pop();
        let (size, entries) = (self.size(&fold.result), self.entries(&fold.result));
        self.set_size(id, size);
        self.set_entries(id, entries);
        cost
    }

    fn call(&mut self, expression: &IdedExpr, call: &CallExpr) -> u64 {
        let id = expression.id;
        if let ("dyn", None, [arg]) = (call.func_name.as_str(), &call.target, call.args.as_slice()) {
            let cost = self.cost(arg).saturating_add(1);
            let (size, entries) = (self.size(arg), self.entries(arg));
            self.set_size(id, size);
            self.set_entries(id, entries);
            return cost;
        }
        let costs: Vec<u64> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let checked = self.checked;
        let overloads = checked.overloads(id);
        // The qualifier of a qualified function name is no target.
        let target = call.target.as_deref().filter(|_| !overloads.iter().any(|id| is_qualified(&call.func_name, id)));
        let before = target.map_or(0, |target| self.cost(target));
        let sum = costs.iter().fold(0u64, |sum, cost| sum.saturating_add(*cost));
        let (mut cost, mut result) = (0, None::<Size>);
        for overload in overloads {
            let estimate = self.function(id, &call.func_name, overload, target, &call.args, &costs);
            let own = if estimate.with_args { estimate.cost } else { estimate.cost.saturating_add(sum) };
            cost = cost.max(own);
            result = match (result, estimate.size) {
                (Some(one), Some(other)) => Some(one.union(other)),
                (one, other) => one.or(other),
            };
            let step = match *overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(container)) = (step, call.args.first()) {
                result = self.entries(container).map(|entries| entries.value);
                let path = self.step(container, step);
                self.paths.insert(id, path);
            }
            if result.is_none() {
                result = self.size(expression);
            }
        }
        self.set_size(id, result);
        before.saturating_add(cost)
    }
}

/// Whether a call of this name refers to a qualified function.
fn is_qualified(name: &str, overload: &str) -> bool {
    matches!(
        (name, overload),
        ("of", "optional_of")
            | ("none", "optional_none")
            | ("ofNonZeroValue", "optional_ofNonZeroValue")
            | ("unwrap", "optional_unwrap")
            | ("isCanonical", "ip_is_canonical")
            | ("quote", "strings_quote")
            | ("range", "lists_range")
            | ("named", "format-named")
            | ("@mapInsert", _)
    ) || overload.starts_with("list_sets_")
        || overload.strip_prefix("format.") == Some(name)
}

fn is_scalar(ty: &Ty) -> bool {
    match ty {
        Ty::Bool | Ty::Double | Ty::Duration | Ty::Int | Ty::Time | Ty::UInt => true,
        Ty::Optional(of) => is_scalar(of),
        _ => false,
    }
}

//! Evaluates expressions and tracks their cost, step by step as kube-apiserver does.

use std::collections::BTreeMap;
use std::rc::Rc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr, StructExpr,
};

use super::form::{dotted, folded, is_constant, is_path};
use super::value::{Fault, Key, Outcome, Val};
use super::{cost, functions, operators};

/// Cost limit of one expression.
pub(super) const LIMIT: u64 = 1_000_000;

/// Variables, and the cost so far.
pub(super) struct Scope<'a> {
    pub(super) variables: Vec<(String, Outcome<'a>)>,
    /// Cost so far.
    pub(super) cost: u64,
}

/// Qualified function names: the part before the dot is no variable.
const NAMESPACES: &[&str] =
    &["optional", "math", "sets", "ip", "format", "jsonpatch", "lists", "strings", "base64", "cel"];
impl<'a> Scope<'a> {
    pub(super) fn new() -> Self {
        Self { variables: Vec::new(), cost: 0 }
    }

    pub(super) fn bind(&mut self, name: &str, value: Val<'a>) {
        self.variables.push((name.to_owned(), Ok(value)));
    }

    pub(super) fn spend(&mut self, cost: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > LIMIT { Err(Fault::Limit) } else { Ok(()) }
    }

    fn variable(&self, name: &str) -> Option<&Outcome<'a>> {
        self.variables.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(super) fn eval(&mut self, expression: &IdedExpr) -> Outcome<'a> {
        match &expression.expr {
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::List(list) => {
                let value = self.list(list)?;
                self.spend(if is_constant(expression) { 0 } else { cost::LIST })?;
                Ok(value)
            }
            Expr::Map(map) => {
                let value = self.map(map)?;
                self.spend(if is_constant(expression) { 0 } else { cost::MAP })?;
                Ok(value)
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::Struct(made) => self.structure(made),
            Expr::Unspecified => Err(Fault::Overload),
        }
    }

    fn ident(&mut self, name: &str) -> Outcome<'a> {
        const TYPES: &[&str] =
            &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
        match self.variable(name).cloned() {
            Some(value) => {
                self.spend(1)?;
                value
            }
            None if TYPES.contains(&name) => Ok(Val::Type(name.into())),
            None => Fault::other(format!("no such attribute(s): {name}")),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Outcome<'a> {
        // A qualified name can be a type.
        if let Some(name) =
            dotted(&select.operand).filter(|name| self.variable(name.split('.').next().unwrap_or("")).is_none())
        {
            let name = format!("{name}.{}", select.field);
            if ["google.protobuf.Timestamp", "google.protobuf.Duration"].contains(&name.as_str()) {
                return Ok(Val::Type(name.into()));
            }
        }
        // One variable has a qualified name.
        if let Expr::Ident(name) = &select.operand.expr
            && name == "authorizer"
            && let Some(value) = self.variable(&format!("{name}.{}", select.field)).cloned()
        {
            self.spend(1)?;
            return value;
        }
        let operand = self.base(&select.operand)?;
        let key = Key::Text(select.field.as_str().into());
        let (operand, optional) = match operand {
            Val::Optional(None) if select.test => return Ok(Val::Bool(false)),
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => ((*inner).clone(), true),
            operand => (operand, false),
        };
        if select.test {
            return match operand {
                Val::Map(_) | Val::Object(..) | Val::Named(_) | Val::Constructed(..) => {
                    Ok(Val::Bool(operand.get(&key).is_some()))
                }
                _ => Err(Fault::Overload),
            };
        }
        self.spend(1)?;
        match (&operand, operand.get(&key)) {
            (_, Some(value)) if optional => Ok(Val::Optional(Some(Rc::new(value?)))),
            (_, Some(value)) => value,
            (Val::Map(_) | Val::Object(..) | Val::Named(_) | Val::Constructed(..), None) if optional => {
                Ok(Val::Optional(None))
            }
            (Val::Map(_) | Val::Object(..) | Val::Named(_) | Val::Constructed(..), None) => {
                Fault::other(format!("no such key: {}", select.field))
            }
            _ => Err(Fault::Overload),
        }
    }

    fn list(&mut self, list: &ListExpr) -> Outcome<'a> {
        let mut items = Vec::with_capacity(list.elements.len());
        for (at, element) in list.elements.iter().enumerate() {
            let item = self.eval(element)?;
            match (list.optional_indices.contains(&at), item) {
                (true, Val::Optional(None)) => {}
                (true, Val::Optional(Some(inner))) => items.push((*inner).clone()),
                (_, item) => items.push(item),
            }
        }
        Ok(Val::List(Rc::new(items)))
    }

    fn map(&mut self, map: &MapExpr) -> Outcome<'a> {
        let mut out = BTreeMap::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(Fault::Overload) };
            let key = self.eval(&entry.key)?;
            let value = self.eval(&entry.value)?;
            let key = key.as_key().ok_or(Fault::Overload)?;
            match (entry.optional, value) {
                (true, Val::Optional(None)) => {}
                (true, Val::Optional(Some(value))) => drop(out.insert(key, (*value).clone())),
                (_, value) => drop(out.insert(key, value)),
            }
        }
        Ok(Val::Map(Rc::new(out)))
    }

    fn structure(&mut self, made: &StructExpr) -> Outcome<'a> {
        let mut fields = BTreeMap::new();
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { return Err(Fault::Overload) };
            let value = match (field.optional, self.eval(&field.value)?) {
                (true, Val::Optional(None)) => continue,
                (true, Val::Optional(Some(value))) => (*value).clone(),
                (_, value) => value,
            };
            fields.insert(field.field.as_str().into(), value);
        }
        self.spend(cost::STRUCT)?;
        Ok(Val::Constructed(made.type_name.as_str().into(), Rc::new(fields)))
    }

    fn call(&mut self, call: &CallExpr) -> Outcome<'a> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("_&&_", args) => return self.all(args),
            ("_||_", args) => return self.any(args),
            ("_?_:_", [condition, yes, no]) => {
                return match self.eval(condition)? {
                    Val::Bool(true) => self.inner_path(yes),
                    Val::Bool(false) => self.inner_path(no),
                    _ => Err(Fault::Overload),
                };
            }
            ("@not_strictly_false", [value]) => {
                let value = self.eval(value);
                if value == Err(Fault::Limit) {
                    return value;
                }
                self.spend(1)?;
                return Ok(Val::Bool(!matches!(value, Ok(Val::Bool(false)))));
            }
            ("_[_]", [container, key]) => return self.index(container, key),
            ("_[?_]", [container, key]) => return self.optional_index(container, key),
            ("_?._", [operand, field]) => return self.optional_select(operand, field),
            (name, args) if call.target.is_some() => {
                if let Some(outcome) = self.macro_call(name, call, args) {
                    return outcome;
                }
            }
            _ => {}
        }
        self.plain_call(call)
    }

    fn plain_call(&mut self, call: &CallExpr) -> Outcome<'a> {
        let mut name = call.func_name.clone();
        let mut args = Vec::with_capacity(call.args.len() + 1);
        let mut method = false;
        if let Some(target) = &call.target {
            match &target.expr {
                Expr::Ident(prefix) if NAMESPACES.contains(&prefix.as_str()) && self.variable(prefix).is_none() => {
                    name = format!("{prefix}.{name}");
                }
                _ => {
                    method = true;
                    args.push(self.eval(target)?);
                }
            }
        }
        // With one or two arguments all are evaluated before an error is returned; with more, evaluation stops at it.
        let (mut fault, all) = (None, call.args.len() + args.len() <= 2);
        for arg in &call.args {
            match self.eval(arg) {
                Ok(value) => args.push(value),
                Err(Fault::Limit) => return Err(Fault::Limit),
                Err(error) if all => {
                    fault = fault.or(Some(error));
                    args.push(Val::Null);
                }
                Err(error) => return Err(error),
            }
        }
        let outcome = match (fault, name.as_str(), args.as_slice()) {
            (Some(fault), ..) => Err(fault),
            (_, _, [Val::Access(access), rest @ ..]) if method => access.call(&name, rest),
            (_, "!_" | "-_", [one]) => operators::unary(&name, one),
            (_, _, [one, other]) if name.starts_with(['_', '@']) => operators::binary(&name, one, other),
            _ => functions::call(&name, method, &args),
        };
        if !folded(call) {
            self.spend(cost::call(&name, &args, outcome.as_ref().ok()))?;
        }
        outcome
    }

    /// The operand of a selection: anything but a variable or another selection costs one more.
    fn base(&mut self, operand: &IdedExpr) -> Outcome<'a> {
        let value = self.eval(operand)?;
        if !is_path(operand) {
            self.spend(1)?;
        }
        Ok(value)
    }

    /// A selection inside of another step, which pays for its variable.
    fn inner_path(&mut self, expression: &IdedExpr) -> Outcome<'a> {
        let value = self.eval(expression);
        if is_path(expression) {
            self.cost = self.cost.saturating_sub(1);
        }
        value
    }

    /// `a && b`: false if either is false, even if the other fails.
    fn all(&mut self, terms: &[IdedExpr]) -> Outcome<'a> {
        self.logic(terms, false)
    }

    /// `a || b`: true if either is true, even if the other fails.
    fn any(&mut self, terms: &[IdedExpr]) -> Outcome<'a> {
        self.logic(terms, true)
    }

    fn logic(&mut self, terms: &[IdedExpr], decisive: bool) -> Outcome<'a> {
        let mut fault = None;
        for term in terms {
            match self.eval(term) {
                Ok(Val::Bool(value)) if value == decisive => return Ok(Val::Bool(decisive)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => fault = fault.or(Some(Fault::Overload)),
                Err(Fault::Limit) => return Err(Fault::Limit),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        fault.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    fn index(&mut self, container: &IdedExpr, key: &IdedExpr) -> Outcome<'a> {
        let container = self.base(container)?;
        let key = self.inner_path(key)?;
        self.spend(1)?;
        match container {
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => Ok(wrap(present(operators::index(&inner, &key)))),
            container => operators::index(&container, &key),
        }
    }

    fn optional_index(&mut self, container: &IdedExpr, key: &IdedExpr) -> Outcome<'a> {
        let container = self.base(container)?;
        let key = self.inner_path(key)?;
        let container = match container {
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => (*inner).clone(),
            container => container,
        };
        let found = present(operators::index(&container, &key));
        self.spend(u64::from(found.is_some()))?;
        Ok(wrap(found))
    }

    fn optional_select(&mut self, operand: &IdedExpr, field: &IdedExpr) -> Outcome<'a> {
        let Expr::Literal(LiteralValue::String(name)) = &field.expr else { return Err(Fault::Overload) };
        let operand = self.base(operand)?;
        let operand = match operand {
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => (*inner).clone(),
            operand => operand,
        };
        match &operand {
            Val::Map(_) | Val::Object(..) | Val::Named(_) => {
                let found = operand.get(&Key::Text(name.inner().into())).transpose()?;
                self.spend(u64::from(found.is_some()))?;
                Ok(wrap(found))
            }
            _ => Err(Fault::Overload),
        }
    }

    /// A comprehension, to which `all`, `exists`, `map` and `filter` expand: a loop with an accumulator.
    fn fold(&mut self, fold: &ComprehensionExpr) -> Outcome<'a> {
        let range = self.eval(&fold.iter_range)?;
        let items = match (range.items(), range.keys()) {
            (Some(items), _) => items,
            (None, Some(keys)) => keys.into_iter().map(|key| Ok(key_value(key))).collect(),
            (None, None) => return Err(Fault::Overload),
        };
        let depth = self.variables.len();
        let mut accumulator = self.eval(&fold.accu_init);
        for item in items {
            self.variables.truncate(depth);
            self.variables.push((fold.accu_var.clone(), accumulator));
            self.variables.push((fold.iter_var.clone(), item));
            let go_on = self.eval(&fold.loop_cond);
            if go_on == Err(Fault::Limit) {
                return go_on;
            }
            if matches!(go_on, Ok(Val::Bool(false))) {
                accumulator = self.variables.swap_remove(depth).1;
                break;
            }
            accumulator = self.eval(&fold.loop_step);
            if accumulator == Err(Fault::Limit) {
                return accumulator;
            }
        }
        self.variables.truncate(depth);
        self.variables.push((fold.accu_var.clone(), accumulator));
        let result = self.eval(&fold.result);
        self.variables.truncate(depth);
        result
    }
}

impl PartialEq for Val<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a == b,
            _ => false,
        }
    }
}

/// The value; an absent value is no error here.
fn present<'a>(outcome: Outcome<'a>) -> Option<Val<'a>> {
    outcome.ok()
}

fn wrap<'a>(value: Option<Val<'a>>) -> Val<'a> {
    Val::Optional(value.map(Rc::new))
}

pub(super) fn key_value<'a>(key: Key) -> Val<'a> {
    match key {
        Key::Bool(value) => Val::Bool(value),
        Key::Int(value) => Val::Int(value),
        Key::UInt(value) => Val::UInt(value),
        Key::Text(text) => Val::Text(text),
    }
}

fn constant<'a>(literal: &LiteralValue) -> Val<'a> {
    match literal {
        LiteralValue::Boolean(value) => Val::Bool(*value.inner()),
        LiteralValue::Bytes(bytes) => Val::Bytes(bytes.inner().into()),
        LiteralValue::Double(value) => Val::Double(*value.inner()),
        LiteralValue::Int(value) => Val::Int(*value.inner()),
        LiteralValue::Null => Val::Null,
        LiteralValue::String(text) => Val::text(text.inner()),
        LiteralValue::UInt(value) => Val::UInt(*value.inner()),
    }
}

//! Macros that the parser keeps as calls: each costs the same as its expansion.

use std::collections::BTreeMap;
use std::rc::Rc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, Expr};

use super::eval::{Scope, key_value};
use super::value::{Fault, Outcome, Val};
use super::{cost, operators};

/// Key or index, and its value.
type Entry<'a> = (Val<'a>, Outcome<'a>);

impl<'a> Scope<'a> {
    /// Evaluates a macro that the parser keeps as a call, as it binds variables.
    pub(super) fn macro_call(&mut self, name: &str, call: &CallExpr, args: &[IdedExpr]) -> Option<Outcome<'a>> {
        let target = call.target.as_deref()?;
        let variable = |at: usize| match &args.get(at)?.expr {
            Expr::Ident(name) => Some(name.clone()),
            _ => None,
        };
        match (name, args.len()) {
            ("optMap" | "optFlatMap", 2) => {
                let variable = variable(0)?;
                let flat = name == "optFlatMap";
                Some(self.optional_map(target, &variable, &args[1], flat))
            }
            ("sortBy", 2) => {
                let variable = variable(0)?;
                Some(self.sort_by(target, &variable, &args[1]))
            }
            ("all" | "exists" | "existsOne" | "exists_one", 3) => {
                let (one, two) = (variable(0)?, variable(1)?);
                Some(self.quantify(name, target, &one, &two, &args[2]))
            }
            ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
                let (one, two) = (variable(0)?, variable(1)?);
                let (filter, step) = if args.len() == 4 { (Some(&args[2]), &args[3]) } else { (None, &args[2]) };
                Some(self.transform(name, target, [&one, &two], filter, step))
            }
            _ => None,
        }
    }

    fn with<T>(&mut self, bound: &[(&str, Outcome<'a>)], body: impl FnOnce(&mut Self) -> T) -> T {
        let depth = self.variables.len();
        self.variables.extend(bound.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let result = body(self);
        self.variables.truncate(depth);
        result
    }

    fn optional_map(&mut self, target: &IdedExpr, variable: &str, body: &IdedExpr, flat: bool) -> Outcome<'a> {
        // Expands to `target.hasValue() ? optional.of(body with target.value()) : optional.none()`.
        let before = self.cost;
        match self.eval(target)? {
            Val::Optional(None) => {
                self.spend(2)?;
                Ok(Val::Optional(None))
            }
            Val::Optional(Some(inner)) => {
                self.spend(self.cost - before + 2 + u64::from(!flat))?;
                let value = self.with(&[(variable, Ok((*inner).clone()))], |scope| scope.eval(body))?;
                Ok(if flat { value } else { Val::Optional(Some(Rc::new(value))) })
            }
            _ => Err(Fault::Overload),
        }
    }

    fn sort_by(&mut self, target: &IdedExpr, variable: &str, key: &IdedExpr) -> Outcome<'a> {
        let items = self.eval(target)?.items().ok_or(Fault::Overload)?;
        let mut keyed = Vec::with_capacity(items.len());
        // Expands to a call with the list and `list.map(variable, key)`.
        self.spend(3)?;
        for item in items {
            let item = item?;
            let key = self.with(&[(variable, Ok(item.clone()))], |scope| scope.eval(key))?;
            self.spend(cost::LIST + 2)?;
            keyed.push((key, item));
        }
        let keys = Val::List(Rc::new(keyed.iter().map(|(key, _)| key.clone()).collect()));
        self.spend(cost::self_compare(&keys))?;
        let less = |a: &Val<'a>, b: &Val<'a>| matches!(operators::binary("_<_", a, b), Ok(Val::Bool(true)));
        keyed.sort_by(|(a, _), (b, _)| match (less(a, b), less(b, a)) {
            (true, _) => std::cmp::Ordering::Less,
            (_, true) => std::cmp::Ordering::Greater,
            _ => std::cmp::Ordering::Equal,
        });
        Ok(Val::List(Rc::new(keyed.into_iter().map(|(_, item)| item).collect())))
    }

    /// Index and item of a list, key and value of a map.
    fn entries(&mut self, target: &IdedExpr) -> Result<Vec<Entry<'a>>, Fault> {
        let value = self.eval(target)?;
        if let Some(items) = value.items() {
            return Ok(items.into_iter().enumerate().map(|(at, item)| (Val::Int(at as i64), item)).collect());
        }
        let keys = value.keys().ok_or(Fault::Overload)?;
        Ok(keys.into_iter().filter_map(|key| value.get(&key).map(|value| (key_value(key), value))).collect())
    }

    fn quantify(&mut self, name: &str, target: &IdedExpr, one: &str, two: &str, test: &IdedExpr) -> Outcome<'a> {
        let (mut count, mut fault) = (0, None);
        let entries = self.entries(target)?;
        let more = |at: usize| at + 1 < entries.len();
        // Cost of the loop besides the predicate: its condition and accumulator.
        let (condition, result) = match name {
            "all" => (2, 1),
            "exists" => (3, 1),
            _ => (0, 2),
        };
        for (at, (key, value)) in entries.iter().cloned().enumerate() {
            self.spend(condition + u64::from(condition > 0))?;
            match (name, self.with(&[(one, Ok(key)), (two, value)], |scope| scope.eval(test))) {
                ("all", Ok(Val::Bool(false))) => {
                    self.spend(result + if more(at) { condition } else { 0 })?;
                    return Ok(Val::Bool(false));
                }
                ("exists", Ok(Val::Bool(true))) => {
                    self.spend(result + if more(at) { condition } else { 0 })?;
                    return Ok(Val::Bool(true));
                }
                ("existsOne" | "exists_one", Ok(Val::Bool(true))) => {
                    self.spend(2)?;
                    count += 1;
                }
                (_, Ok(Val::Bool(true))) => count += 1,
                (_, Ok(Val::Bool(false))) => {}
                (_, Ok(_)) => fault = fault.or(Some(Fault::Overload)),
                (_, Err(Fault::Limit)) => return Err(Fault::Limit),
                (_, Err(error)) => fault = fault.or(Some(error)),
            }
        }
        self.spend(result)?;
        match fault {
            Some(fault) => Err(fault),
            None => Ok(Val::Bool(match name {
                "all" => true,
                "exists" => false,
                _ => count == 1,
            })),
        }
    }

    fn transform(
        &mut self,
        name: &str,
        target: &IdedExpr,
        names: [&str; 2],
        filter: Option<&IdedExpr>,
        step: &IdedExpr,
    ) -> Outcome<'a> {
        let (mut list, mut map) = (Vec::new(), BTreeMap::new());
        let step_cost = if name == "transformList" { cost::LIST + 2 } else { 3 };
        for (key, value) in self.entries(target)? {
            let bound = [(names[0], Ok(key.clone())), (names[1], value)];
            if let Some(filter) = filter {
                match self.with(&bound, |scope| scope.eval(filter))? {
                    Val::Bool(true) => {}
                    Val::Bool(false) => continue,
                    _ => return Err(Fault::Overload),
                }
            }
            self.spend(step_cost)?;
            let made = self.with(&bound, |scope| scope.eval(step))?;
            match name {
                "transformList" => list.push(made),
                "transformMap" => drop(map.insert(key.as_key().ok_or(Fault::Overload)?, made)),
                _ => {
                    for key in made.keys().ok_or(Fault::Overload)? {
                        let value = made.get(&key).unwrap_or(Err(Fault::Overload))?;
                        if map.insert(key.clone(), value).is_some() {
                            return Fault::other(format!(
                                "insert failed: key {} already exists",
                                operators::shown(&key)
                            ));
                        }
                    }
                }
            }
        }
        self.spend(1)?;
        Ok(if name == "transformList" { Val::List(Rc::new(list)) } else { Val::Map(Rc::new(map)) })
    }
}

//! Type checker: infers the types of an expression, with errors worded as by kube-apiserver.

use std::collections::HashMap;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, StructExpr,
};

use super::declare::Shape;
use super::expand::expand;
use super::form::dotted;
use super::parse::parse;
use super::signatures;
use super::source::Source;
use super::types::{Substitutions, Ty};

/// Maximum number of reported errors.
const MOST: usize = 100;

/// The variables in scope.
#[derive(Clone, Default)]
pub(super) struct Names(pub(super) Vec<(String, Ty)>);

/// A type-checked expression.
pub(super) struct Checked {
    /// With macros expanded.
    pub(super) expression: IdedExpr,
    /// Types by node ID.
    types: Vec<Ty>,
    /// Candidate overloads of each call.
    overloads: HashMap<u64, Vec<&'static str>>,
    /// The variables that it references.
    pub(super) refers: Vec<String>,
}

impl Checked {
    /// The type of a node.
    pub(super) fn ty(&self, id: u64) -> &Ty {
        usize::try_from(id).ok().and_then(|id| self.types.get(id)).unwrap_or(&Ty::Dyn)
    }

    /// The result type.
    pub(super) fn result(&self) -> &Ty {
        self.ty(self.expression.id)
    }

    pub(super) fn overloads(&self, id: u64) -> &[&'static str] {
        self.overloads.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn refers_to(&self, name: &str) -> bool {
        self.refers.iter().any(|known| known == name)
    }
}

/// Parses and type-checks an expression.
pub(super) fn check(text: &str, names: &Names) -> Result<Checked, String> {
    let (expression, mut source) = parse(text)?;
    let expression = expand(expression, &mut source);
    let types = vec![Ty::Dyn; source.len()];
    let mut checker = Checker {
        names,
        locals: Vec::new(),
        found: Substitutions::default(),
        types,
        overloads: HashMap::new(),
        refers: Vec::new(),
        errors: Vec::new(),
    };
    checker.check(&expression);
    let Checker { found, types, overloads, refers, mut errors, .. } = checker;
    let types: Vec<Ty> = types.iter().map(|ty| found.resolved(ty, true)).collect();
    let checked = Checked { expression, types, overloads, refers };
    if errors.is_empty() {
        errors = super::literals::literal_errors(&checked);
    }
    if errors.is_empty() { Ok(checked) } else { Err(report(&source, errors)) }
}

fn report(source: &Source, mut errors: Vec<(u64, String)>) -> String {
    errors.sort_by_key(|(id, _)| source.at(*id));
    let more = errors.len().saturating_sub(MOST);
    let mut lines: Vec<String> = errors.iter().take(MOST).map(|(id, message)| source.error(*id, message)).collect();
    if more > 0 {
        lines.push(format!("{more} more errors were truncated"));
    }
    lines.join("\n")
}

struct Checker<'a> {
    names: &'a Names,
    locals: Vec<(String, Ty)>,
    found: Substitutions,
    types: Vec<Ty>,
    overloads: HashMap<u64, Vec<&'static str>>,
    refers: Vec<String>,
    errors: Vec<(u64, String)>,
}

impl Checker<'_> {
    fn error(&mut self, id: u64, message: String) {
        self.errors.push((id, message));
    }

    fn set(&mut self, id: u64, ty: Ty) {
        let at = usize::try_from(id).expect("node IDs start at 1");
        if at >= self.types.len() {
            self.types.resize(at + 1, Ty::Dyn);
        }
        self.types[at] = ty;
    }

    fn ty(&self, expression: &IdedExpr) -> Ty {
        usize::try_from(expression.id).ok().and_then(|id| self.types.get(id)).cloned().unwrap_or(Ty::Dyn)
    }

    fn check(&mut self, expression: &IdedExpr) {
        let id = expression.id;
        let ty = match &expression.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Ty::Bool,
                LiteralValue::Bytes(_) => Ty::Bytes,
                LiteralValue::Double(_) => Ty::Double,
                LiteralValue::Int(_) => Ty::Int,
                LiteralValue::Null => Ty::Null,
                LiteralValue::String(_) => Ty::Text,
                LiteralValue::UInt(_) => Ty::UInt,
            },
            Expr::Ident(name) => self.name(id, name),
            Expr::Select(select) => {
                let qualified = if select.test { None } else { dotted(expression) };
                match qualified.and_then(|name| self.qualified(&name)) {
                    Some(ty) => ty,
                    None => {
                        let ty = self.field(id, &select.operand, &select.field, false);
                        if select.test { Ty::Bool } else { self.found.resolved(&ty, false) }
                    }
                }
            }
            Expr::Call(call) => self.call(id, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::Struct(made) => self.structure(id, made),
            Expr::Unspecified => Ty::Error,
        };
        self.set(id, ty);
    }

    /// An object construction, which mutating admission policies use.
    fn structure(&mut self, id: u64, made: &StructExpr) -> Ty {
        let root = made.type_name.split('.').next().unwrap_or_default();
        let decl = match self.names.0.iter().find(|(known, _)| known == root) {
            Some((_, Ty::Type(Some(ty)))) => match &**ty {
                Ty::Object(name, decl) if **name == *made.type_name || matches!(decl.shape, Shape::Open) => {
                    decl.clone()
                }
                _ => return self.no_structure(id, &made.type_name),
            },
            _ => return self.no_structure(id, &made.type_name),
        };
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            self.check(&field.value);
            let ty = if field.optional { self.optional_element(&field.value) } else { self.ty(&field.value) };
            let wanted = decl.field(&field.field).map(|decl| decl.ty(""));
            if !wanted.as_ref().is_some_and(|wanted| self.found.fits(wanted, &ty)) {
                let wanted = wanted.map(|wanted| wanted.to_string()).unwrap_or_default();
                let name = &field.field;
                let why = format!("expected type of field '{name}' is '{wanted}' but provided type is '{ty}'");
                self.error(entry.id, why);
            }
        }
        Ty::Object(made.type_name.as_str().into(), decl)
    }

    fn no_structure(&mut self, id: u64, name: &str) -> Ty {
        match declared_type(name) {
            Some(ty) => self.error(id, format!("'{ty}' is not a message type")),
            None => self.undeclared(id, name),
        }
        Ty::Error
    }

    fn undeclared(&mut self, id: u64, name: &str) {
        self.error(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn name(&mut self, id: u64, name: &str) -> Ty {
        if let Some((_, ty)) = self.locals.iter().rev().find(|(known, _)| known == name) {
            return ty.clone();
        }
        match self.global(name.trim_start_matches('.')) {
            Some(ty) => ty,
            None => {
                self.undeclared(id, name);
                Ty::Error
            }
        }
    }

    fn global(&mut self, name: &str) -> Option<Ty> {
        if let Some((name, ty)) = self.names.0.iter().find(|(known, _)| known == name) {
            if !self.refers.contains(name) {
                self.refers.push(name.clone());
            }
            return Some(ty.clone());
        }
        declared_type(name).map(|ty| Ty::Type(Some(std::rc::Rc::new(ty))))
    }

    /// A qualified type name. Selections on variables are not type names.
    fn qualified(&mut self, name: &str) -> Option<Ty> {
        let first = name.split('.').next().unwrap_or_default();
        if self.locals.iter().any(|(known, _)| known == first) {
            return None;
        }
        self.global(name)
    }

    fn field(&mut self, id: u64, operand: &IdedExpr, field: &str, optional: bool) -> Ty {
        self.check(operand);
        let operand = self.found.resolved(&self.ty(operand), false);
        let (target, was_optional) = operand.unwrapped();
        let ty = match target {
            Ty::Map(_, value) => (**value).clone(),
            Ty::Object(name, decl) => match decl.field(field) {
                Some(decl) => decl.ty(&format!("{name}.{field}")),
                None => {
                    self.error(id, format!("undefined field '{field}'"));
                    Ty::Error
                }
            },
            Ty::Open(_) => {
                self.found.fits(&Ty::Dyn, target);
                Ty::Dyn
            }
            ty if ty.is_dyn_or_error() => Ty::Dyn,
            ty => {
                self.error(id, format!("type '{ty}' does not support field selection"));
                Ty::Dyn
            }
        };
        if was_optional || optional { Ty::optional(ty) } else { ty }
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Ty {
        if let ("_?._", [operand, field]) = (call.func_name.as_str(), call.args.as_slice()) {
            let Expr::Literal(LiteralValue::String(name)) = &field.expr else { return Ty::Error };
            let ty = self.field(id, operand, name.inner(), true);
            self.overloads.insert(id, vec!["select_optional_field"]);
            return self.found.resolved(&ty, false);
        }
        call.args.iter().for_each(|arg| self.check(arg));
        let name = call.func_name.trim_start_matches('.');
        let Some(target) = call.target.as_deref() else { return self.resolve(id, name, None, &call.args) };
        if let Some(prefix) = dotted(target) {
            let qualified = format!("{}.{name}", prefix.trim_start_matches('.'));
            // `jsonpatch.escapeKey` exists only where patches are created.
            let makes = qualified != "jsonpatch.escapeKey" || self.names.0.iter().any(|(name, _)| name == "JSONPatch");
            if makes && signatures::with(&qualified, |_| ()).is_some() {
                return self.resolve(id, &qualified, None, &call.args);
            }
        }
        self.check(target);
        self.resolve(id, name, Some(target), &call.args)
    }

    /// Resolves the overloads of a call, and its result type.
    fn resolve(&mut self, id: u64, name: &str, target: Option<&IdedExpr>, args: &[IdedExpr]) -> Ty {
        let types: Vec<Ty> = target.into_iter().chain(args).map(|arg| self.ty(arg)).collect();
        if name == "_&&_" || name == "_||_" {
            return self.logic(id, name, args, &types);
        }
        let found = &mut self.found;
        let result = signatures::with(name, |overloads| {
            let (mut result, mut ids) = (None::<Ty>, Vec::new());
            for overload in overloads.iter().filter(|one| one.method == target.is_some()) {
                if overload.args.len() != types.len() {
                    continue;
                }
                let mut open = Vec::new();
                let wanted: Vec<Ty> = overload.args.iter().map(|ty| instance(ty, &mut open, found)).collect();
                let gives = instance(&overload.result, &mut open, found);
                let pairs: Vec<(&Ty, &Ty)> = types.iter().zip(&wanted).collect();
                if !found.all_fit(&pairs) {
                    continue;
                }
                ids.push(overload.id);
                let gives = found.resolved(&gives, false);
                result = Some(match result {
                    None => gives,
                    Some(Ty::Dyn) => Ty::Dyn,
                    Some(before) if before.same(&gives) => before,
                    Some(_) => Ty::Dyn,
                });
            }
            result.map(|result| (result, ids))
        });
        match result {
            Some(Some((result, ids))) => {
                self.overloads.insert(id, ids);
                result
            }
            Some(None) => {
                let shown: Vec<String> = types.iter().map(|ty| self.found.resolved(ty, true).to_string()).collect();
                let signature = match target {
                    Some(_) => format!("{}.({})", shown[0], shown[1..].join(", ")),
                    None => format!("({})", shown.join(", ")),
                };
                self.error(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
                Ty::Error
            }
            None => {
                self.undeclared(id, name);
                Ty::Error
            }
        }
    }

    fn logic(&mut self, id: u64, name: &str, args: &[IdedExpr], types: &[Ty]) -> Ty {
        let mut result = Ty::Bool;
        for (arg, ty) in args.iter().zip(types) {
            if !self.found.fits(ty, &Ty::Bool) {
                self.mismatch(arg.id, &Ty::Bool, ty);
                result = Ty::Error;
            }
        }
        self.overloads.insert(id, vec![if name == "_&&_" { "logical_and" } else { "logical_or" }]);
        result
    }

    fn mismatch(&mut self, id: u64, expected: &Ty, actual: &Ty) {
        self.error(id, format!("expected type '{expected}' but found '{actual}'"));
    }

    /// The inner type of an optional element, which must be optional.
    fn optional_element(&mut self, element: &IdedExpr) -> Ty {
        let ty = self.ty(element);
        match ty.unwrapped() {
            (inner, true) => inner.clone(),
            (Ty::Dyn, false) => Ty::Dyn,
            (other, false) => {
                let other = other.clone();
                self.mismatch(element.id, &Ty::optional(other.clone()), &other);
                other
            }
        }
    }

    fn list(&mut self, list: &ListExpr) -> Ty {
        let mut common = None;
        for (index, element) in list.elements.iter().enumerate() {
            self.check(element);
            let optional = list.optional_indices.contains(&index);
            let ty = if optional { self.optional_element(element) } else { self.ty(element) };
            common = Some(self.join(common, ty));
        }
        Ty::list(common.unwrap_or_else(|| self.found.open()))
    }

    fn map(&mut self, map: &MapExpr) -> Ty {
        let (mut keys, mut values) = (None, None);
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            self.check(&entry.key);
            keys = Some(self.join(keys, self.ty(&entry.key)));
            self.check(&entry.value);
            let ty = if entry.optional { self.optional_element(&entry.value) } else { self.ty(&entry.value) };
            values = Some(self.join(values, ty));
        }
        let key = keys.unwrap_or_else(|| self.found.open());
        let value = values.unwrap_or_else(|| self.found.open());
        Ty::Map(std::rc::Rc::new(key), std::rc::Rc::new(value))
    }

    /// Joins the type of the elements so far with another one. Mixed types are reported once all types are known.
    fn join(&mut self, before: Option<Ty>, ty: Ty) -> Ty {
        let Some(before) = before else { return ty };
        if self.found.fits(&before, &ty) { Substitutions::general(&before, &ty) } else { Ty::Dyn }
    }

    fn fold(&mut self, fold: &ComprehensionExpr) -> Ty {
        self.check(&fold.iter_range);
        self.check(&fold.accu_init);
        let range = self.found.resolved(&self.ty(&fold.iter_range), false);
        let accumulator = self.ty(&fold.accu_init);
        let (one, two) = match &range {
            Ty::List(of) => match fold.iter_var2 {
                Some(_) => (Ty::Int, (**of).clone()),
                None => ((**of).clone(), Ty::Dyn),
            },
            Ty::Map(key, value) => ((**key).clone(), (**value).clone()),
            Ty::Dyn | Ty::Error | Ty::Open(_) => {
                self.found.fits(&Ty::Dyn, &range);
                (Ty::Dyn, Ty::Dyn)
            }
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(fold.iter_range.id, why);
                (Ty::Error, Ty::Error)
            }
        };
        let depth = self.locals.len();
        self.locals.push((fold.accu_var.clone(), accumulator.clone()));
        self.locals.push((fold.iter_var.clone(), one));
        if let Some(name) = &fold.iter_var2 {
            self.locals.push((name.clone(), two));
        }
        for (part, wanted) in [(&fold.loop_cond, &Ty::Bool), (&fold.loop_step, &accumulator)] {
            self.check(part);
            let ty = self.ty(part);
            if !self.found.fits(wanted, &ty) {
                self.mismatch(part.id, wanted, &ty);
            }
        }
        self.locals.truncate(depth + 1);
        self.check(&fold.result);
        self.locals.truncate(depth);
        self.found.resolved(&self.ty(&fold.result), false)
    }
}

/// Instantiates a declared type: its parameters become type variables.
fn instance(ty: &Ty, open: &mut Vec<(char, Ty)>, found: &mut Substitutions) -> Ty {
    use std::rc::Rc;
    match ty {
        Ty::Parameter(letter) => match open.iter().find(|(known, _)| known == letter) {
            Some((_, ty)) => ty.clone(),
            None => {
                let ty = found.open();
                open.push((*letter, ty.clone()));
                ty
            }
        },
        Ty::List(of) => Ty::list(instance(of, open, found)),
        Ty::Optional(of) => Ty::optional(instance(of, open, found)),
        Ty::Type(Some(of)) => Ty::Type(Some(Rc::new(instance(of, open, found)))),
        Ty::Map(key, value) => {
            let key = instance(key, open, found);
            Ty::Map(Rc::new(key), Rc::new(instance(value, open, found)))
        }
        other => other.clone(),
    }
}

/// Well-known type names.
fn declared_type(name: &str) -> Option<Ty> {
    use std::rc::Rc;
    Some(match name {
        "bool" => Ty::Bool,
        "bytes" => Ty::Bytes,
        "double" => Ty::Double,
        "dyn" => Ty::Dyn,
        "int" => Ty::Int,
        "list" => Ty::list(Ty::Dyn),
        "map" => Ty::Map(Rc::new(Ty::Dyn), Rc::new(Ty::Dyn)),
        "null_type" => Ty::Null,
        "string" => Ty::Text,
        "type" => Ty::Type(None),
        "uint" => Ty::UInt,
        "optional_type" => Ty::optional(Ty::Dyn),
        "google.protobuf.Duration" => Ty::Duration,
        "google.protobuf.Timestamp" => Ty::Time,
        "net.IP" => Ty::Library("net.IP"),
        "net.CIDR" => Ty::Library("net.CIDR"),
        "kubernetes.Quantity" => Ty::Library("kubernetes.Quantity"),
        "kubernetes.URL" => Ty::Library("kubernetes.URL"),
        "kubernetes.Semver" => Ty::Library("kubernetes.Semver"),
        "kubernetes.NamedFormat" => Ty::Library("kubernetes.NamedFormat"),
        _ => return None,
    })
}

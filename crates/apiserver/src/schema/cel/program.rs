//! Expressions on admission requests: match conditions of webhooks, and admission policies. Objects are untyped there:
//! fields are resolved at evaluation.

use std::collections::BTreeMap;
use std::rc::Rc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::Expr;
use serde_json::Value;

use super::access::{Access, Authorize};
use super::declare::Decl;
use super::eval::Scope;
use super::infer::{self, Names};
use super::types::Ty;
use super::value::{Fault, Outcome, Val};

/// The variable that holds the composed variables of a policy.
const VARIABLES: &str = "variables";

/// The required result type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// Boolean.
    Bool,
    /// String.
    Text,
    /// String, or null for none.
    TextOrNull,
    /// An apply configuration.
    Object,
    /// A JSON patch.
    Patches,
    /// Any type.
    Any,
}

impl ResultType {
    /// The error for another type.
    fn type_error(self, ty: &Ty) -> Option<String> {
        let (fits, name) = match self {
            Self::Any => return None,
            Self::Bool => (matches!(ty, Ty::Bool), "bool"),
            Self::Text => (matches!(ty, Ty::Text), "string"),
            Self::TextOrNull => (matches!(ty, Ty::Text | Ty::Null), "one of [string null_type]"),
            Self::Object => (is_object(ty, "Object"), "Object"),
            Self::Patches => (matches!(ty, Ty::List(of) if is_object(of, "JSONPatch")), "list(JSONPatch)"),
        };
        (!fits).then(|| format!("must evaluate to {name} but got {ty}"))
    }
}

fn is_object(ty: &Ty, wanted: &str) -> bool {
    matches!(ty, Ty::Object(name, _) if **name == *wanted)
}

/// The environment of expressions on requests.
pub struct Env {
    names: Names,
    variables: Vec<(String, Rc<Decl>)>,
}

impl Env {
    /// With the request and its objects, and with `params` if the policy has parameters.
    pub fn request(params: bool) -> Self {
        let mut names = vec![
            ("object".to_owned(), Ty::Dyn),
            ("oldObject".to_owned(), Ty::Dyn),
            ("request".to_owned(), request().ty("")),
            ("namespaceObject".to_owned(), namespace().ty("")),
            ("authorizer".to_owned(), Ty::Library("kubernetes.authorization.Authorizer")),
            ("authorizer.requestResource".to_owned(), Ty::Library("kubernetes.authorization.ResourceCheck")),
        ];
        if params {
            names.push(("params".to_owned(), Ty::Dyn));
        }
        Self { names: Names(names), variables: Vec::new() }
    }

    /// The same for mutations, which construct objects and patches.
    pub fn mutation(params: bool) -> Self {
        let mut env = Self::request(params);
        let text = || Decl::plain(Ty::Text, 0, 2);
        let fields = [("op", text()), ("path", text()), ("from", text()), ("value", Decl::plain(Ty::Dyn, 0, 1))];
        for (name, decl) in [("Object", Decl::open()), ("JSONPatch", Decl::named("JSONPatch", fields))] {
            env.names.0.push((name.to_owned(), Ty::Type(Some(Rc::new(decl.ty(name))))));
        }
        env
    }

    /// Declares a composed variable by its expression. One with an error has type `dyn`.
    pub fn declare(&mut self, name: &str, expression: &str) {
        let ty = infer::check(expression, &self.names).map_or(Ty::Error, |checked| checked.result().clone());
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), Decl::plain(ty, 0, 0)));
        let all = Decl::fields("kubernetes.variables", self.variables.iter().cloned());
        self.names.0.retain(|(name, _)| name != VARIABLES);
        self.names.0.push((VARIABLES.to_owned(), all.ty("")));
    }

    /// Type-checks an expression.
    pub fn type_error(&self, text: &str, wanted: ResultType) -> Option<String> {
        match infer::check(text, &self.names) {
            Ok(checked) => wanted.type_error(checked.result()),
            Err(why) => Some(format!("compilation failed: {why}")),
        }
    }
}

fn request() -> Rc<Decl> {
    let text = || Decl::plain(Ty::Text, 0, 2);
    let kind = || {
        let fields = [("group", text()), ("version", text()), ("kind", text())];
        Decl::named("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = [("group", text()), ("version", text()), ("resource", text())];
        Decl::named("kubernetes.GroupVersionResource", fields)
    };
    let user = Decl::named(
        "kubernetes.UserInfo",
        [
            ("username", text()),
            ("uid", text()),
            ("groups", Decl::list(text(), 0)),
            ("extra", Decl::map(Decl::list(text(), 0), 0)),
        ],
    );
    Decl::named(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Decl::plain(Ty::Bool, 0, 4)),
            ("options", Decl::plain(Ty::Dyn, 0, 1)),
        ],
    )
}

fn namespace() -> Rc<Decl> {
    let text = || Decl::plain(Ty::Text, 0, 2);
    let time = || Decl::plain(Ty::Time, 0, 12);
    let number = || Decl::plain(Ty::Int, 0, 1);
    let condition = Decl::named(
        "kubernetes.NamespaceCondition",
        [("status", text()), ("type", text()), ("lastTransitionTime", time()), ("message", text()), ("reason", text())],
    );
    let metadata = Decl::named(
        "kubernetes.NamespaceMetadata",
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", Decl::map(text(), 0)),
            ("annotations", Decl::map(text(), 0)),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", text()),
            ("finalizers", Decl::list(text(), 0)),
        ],
    );
    let status = [("conditions", Decl::list(condition, 0)), ("phase", text())];
    Decl::named(
        "kubernetes.Namespace",
        [
            ("metadata", metadata),
            ("spec", Decl::named("kubernetes.NamespaceSpec", [("finalizers", Decl::list(text(), 0))])),
            ("status", Decl::named("kubernetes.NamespaceStatus", status)),
        ],
    )
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    text: String,
    expression: Result<IdedExpr, String>,
}

impl Program {
    /// Compiles an expression. Errors are reported when it is evaluated.
    pub fn new(text: &str) -> Self {
        let expression = super::parse::parse(text).map(|(expression, _)| expression);
        Self { text: text.to_owned(), expression }
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Why evaluation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The cost budget of all expressions is exhausted.
    Exhausted,
    /// This expression failed.
    Fault(String),
}

/// Evaluation of expressions on one request.
pub struct Run<'a> {
    bound: Vec<(&'static str, Val<'a>)>,
    variables: Vec<(&'a str, &'a Program)>,
    done: BTreeMap<Rc<str>, Outcome<'a>>,
    left: u64,
}

impl<'a> Run<'a> {
    /// With a cost budget for all expressions together.
    pub fn new(budget: u64) -> Self {
        Self { bound: Vec::new(), variables: Vec::new(), done: BTreeMap::new(), left: budget }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &'static str, value: &Value) {
        self.bound.push((name, Val::json(value)));
    }

    /// Sets `authorizer`, and `authorizer.requestResource` from `request`.
    pub fn authorize(&mut self, authorizer: &'a dyn Authorize, request: crate::auth::Attributes) {
        self.bound.push(("authorizer", Access::root(authorizer)));
        self.bound.push(("authorizer.requestResource", Access::about(authorizer, request)));
    }

    /// Adds composed variables, which are evaluated lazily.
    pub fn variables(&mut self, variables: impl IntoIterator<Item = (&'a str, &'a Program)>) {
        self.variables = variables.into_iter().collect();
    }

    /// Evaluates to a boolean.
    pub fn evaluate_bool(&mut self, program: &Program) -> Result<bool, Failure> {
        match self.value(program)? {
            Val::Bool(value) => Ok(value),
            _ => Err(Failure::Fault("must evaluate to bool".to_owned())),
        }
    }

    /// Evaluates to a string; `None` for null.
    pub fn text(&mut self, program: &Program) -> Result<Option<String>, Failure> {
        match self.value(program)? {
            Val::Text(text) => Ok(Some(text.to_string())),
            Val::Null => Ok(None),
            _ => Err(Failure::Fault("must evaluate to string".to_owned())),
        }
    }

    /// Evaluates to a constructed object or patch, as JSON.
    pub fn evaluate_object(&mut self, program: &Program) -> Result<Result<Value, String>, Failure> {
        let value = self.value(program)?;
        let mut wrong = Vec::new();
        match &value {
            Val::List(patches) => {
                for patch in patches.iter() {
                    if let Val::Constructed(_, fields) = patch
                        && let Some(value @ Val::Constructed(name, _)) = fields.get("value")
                    {
                        value.misnamed(name, &mut wrong);
                    }
                }
            }
            value => value.misnamed("Object", &mut wrong),
        }
        if !wrong.is_empty() {
            return Ok(Err(format!("type mismatch: {}", wrong.join("\n"))));
        }
        Ok(value.to_json().ok_or_else(|| "unsupported return type".to_owned()))
    }

    fn value(&mut self, program: &Program) -> Result<Val<'a>, Failure> {
        self.outcome(program)?.map_err(|fault| Failure::Fault(fault.to_string()))
    }

    fn outcome(&mut self, program: &Program) -> Result<Outcome<'a>, Failure> {
        let expression = match &program.expression {
            Ok(expression) => expression,
            Err(why) => return Ok(Err(Fault::Other(format!("compilation failed: {why}")))),
        };
        let mut referenced = Vec::new();
        fields_of_variables(expression, &mut referenced);
        for name in referenced {
            self.variable(&name)?;
        }
        let mut scope = Scope::new();
        for (name, value) in &self.bound {
            scope.bind(name, value.clone());
        }
        if !self.variables.is_empty() {
            scope.bind(VARIABLES, Val::Named(Rc::new(self.done.clone())));
        }
        let outcome = scope.eval(expression);
        match self.left.checked_sub(scope.cost) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                return Err(Failure::Exhausted);
            }
        }
        Ok(outcome)
    }

    fn variable(&mut self, name: &str) -> Result<(), Failure> {
        let Some((_, program)) = self.variables.iter().find(|(known, _)| *known == name).copied() else {
            return Ok(());
        };
        if self.done.contains_key(name) {
            return Ok(());
        }
        // Variables can only reference earlier ones, so there are no cycles.
        let fault = |why: &str| Fault::Other(format!("composited variable {name:?} fails to evaluate: {why}"));
        self.done.insert(name.into(), Err(fault("it refers to itself")));
        let outcome = self.outcome(program)?.map_err(|why| fault(&why.to_string()));
        self.done.insert(name.into(), outcome);
        Ok(())
    }
}

/// The composed variables that an expression references.
fn fields_of_variables(expression: &IdedExpr, out: &mut Vec<String>) {
    if let Expr::Select(select) = &expression.expr
        && matches!(&select.operand.expr, Expr::Ident(name) if name == VARIABLES)
        && !out.contains(&select.field)
    {
        out.push(select.field.clone());
    }
    super::rule::parts(expression, &mut |part| fields_of_variables(part, out));
}

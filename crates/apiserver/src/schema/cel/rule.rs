//! A compiled rule.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr};
use serde_json::Value;

/// A validation rule of a CRD.
pub(super) struct Rule {
    /// The expression; `None` if it is empty, or a syntax error.
    pub(super) expression: Result<Option<IdedExpr>, String>,
    pub(super) message_expression: Option<IdedExpr>,
    /// Whether it references `oldSelf`.
    pub(super) uses_old: bool,
    /// Whether it is also evaluated without an old value (`optionalOldSelf`).
    pub(super) optional_old: bool,
    pub(super) reason: String,
    /// `fieldPath` of the error, relative to the value: `spec.replicas`.
    pub(super) field_path: String,
    text: String,
    message: String,
}

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<IdedExpr, String> {
    super::parse::parse(text).map(|(expression, _)| expression)
}

impl Rule {
    pub(super) fn compile(source: &Value) -> Self {
        let text = |key: &str| source[key].as_str().unwrap_or_default().to_owned();
        let rule = text("rule");
        let expression = if rule.trim().is_empty() { Ok(None) } else { parse(&rule).map(Some) };
        let message_expression = Some(text("messageExpression")).filter(|text| !text.is_empty());
        let message_expression = message_expression.and_then(|text| parse(&text).ok());
        let uses_old = expression.as_ref().is_ok_and(|it| it.as_ref().is_some_and(|it| mentions(it, "oldSelf")));
        Self {
            expression,
            message_expression,
            uses_old,
            optional_old: source["optionalOldSelf"] == true,
            reason: text("reason"),
            field_path: normalized(&text("fieldPath")),
            text: rule,
            message: text("message"),
        }
    }

    /// The rule as errors name it.
    pub(super) fn shown(&self) -> &str {
        let text = if self.message.is_empty() { &self.text } else { &self.message };
        text.trim()
    }

    /// The error message.
    pub(super) fn message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.shown()) } else { self.message.trim().to_owned() }
    }
}

/// Normalizes `.a.b['c']` to a field path: `a.b[c]`.
fn normalized(path: &str) -> String {
    path.trim_start_matches('.').replace("['", "[").replace("']", "]").replace("\\'", "'")
}

/// Whether an expression references a variable.
pub(super) fn mentions(expression: &IdedExpr, name: &str) -> bool {
    if let Expr::Ident(ident) = &expression.expr {
        return ident == name;
    }
    let mut found = false;
    parts(expression, &mut |part| found = found || mentions(part, name));
    found
}

/// Visits the direct subexpressions.
pub(super) fn parts(expression: &IdedExpr, visit: &mut impl FnMut(&IdedExpr)) {
    match &expression.expr {
        Expr::Select(select) => visit(&select.operand),
        Expr::Call(call) => {
            call.target.iter().for_each(|target| visit(target));
            call.args.iter().for_each(visit);
        }
        Expr::List(list) => list.elements.iter().for_each(visit),
        Expr::Map(map) => map.entries.iter().for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                visit(&entry.key);
                visit(&entry.value);
            }
            EntryExpr::StructField(field) => visit(&field.value),
        }),
        Expr::Comprehension(fold) => {
            for part in [&fold.iter_range, &fold.accu_init, &fold.loop_cond, &fold.loop_step, &fold.result] {
                visit(part);
            }
        }
        Expr::Struct(made) => made.entries.iter().for_each(|entry| {
            if let EntryExpr::StructField(field) = &entry.expr {
                visit(&field.value);
            }
        }),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

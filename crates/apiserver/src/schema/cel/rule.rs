//! One rule, compiled.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr};
use kube_cel::cel::parser::Parser;
use serde_json::Value;

/// A rule of a CRD.
pub(super) struct Rule {
    /// The expression; nothing if it is empty, or why it cannot be read.
    pub(super) expression: Result<Option<IdedExpr>, String>,
    pub(super) message_expression: Option<IdedExpr>,
    /// Whether it looks at the old value.
    pub(super) uses_old: bool,
    /// Whether it is evaluated without an old value too.
    pub(super) optional_old: bool,
    pub(super) reason: String,
    /// Where the fault is, below the value: `spec.replicas`.
    pub(super) field_path: String,
    text: String,
    message: String,
}

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<IdedExpr, String> {
    Parser::new().enable_optional_syntax(true).parse(text).map_err(|errors| errors.to_string())
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

    /// How messages about the rule name it.
    pub(super) fn shown(&self) -> &str {
        let text = if self.message.is_empty() { &self.text } else { &self.message };
        text.trim()
    }

    /// What is said when it does not hold.
    pub(super) fn message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.shown()) } else { self.message.trim().to_owned() }
    }
}

/// `.a.b['c']` as paths are written: `a.b[c]`.
fn normalized(path: &str) -> String {
    path.trim_start_matches('.').replace("['", "[").replace("']", "]").replace("\\'", "'")
}

/// Whether an expression mentions a variable.
pub(super) fn mentions(expression: &IdedExpr, name: &str) -> bool {
    let any = |list: &[IdedExpr]| list.iter().any(|it| mentions(it, name));
    match &expression.expr {
        Expr::Ident(ident) => ident == name,
        Expr::Select(select) => mentions(&select.operand, name),
        Expr::Call(call) => call.target.as_deref().is_some_and(|target| mentions(target, name)) || any(&call.args),
        Expr::List(list) => any(&list.elements),
        Expr::Map(map) => map.entries.iter().any(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => mentions(&entry.key, name) || mentions(&entry.value, name),
            EntryExpr::StructField(field) => mentions(&field.value, name),
        }),
        Expr::Comprehension(fold) => {
            [&fold.iter_range, &fold.accu_init, &fold.loop_cond, &fold.loop_step, &fold.result]
                .into_iter()
                .any(|it| mentions(it, name))
        }
        Expr::Struct(_) | Expr::Literal(_) | Expr::Unspecified => false,
    }
}

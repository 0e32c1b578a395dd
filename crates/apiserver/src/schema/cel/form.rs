//! Static analysis of expressions.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr};

/// Conversions: on constants they are folded and cost nothing.
const CONVERSIONS: &[&str] =
    &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Whether an expression is constant.
pub(super) fn is_constant(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Literal(_) => true,
        Expr::List(list) => list.optional_indices.is_empty() && list.elements.iter().all(is_constant),
        Expr::Map(map) => map.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => !entry.optional && is_constant(&entry.key) && is_constant(&entry.value),
            EntryExpr::StructField(_) => false,
        }),
        Expr::Call(call) => folded(call) && call.func_name != "@in",
        _ => false,
    }
}

/// Whether a call is constant-folded: a conversion of a constant, or `in` a list of constants.
pub(super) fn folded(call: &CallExpr) -> bool {
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("@in", [_, list]) => matches!(list.expr, Expr::List(_)) && is_constant(list),
        (name, args) => call.target.is_none() && CONVERSIONS.contains(&name) && args.iter().all(is_constant),
    }
}

/// Whether an expression is a variable, or a selection or index of one.
pub(super) fn is_path(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(_) => true,
        Expr::Select(select) => !select.test,
        Expr::Call(call) => ["_[_]", "_[?_]", "_?._"].contains(&call.func_name.as_str()),
        _ => false,
    }
}

/// `a.b.c`, if the expression is a chain of selections.
pub(super) fn dotted(expression: &IdedExpr) -> Option<String> {
    match &expression.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", dotted(&select.operand)?, select.field)),
        _ => None,
    }
}

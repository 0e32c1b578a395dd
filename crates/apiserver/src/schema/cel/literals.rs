//! Static checks of literals: malformed timestamps, regular expressions and formats, and lists of mixed types.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue};

use super::infer::Checked;
use super::types::Ty;
use crate::golang;
use crate::schema::format;

/// Errors in the literals of an expression, by node ID.
pub(super) fn literal_errors(checked: &Checked) -> Vec<(u64, String)> {
    let mut walk = Walk { checked, errors: Vec::new(), formats: 0 };
    walk.node(&checked.expression);
    walk.errors
}

struct Walk<'a> {
    checked: &'a Checked,
    errors: Vec<(u64, String)>,
    /// Nesting depth of `format` calls, whose argument lists may mix types.
    formats: usize,
}

fn text(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

impl Walk<'_> {
    fn node(&mut self, expression: &IdedExpr) {
        match &expression.expr {
            Expr::Select(select) => self.node(&select.operand),
            Expr::Call(call) => self.call(expression.id, call),
            Expr::List(list) => {
                list.elements.iter().for_each(|element| self.node(element));
                let optional = |at: usize| list.optional_indices.contains(&at);
                let parts = list.elements.iter().enumerate().map(|(at, element)| (element.id, optional(at)));
                self.alike(parts.collect(), 1);
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    self.node(&entry.key);
                    self.node(&entry.value);
                    keys.push((entry.key.id, false));
                    values.push((entry.value.id, entry.optional));
                }
                self.alike(keys, usize::MAX);
                self.alike(values, usize::MAX);
            }
            Expr::Comprehension(fold) => {
                for part in [&fold.iter_range, &fold.accu_init, &fold.loop_cond, &fold.loop_step, &fold.result] {
                    self.node(part);
                }
            }
            Expr::Struct(made) => {
                for entry in &made.entries {
                    if let EntryExpr::StructField(field) = &entry.expr {
                        self.node(&field.value);
                    }
                }
            }
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
    }

    /// Checks that the parts of a literal have one type. For a list, only the first mismatch is reported.
    fn alike(&mut self, parts: Vec<(u64, bool)>, most: usize) {
        if self.formats > 0 {
            return;
        }
        let mut parts = parts.into_iter().map(|(id, optional)| {
            let ty = self.checked.ty(id);
            (id, if optional { ty.unwrapped().0 } else { ty })
        });
        let Some((_, first)) = parts.next() else { return };
        let others = parts.filter(|(_, ty)| !ty.same(first)).take(most);
        let wrong = others.map(|(id, other)| (id, format!("expected type '{first}' but found '{other}'")));
        let wrong: Vec<_> = wrong.collect();
        self.errors.extend(wrong);
    }

    fn call(&mut self, id: u64, call: &CallExpr) {
        let formats = call.func_name == "format";
        self.formats += usize::from(formats);
        call.target.iter().for_each(|target| self.node(target));
        call.args.iter().for_each(|arg| self.node(arg));
        self.formats -= usize::from(formats);
        let Some(first) = call.args.first() else { return };
        if let (true, Some(target), Expr::List(list)) = (formats, call.target.as_deref(), &first.expr)
            && let Some(pattern) = text(target)
        {
            return self.format(id, pattern, &list.elements);
        }
        let Some(argument) = text(first) else { return };
        let wrong = match call.func_name.as_str() {
            "duration" => format::go_duration(argument).is_none(),
            "timestamp" => argument.parse::<jiff::Timestamp>().is_err(),
            "matches" => golang::regex(argument).is_err(),
            _ => false,
        };
        if wrong {
            self.errors.push((first.id, format!("invalid {} argument", call.func_name)));
        }
    }

    fn format(&mut self, id: u64, pattern: &str, args: &[IdedExpr]) {
        let mut used = 0;
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '%' {
                continue;
            }
            if chars.next_if_eq(&'%').is_some() {
                continue;
            }
            if chars.peek().is_none() {
                return self.errors.push((id, "unexpected end of string".to_owned()));
            }
            let Some(arg) = args.get(used) else {
                return self.errors.push((id, format!("index {used} out of range")));
            };
            used += 1;
            if chars.next_if_eq(&'.').is_some() {
                while chars.next_if(char::is_ascii_digit).is_some() {}
            }
            let Some(clause) = chars.next() else { return };
            match self.clause(clause, self.checked.ty(arg.id)) {
                None => {
                    let why = format!("could not parse formatting clause: unrecognized formatting clause \"{clause}\"");
                    return self.errors.push((id, why));
                }
                Some(None) => {}
                Some(Some(why)) => return self.errors.push((arg.id, why)),
            }
        }
        if args.len() > used {
            let why = format!("too many arguments supplied to string.format (expected {used}, got {})", args.len());
            self.errors.push((id, why));
        }
    }

    /// Why a value of this type does not fit a format clause; `None` for an unknown clause.
    fn clause(&self, clause: char, ty: &Ty) -> Option<Option<String>> {
        use Ty::{Bool, Bytes, Double, Duration, Dyn, Int, List, Map, Null, Text, Time, Type, UInt};
        let (fits, wanted) = match clause {
            's' => (
                matches!(
                    ty,
                    Dyn | Text
                        | Int
                        | UInt
                        | Double
                        | Bool
                        | Bytes
                        | Null
                        | Type(_)
                        | Time
                        | Duration
                        | List(_)
                        | Map(..)
                ),
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
            ),
            'd' => (matches!(ty, Dyn | Int | UInt), "decimal clause can only be used on integers"),
            'f' => (matches!(ty, Dyn | Double | Text), "fixed-point clause can only be used on doubles"),
            'e' => (matches!(ty, Dyn | Double | Text), "scientific clause can only be used on doubles"),
            'b' => (matches!(ty, Dyn | Int | UInt | Bool), "only integers and bools can be formatted as binary"),
            'x' | 'X' => (
                matches!(ty, Dyn | Int | UInt | Text | Bytes),
                "only integers, byte buffers, and strings can be formatted as hex",
            ),
            'o' => (matches!(ty, Dyn | Int | UInt), "octal clause can only be used on integers"),
            _ => return None,
        };
        Some((!fits).then(|| format!("error during formatting: {wanted}, was given {ty}")))
    }
}

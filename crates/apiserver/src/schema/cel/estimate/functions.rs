//! Estimated worst-case cost and result size of functions.

use std::cell::RefCell;
use std::rc::Rc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{Expr, LiteralValue};

use super::super::cost::LIST;
use super::super::expand::RESULT;
use super::super::types::Ty;
use super::{CostEstimator, Entries, Estimate, Path, Size};

/// Cost of traversing a string, per character.
const TRAVERSAL: f64 = 0.1;
/// Cost of a regular expression, per character of the pattern.
const REGEX: f64 = 0.25;

/// A fraction of a size, rounded up.
fn part(size: u64, factor: f64) -> u64 {
    let cost = (size as f64 * factor).ceil();
    if cost >= 18_446_744_073_709_551_616.0 { u64::MAX } else { cost as u64 }
}

impl CostEstimator<'_> {
    /// Cost of a call, by its overload.
    pub(super) fn function(
        &mut self,
        id: u64,
        name: &str,
        overload: &str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
        costs: &[u64],
    ) -> Estimate {
        if let Some(estimate) = self.extension(overload, target, args) {
            return estimate;
        }
        if let Some(estimate) = self.library(name, overload, target, args) {
            return estimate;
        }
        self.standard(id, overload, target, args, costs)
    }

    /// Functions of the list and set extensions.
    fn extension(&mut self, overload: &str, target: Option<&IdedExpr>, args: &[IdedExpr]) -> Option<Estimate> {
        let list = |size: Size, factor: f64| {
            Some(Estimate { cost: part(size.max, factor).saturating_add(1 + LIST), size: Some(size), with_args: false })
        };
        match (overload, target, args) {
            ("list_slice", Some(target), [start, end]) => {
                let size = self.known(target);
                let (start, end) = (literal(start, 0), literal(end, size.max));
                list(Size::fixed(end.wrapping_sub(start)), 1.0)
            }
            ("lists_range", None, [count]) => list(Size::fixed(literal(count, u64::MAX)), 1.0),
            ("list_reverse", Some(target), []) => list(self.known(target), 1.0),
            ("list_flatten", Some(target), []) => list(self.known(target), 1.0),
            ("list_flatten_int", Some(target), [depth]) => list(self.known(target), literal(depth, u64::MAX) as f64),
            ("list_distinct", Some(target), []) => {
                let size = self.known(target);
                list(size.times(size), 2.0)
            }
            (id, Some(target), args) if id.ends_with("_sort") || id.ends_with("_sortByAssociatedKeys") => {
                let size = self.known(args.first().unwrap_or(target));
                let text = id.starts_with("list_string") || id.starts_with("list_bytes");
                list(size.times(size), if text { 2.0 + TRAVERSAL } else { 2.0 })
            }
            (id, None, [one, other]) if id.starts_with("list_sets_") => {
                let size = self.known(one).times(self.known(other));
                let factor = if id.contains("equivalent") { 2.0 } else { 1.0 };
                Some(plain(part(size.max, factor).saturating_add(1)))
            }
            _ => None,
        }
    }

    /// Whether the items of a list are strings, and their declared size; `None` if it is not a list.
    fn item(&mut self, list: &IdedExpr) -> Option<(bool, Size)> {
        let Ty::List(of) = self.checked.ty(list.id) else { return None };
        let text = matches!(**of, Ty::Text | Ty::Bytes);
        let path = self.path(list);
        let hidden = path.room.borrow().first().is_some_and(|first| &**first == RESULT);
        // cel-go copies the path before appending a step.
        let copied = Path { room: Rc::new(RefCell::new(path.room.borrow().clone())), ..path.clone() };
        let declared = if path.is_empty() || hidden { None } else { self.declared(&copied.then("@items")) };
        Some((text, declared.unwrap_or(Size::UNKNOWN)))
    }

    /// Functions of Kubernetes' libraries.
    fn library(
        &mut self,
        name: &str,
        overload: &str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
    ) -> Option<Estimate> {
        match (name, target, args) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                let size = self.known(target).max;
                Some(plain(match self.item(target) {
                    Some((text, item)) => {
                        let each = if text { part(item.max, TRAVERSAL).saturating_add(1) } else { 1 };
                        size.saturating_mul(each)
                    }
                    None => part(size, TRAVERSAL),
                }))
            }
            ("url", None, [text]) | ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
                let size = self.known(text);
                Some(Estimate { cost: part(size.max, TRAVERSAL), size: Some(size), with_args: false })
            }
            ("replace", Some(target), [from, to, ..]) => {
                let (size, from, to) = (self.known(target), self.known(from), self.known(to));
                let cost = part(size.max, 2.0 * TRAVERSAL);
                Some(Estimate { cost, size: Some(replaced(size, from, to)), with_args: false })
            }
            ("split", Some(target), args) => {
                let size = self.known(target);
                let max = args.get(1).map_or(size.max, |count| literal(count, size.max));
                let cost = part(size.max, 2.0 * TRAVERSAL);
                Some(Estimate { cost, size: Some(Size { min: 0, max }), with_args: false })
            }
            ("join", Some(target), args) => {
                let count = self.known(target);
                let mut size = match self.item(target) {
                    Some((_, item)) => count.times(item),
                    None => Size::fixed(0),
                };
                if let Some(separator) = args.first() {
                    let between = Size { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    size = size.add(self.known(separator).times(between));
                }
                Some(Estimate { cost: part(size.max, TRAVERSAL), size: Some(size), with_args: false })
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let (size, pattern) = (self.known(target), self.known(pattern));
                let cost = part(size.max.saturating_add(1), TRAVERSAL).saturating_mul(part(pattern.max, REGEX));
                Some(Estimate { cost, size: Some(Size { min: 0, max: size.max }), with_args: false })
            }
            ("ip", _, _) if overload == "cidr_ip" => Some(plain(1)),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                None,
                [text, ..],
            ) => {
                let size = self.known(text);
                Some(plain(part(size.max, TRAVERSAL)))
            }
            ("isCanonical", _, [text]) => {
                let size = self.known(text);
                Some(plain(part(size.max, 2.0 * TRAVERSAL)))
            }
            ("containsIP" | "containsCIDR", Some(_), [other]) => {
                const ADDRESS: u64 = 16;
                let mut cost = part(ADDRESS + ADDRESS, TRAVERSAL);
                if name == "containsCIDR" {
                    cost += part(ADDRESS, TRAVERSAL) + 1;
                }
                if overload.ends_with("_string") {
                    let size = self.known(other);
                    cost = cost.saturating_add(part(size.max, TRAVERSAL));
                }
                Some(plain(cost))
            }
            ("validate", Some(_), [text]) => {
                const LONGEST_PATTERN: f64 = 128.0;
                let size = self.known(text);
                Some(plain(part(part(size.max, TRAVERSAL), LONGEST_PATTERN * REGEX)))
            }
            ("_==_", None, [one, other]) => self.equal_objects(one, other),
            _ => None,
        }
    }

    /// Library types have their own comparison costs.
    fn equal_objects(&mut self, one: &IdedExpr, other: &IdedExpr) -> Option<Estimate> {
        let checked = self.checked;
        let (Ty::Library(one_type), Ty::Library(other_type)) = (checked.ty(one.id), checked.ty(other.id)) else {
            return None;
        };
        if one_type != other_type {
            return None;
        }
        Some(plain(match *one_type {
            "kubernetes.NamedFormat" => part(64, TRAVERSAL),
            "kubernetes.URL" => {
                let size = self.size(other).map_or(1, |size| size.max);
                part(size, TRAVERSAL)
            }
            _ => 1,
        }))
    }

    /// Standard CEL functions.
    fn standard(
        &mut self,
        id: u64,
        overload: &str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
        costs: &[u64],
    ) -> Estimate {
        match (overload, target, args) {
            ("string_format", Some(target), _) => plain(part(self.known(target).max, TRAVERSAL)),
            ("string_to_bytes", _, [text]) => {
                let size = self.known(text);
                let made = Size { min: size.min, max: size.max.wrapping_mul(4) };
                Estimate { cost: part(size.max, TRAVERSAL), size: Some(made), with_args: false }
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = self.known(bytes);
                let made = Size { min: size.min / 4, max: size.max };
                Estimate { cost: part(size.max, TRAVERSAL), size: Some(made), with_args: false }
            }
            ("strings_quote", _, [text]) => {
                let size = self.known(text);
                let made = Size { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
                Estimate { cost: part(size.max, TRAVERSAL), size: Some(made), with_args: false }
            }
            ("starts_with_string" | "ends_with_string", _, [affix]) => plain(part(self.known(affix).max, TRAVERSAL)),
            ("in_list", _, [_, list]) => plain(self.known(list).max),
            ("matches_string", Some(text), [pattern]) | ("matches", None, [text, pattern]) => {
                let text = part(self.known(text).max.saturating_add(1), TRAVERSAL);
                plain(text.saturating_mul(part(self.known(pattern).max, REGEX)))
            }
            ("contains_string", Some(text), [needle]) => {
                let text = part(self.known(text).max, TRAVERSAL);
                plain(text.saturating_mul(part(self.known(needle).max, TRAVERSAL)))
            }
            ("logical_or" | "logical_and", ..) => plain(0),
            ("conditional", _, [_, yes, no]) => {
                let size = self.known(yes).union(self.known(no));
                let entries = Entries::union(self.entries(yes), self.entries(no));
                self.set_entries(id, entries);
                let cost = costs[0].saturating_add(costs[1].max(costs[2]));
                Estimate { cost, size: Some(size), with_args: true }
            }
            ("add_string" | "add_bytes" | "add_list", _, [one, other]) => {
                let size = self.known(one).add(self.known(other));
                let entries = Entries::union(self.entries(one), self.entries(other));
                self.set_entries(id, entries);
                let cost = if overload == "add_list" { 1 } else { part(size.max, TRAVERSAL) };
                Estimate { cost, size: Some(size), with_args: false }
            }
            (id, _, [one, other]) if is_comparison(id) => {
                let smaller = self.known(one).max.min(self.known(other).max);
                plain(part(smaller, TRAVERSAL))
            }
            _ => plain(1),
        }
    }
}

fn plain(cost: u64) -> Estimate {
    Estimate { cost, size: None, with_args: false }
}

fn is_comparison(overload: &str) -> bool {
    overload == "equals"
        || overload == "not_equals"
        || ((overload.starts_with("less_") || overload.starts_with("greater_"))
            && (overload.ends_with("_string") || overload.ends_with("_bytes")))
}

/// The value of an integer literal.
fn literal(expression: &IdedExpr, otherwise: u64) -> u64 {
    match &expression.expr {
        Expr::Literal(LiteralValue::Int(number)) => u64::try_from(*number.inner()).unwrap_or(0),
        _ => otherwise,
    }
}

/// The size of a string after `replace` of substrings of one size by another.
fn replaced(size: Size, from: Size, to: Size) -> Size {
    let (mut count, mut kept) = (Size::fixed(0), Size::fixed(0));
    if from.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if to.max <= from.min {
        kept.max = size.max;
    } else {
        count.max = (size.max as f64 / from.min as f64).ceil() as u64;
    }
    if from.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if from.max <= to.min {
        kept.min = size.min;
    } else {
        count.min = (size.min as f64 / from.max as f64).ceil() as u64;
    }
    count.times(to).add(kept)
}

//! What macros stand for: loops with an accumulator, conditions, and names for values.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
};

use super::source::Source;

/// The accumulator of a loop.
pub(super) const RESULT: &str = "@result";
/// The variable of a loop that is none.
pub(super) const UNUSED: &str = "#unused";

/// Makes the parts of an expression that stand where the macro stands.
struct Made<'a> {
    source: &'a mut Source,
    at: u32,
}

impl Made<'_> {
    fn node(&mut self, expr: Expr) -> IdedExpr {
        IdedExpr { id: self.source.place(self.at), expr }
    }

    fn truth(&mut self, value: bool) -> IdedExpr {
        self.node(Expr::Literal(LiteralValue::Boolean(value.into())))
    }

    fn number(&mut self, value: i64) -> IdedExpr {
        self.node(Expr::Literal(LiteralValue::Int(value.into())))
    }

    fn name(&mut self, name: &str) -> IdedExpr {
        self.node(Expr::Ident(name.to_owned()))
    }

    fn list(&mut self, elements: Vec<IdedExpr>) -> IdedExpr {
        self.node(Expr::List(ListExpr::new(elements)))
    }

    fn call(&mut self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.node(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    }

    fn method(&mut self, target: IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.node(Expr::Call(CallExpr { func_name: name.to_owned(), target: Some(Box::new(target)), args }))
    }

    /// `filter ? step : result`, or the step alone.
    fn only_if(&mut self, filter: Option<IdedExpr>, step: IdedExpr) -> IdedExpr {
        match filter {
            None => step,
            Some(filter) => {
                let result = self.name(RESULT);
                self.call("_?_:_", vec![filter, step, result])
            }
        }
    }

    /// The parts of a loop: how it starts, while what it goes on, one step, and what comes out.
    fn parts(&mut self, name: &str, mut args: Vec<IdedExpr>) -> Option<[IdedExpr; 4]> {
        let body = args.pop()?;
        let filter = args.pop();
        Some(match name {
            "all" => {
                let (seen, result) = (self.name(RESULT), self.name(RESULT));
                let go_on = self.call("@not_strictly_false", vec![seen]);
                [self.truth(true), go_on, self.call("_&&_", vec![result, body]), self.name(RESULT)]
            }
            "exists" => {
                let (seen, result) = (self.name(RESULT), self.name(RESULT));
                let not = self.call("!_", vec![seen]);
                let go_on = self.call("@not_strictly_false", vec![not]);
                [self.truth(false), go_on, self.call("_||_", vec![result, body]), self.name(RESULT)]
            }
            "exists_one" | "existsOne" => {
                let (result, one) = (self.name(RESULT), self.number(1));
                let more = self.call("_+_", vec![result, one]);
                let step = self.only_if(Some(body), more);
                let (result, one) = (self.name(RESULT), self.number(1));
                [self.number(0), self.truth(true), step, self.call("_==_", vec![result, one])]
            }
            _ => {
                let (result, item) = (self.name(RESULT), self.list(vec![body]));
                let more = self.call("_+_", vec![result, item]);
                let step = self.only_if(filter, more);
                [self.list(Vec::new()), self.truth(true), step, self.name(RESULT)]
            }
        })
    }

    fn fold(&mut self, range: IdedExpr, names: (String, Option<String>), parts: [IdedExpr; 4]) -> IdedExpr {
        let [accu_init, loop_cond, loop_step, result] = parts;
        self.node(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: range,
            iter_var: names.0,
            iter_var2: names.1,
            accu_var: RESULT.to_owned(),
            accu_init,
            loop_cond,
            loop_step,
            result,
        })))
    }

    /// A name for a value within an expression: a loop that never runs.
    fn bound(&mut self, name: &str, value: IdedExpr, result: IdedExpr) -> IdedExpr {
        let (iter_range, loop_cond, loop_step) = (self.list(Vec::new()), self.truth(false), self.name(name));
        self.node(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range,
            iter_var: UNUSED.to_owned(),
            iter_var2: None,
            accu_var: name.to_owned(),
            accu_init: value,
            loop_cond,
            loop_step,
            result,
        })))
    }
}

/// `target.all(variable, …)` and its kin with one variable, as a loop.
pub(super) fn fold(
    source: &mut Source,
    at: u32,
    name: &str,
    target: IdedExpr,
    variable: &str,
    mut args: Vec<IdedExpr>,
) -> IdedExpr {
    let mut made = Made { source, at };
    let first = args.remove(0);
    if name == "filter" {
        args.push(first);
    }
    let parts = made.parts(name, args).expect("a macro has a body");
    made.fold(target, (variable.to_owned(), None), parts)
}

/// The expression without macros: also those are loops and conditions then that the evaluator takes as they are.
pub(super) fn expand(expression: IdedExpr, source: &mut Source) -> IdedExpr {
    let IdedExpr { id, expr } = expression;
    let mut inner = |expression: IdedExpr| expand(expression, source);
    let expr = match expr {
        Expr::Select(SelectExpr { operand, field, test }) => {
            Expr::Select(SelectExpr { operand: Box::new(inner(*operand)), field, test })
        }
        Expr::List(list) => Expr::List(ListExpr {
            elements: list.elements.into_iter().map(inner).collect(),
            optional_indices: list.optional_indices,
        }),
        Expr::Map(mut map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    entry.key = inner(std::mem::take(&mut entry.key));
                    entry.value = inner(std::mem::take(&mut entry.value));
                }
            }
            Expr::Map(map)
        }
        Expr::Struct(mut made) => {
            for entry in &mut made.entries {
                if let EntryExpr::StructField(field) = &mut entry.expr {
                    field.value = inner(std::mem::take(&mut field.value));
                }
            }
            Expr::Struct(made)
        }
        Expr::Comprehension(mut fold) => {
            for part in [&mut fold.iter_range, &mut fold.accu_init, &mut fold.loop_step] {
                *part = inner(std::mem::take(part));
            }
            Expr::Comprehension(fold)
        }
        Expr::Call(CallExpr { func_name, target, args }) => {
            let target = target.map(|target| inner(*target));
            let args: Vec<IdedExpr> = args.into_iter().map(inner).collect();
            match target {
                Some(target) if is_macro(&func_name, &args) => {
                    let at = source.at(id);
                    return method(&mut Made { source, at }, target, &func_name, args);
                }
                target => Expr::Call(CallExpr { func_name, target: target.map(Box::new), args }),
            }
        }
        other => other,
    };
    IdedExpr { id, expr }
}

fn is_macro(name: &str, args: &[IdedExpr]) -> bool {
    let named = |at: usize| args.get(at).is_some_and(|arg| matches!(arg.expr, Expr::Ident(_)));
    match (name, args.len()) {
        ("optMap" | "optFlatMap" | "sortBy", 2) => named(0),
        ("all" | "exists" | "existsOne" | "exists_one", 3) => named(0) && named(1),
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => named(0) && named(1),
        _ => false,
    }
}

fn method(made: &mut Made<'_>, target: IdedExpr, name: &str, mut args: Vec<IdedExpr>) -> IdedExpr {
    let mut variable = || match args.remove(0).expr {
        Expr::Ident(name) => name,
        _ => String::new(),
    };
    match name {
        "optMap" | "optFlatMap" => {
            let variable = variable();
            let body = args.remove(0);
            let present = made.method(target.clone(), "hasValue", Vec::new());
            let value = made.method(target, "value", Vec::new());
            let bound = made.bound(&variable, value, body);
            let some = if name == "optMap" { made.call("optional.of", vec![bound]) } else { bound };
            let none = made.call("optional.none", Vec::new());
            made.call("_?_:_", vec![present, some, none])
        }
        "sortBy" => {
            const INPUT: &str = "@__sortBy_input__";
            let variable = variable();
            let range = made.name(INPUT);
            let parts = made.parts("map", args).expect("a macro has a body");
            let keys = made.fold(range, (variable, None), parts);
            let input = made.name(INPUT);
            let sorted = made.method(input, "@sortByAssociatedKeys", vec![keys]);
            made.bound(INPUT, target, sorted)
        }
        "transformMap" | "transformMapEntry" => {
            let (one, two) = (variable(), variable());
            let body = args.pop().expect("a macro has a body");
            let filter = args.pop();
            let mut insert = vec![made.name(RESULT)];
            if name == "transformMap" {
                insert.push(made.name(&one));
            }
            insert.push(body);
            let more = made.call("cel.@mapInsert", insert);
            let step = made.only_if(filter, more);
            let empty = made.node(Expr::Map(MapExpr { entries: Vec::new() }));
            let parts = [empty, made.truth(true), step, made.name(RESULT)];
            made.fold(target, (one, Some(two)), parts)
        }
        _ => {
            let (one, two) = (variable(), variable());
            let parts = made.parts(name, args).expect("a macro has a body");
            made.fold(target, (one, Some(two)), parts)
        }
    }
}

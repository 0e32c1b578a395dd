//! Macro expansion: into comprehensions, conditionals and bindings.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
};

use super::source::Source;

/// The accumulator of a comprehension.
pub(super) const RESULT: &str = "@result";
/// The unused loop variable of a binding.
pub(super) const UNUSED: &str = "#unused";

/// Builds the nodes of an expansion, at the position of the macro.
struct NodeBuilder<'a> {
    source: &'a mut Source,
    at: u32,
}

impl NodeBuilder<'_> {
    fn node(&mut self, expr: Expr) -> IdedExpr {
        IdedExpr { id: self.source.place(self.at), expr }
    }

    fn bool_literal(&mut self, value: bool) -> IdedExpr {
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

    /// The parts of a comprehension: accumulator init, loop condition, loop step, result.
    fn parts(&mut self, name: &str, mut args: Vec<IdedExpr>) -> Option<[IdedExpr; 4]> {
        let body = args.pop()?;
        let filter = args.pop();
        Some(match name {
            "all" => {
                let (seen, result) = (self.name(RESULT), self.name(RESULT));
                let go_on = self.call("@not_strictly_false", vec![seen]);
                [self.bool_literal(true), go_on, self.call("_&&_", vec![result, body]), self.name(RESULT)]
            }
            "exists" => {
                let (seen, result) = (self.name(RESULT), self.name(RESULT));
                let not = self.call("!_", vec![seen]);
                let go_on = self.call("@not_strictly_false", vec![not]);
                [self.bool_literal(false), go_on, self.call("_||_", vec![result, body]), self.name(RESULT)]
            }
            "exists_one" | "existsOne" => {
                let (result, one) = (self.name(RESULT), self.number(1));
                let more = self.call("_+_", vec![result, one]);
                let step = self.only_if(Some(body), more);
                let (result, one) = (self.name(RESULT), self.number(1));
                [self.number(0), self.bool_literal(true), step, self.call("_==_", vec![result, one])]
            }
            _ => {
                let (result, item) = (self.name(RESULT), self.list(vec![body]));
                let more = self.call("_+_", vec![result, item]);
                let step = self.only_if(filter, more);
                [self.list(Vec::new()), self.bool_literal(true), step, self.name(RESULT)]
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

    /// A binding of a name to a value: a comprehension that never iterates.
    fn bound(&mut self, name: &str, value: IdedExpr, result: IdedExpr) -> IdedExpr {
        let (iter_range, loop_cond, loop_step) = (self.list(Vec::new()), self.bool_literal(false), self.name(name));
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

/// Expands `target.all(variable, …)` and other macros with one variable.
pub(super) fn fold(
    source: &mut Source,
    at: u32,
    name: &str,
    target: IdedExpr,
    variable: &str,
    mut args: Vec<IdedExpr>,
) -> IdedExpr {
    let mut builder = NodeBuilder { source, at };
    let first = args.remove(0);
    if name == "filter" {
        args.push(first);
    }
    let parts = builder.parts(name, args).expect("a macro has a body");
    builder.fold(target, (variable.to_owned(), None), parts)
}

/// The expression with all macros expanded, also those that the evaluator handles itself.
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
        Expr::Struct(mut builder) => {
            for entry in &mut builder.entries {
                if let EntryExpr::StructField(field) = &mut entry.expr {
                    field.value = inner(std::mem::take(&mut field.value));
                }
            }
            Expr::Struct(builder)
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
                    return method(&mut NodeBuilder { source, at }, target, &func_name, args);
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

fn method(builder: &mut NodeBuilder<'_>, target: IdedExpr, name: &str, mut args: Vec<IdedExpr>) -> IdedExpr {
    let mut variable = || match args.remove(0).expr {
        Expr::Ident(name) => name,
        _ => String::new(),
    };
    match name {
        "optMap" | "optFlatMap" => {
            let variable = variable();
            let body = args.remove(0);
            let present = builder.method(target.clone(), "hasValue", Vec::new());
            let value = builder.method(target, "value", Vec::new());
            let bound = builder.bound(&variable, value, body);
            let some = if name == "optMap" { builder.call("optional.of", vec![bound]) } else { bound };
            let none = builder.call("optional.none", Vec::new());
            builder.call("_?_:_", vec![present, some, none])
        }
        "sortBy" => {
            const INPUT: &str = "@__sortBy_input__";
            let variable = variable();
            let range = builder.name(INPUT);
            let parts = builder.parts("map", args).expect("a macro has a body");
            let keys = builder.fold(range, (variable, None), parts);
            let input = builder.name(INPUT);
            let sorted = builder.method(input, "@sortByAssociatedKeys", vec![keys]);
            builder.bound(INPUT, target, sorted)
        }
        "transformMap" | "transformMapEntry" => {
            let (one, two) = (variable(), variable());
            let body = args.pop().expect("a macro has a body");
            let filter = args.pop();
            let mut insert = vec![builder.name(RESULT)];
            if name == "transformMap" {
                insert.push(builder.name(&one));
            }
            insert.push(body);
            let more = builder.call("cel.@mapInsert", insert);
            let step = builder.only_if(filter, more);
            let empty = builder.node(Expr::Map(MapExpr { entries: Vec::new() }));
            let parts = [empty, builder.bool_literal(true), step, builder.name(RESULT)];
            builder.fold(target, (one, Some(two)), parts)
        }
        _ => {
            let (one, two) = (variable(), variable());
            let parts = builder.parts(name, args).expect("a macro has a body");
            builder.fold(target, (one, Some(two)), parts)
        }
    }
}

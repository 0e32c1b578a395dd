//! Parser: produces the AST of the CEL library, with source positions. It is many times faster than the library's own
//! parser, which is only used to explain syntax errors.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, MapEntryExpr, MapExpr, SelectExpr, StructExpr,
    StructFieldExpr,
};
use kube_cel::cel::parser::Parser as Exact;

use super::lex::{Kind, Token, tokenize};
use super::rule::parts;
use super::source::Source;

/// Maximum nesting of brackets. kube-apiserver's limit is 250; here the recursion must fit the stack.
const NESTED: usize = 120;
/// Maximum depth of the AST, which bounds the stack of all traversals.
const LEVELS: u32 = 250;
/// Maximum length of an expression, in characters.
const LONGEST: usize = 100_000;

/// Reserved words.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<(IdedExpr, Source), String> {
    let size = text.chars().count();
    if size > LONGEST {
        let why = format!("expression code point size exceeds limit: size: {size}, limit {LONGEST}");
        return Err(nowhere(&why));
    }
    let Some(tokens) = tokenize(text) else { return explain(text) };
    let mut parser = Parser::new(text, tokens);
    match (parser.whole(), parser.fault.take()) {
        (Some(expression), _) => Ok((expression, parser.source)),
        (None, Some((Some(at), why))) => {
            let id = parser.source.place(at);
            Err(parser.source.error(id, &why))
        }
        (None, Some((None, why))) => Err(nowhere(&why)),
        (None, None) => explain(text),
    }
}

/// An error without a position.
fn nowhere(why: &str) -> String {
    format!("ERROR: <input>:-1:0: {why}")
}

/// The result of the exact parser: the syntax error or, if there is none, the AST.
fn explain(text: &str) -> Result<(IdedExpr, Source), String> {
    match Exact::new().enable_optional_syntax(true).parse(text) {
        Ok(expression) => Ok((expression, Source::new(text))),
        Err(errors) => {
            let source = Source::new(text);
            let lines: Vec<String> = errors
                .errors
                .iter()
                .map(|error| {
                    let place = |at: isize| usize::try_from(at).unwrap_or(1).max(1);
                    source.error_at(place(error.pos.0), place(error.pos.1), &error.msg)
                })
                .collect();
            Err(lines.join("\n"))
        }
    }
}

pub(super) struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    source: Source,
    /// Depth of each node, by ID.
    levels: Vec<u32>,
    /// An error that the exact parser would not find, with its position if known.
    fault: Option<(Option<u32>, String)>,
}

impl Parser {
    fn new(text: &str, tokens: Vec<Token>) -> Self {
        Self { tokens, next: 0, depth: 0, source: Source::new(text), levels: Vec::new(), fault: None }
    }

    fn whole(&mut self) -> Option<IdedExpr> {
        let expression = self.expression()?;
        (self.peek() == &Kind::End && self.fault.is_none()).then_some(expression)
    }

    fn peek(&self) -> &Kind {
        &self.tokens[self.next.min(self.tokens.len() - 1)].kind
    }

    fn at(&self) -> u32 {
        self.tokens[self.next.min(self.tokens.len() - 1)].at
    }

    /// Consumes one of these marks; returns it with its position.
    fn take(&mut self, marks: &[&'static str]) -> Option<(&'static str, u32)> {
        let found = match self.peek() {
            Kind::Mark(mark) if marks.contains(mark) => (*mark, self.at()),
            _ => return None,
        };
        self.next += 1;
        Some(found)
    }

    fn mark(&mut self, mark: &'static str) -> Option<u32> {
        self.take(&[mark]).map(|(_, at)| at)
    }

    fn node(&mut self, at: u32, expr: Expr) -> IdedExpr {
        let node = IdedExpr { id: self.source.place(at), expr };
        let mut below = 0;
        parts(&node, &mut |part| below = below.max(self.levels_of(part)));
        // Nodes of macro expansions have depth 1.
        self.levels.resize(self.source.len(), 1);
        if let Some(levels) = self.levels.last_mut() {
            *levels = below + 1;
        }
        if below >= LEVELS {
            self.fault = Some((None, "max recursion depth exceeded".to_owned()));
        }
        node
    }

    fn levels_of(&self, part: &IdedExpr) -> u32 {
        usize::try_from(part.id).ok().and_then(|id| self.levels.get(id)).copied().unwrap_or(1)
    }

    /// `None` once there is an error, so that an expression that is too deep gets no deeper.
    fn sound(&self) -> Option<()> {
        self.fault.is_none().then_some(())
    }

    fn call(&mut self, at: u32, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.node(at, Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    }

    /// `a ? b : c`, or an operand.
    fn expression(&mut self) -> Option<IdedExpr> {
        self.depth += 1;
        if self.depth > NESTED {
            self.fault = Some((None, "expression recursion limit exceeded: 250".to_owned()));
        }
        self.sound()?;
        let condition = self.logic("||", "_||_")?;
        let expression = match self.mark("?") {
            None => condition,
            Some(at) => {
                let yes = self.logic("||", "_||_")?;
                self.mark(":")?;
                let no = self.expression()?;
                self.call(at, "_?_:_", vec![condition, yes, no])
            }
        };
        self.depth -= 1;
        Some(expression)
    }

    /// `a || b || c` and `a && b && c` as a balanced tree: long chains need not be deep.
    fn logic(&mut self, mark: &'static str, name: &str) -> Option<IdedExpr> {
        let term = |parser: &mut Self| if mark == "||" { parser.logic("&&", "_&&_") } else { parser.relation() };
        let (mut terms, mut places) = (vec![term(self)?], Vec::new());
        while let Some(at) = self.mark(mark) {
            places.push(at);
            terms.push(term(self)?);
        }
        Some(self.balanced(name, &mut terms.into_iter(), &places))
    }

    fn balanced(&mut self, name: &str, terms: &mut impl Iterator<Item = IdedExpr>, places: &[u32]) -> IdedExpr {
        if places.is_empty() {
            return terms.next().expect("there is one term more than places between terms");
        }
        let middle = places.len() / 2;
        let left = self.balanced(name, terms, &places[..middle]);
        let right = self.balanced(name, terms, &places[middle + 1..]);
        self.call(places[middle], name, vec![left, right])
    }

    fn relation(&mut self) -> Option<IdedExpr> {
        let mut left = self.sum()?;
        loop {
            let (name, at) = match self.peek() {
                Kind::Ident(word) if word == "in" => ("@in".to_owned(), self.at()),
                Kind::Mark(mark @ ("==" | "!=" | "<" | "<=" | ">" | ">=")) => (format!("_{mark}_"), self.at()),
                _ => return Some(left),
            };
            self.sound()?;
            self.next += 1;
            let right = self.sum()?;
            left = self.call(at, &name, vec![left, right]);
        }
    }

    fn sum(&mut self) -> Option<IdedExpr> {
        let mut left = self.product()?;
        while let Some((mark, at)) = self.take(&["+", "-"]) {
            self.sound()?;
            let right = self.product()?;
            left = self.call(at, &format!("_{mark}_"), vec![left, right]);
        }
        Some(left)
    }

    fn product(&mut self) -> Option<IdedExpr> {
        let mut left = self.unary()?;
        while let Some((mark, at)) = self.take(&["*", "/", "%"]) {
            self.sound()?;
            let right = self.unary()?;
            left = self.call(at, &format!("_{mark}_"), vec![left, right]);
        }
        Some(left)
    }

    /// `!a` and `-a`; pairs cancel out.
    fn unary(&mut self) -> Option<IdedExpr> {
        let (Kind::Mark(mark @ ("!" | "-")), start) = (self.peek().clone(), self.next) else { return self.member() };
        let at = self.at();
        while self.mark(mark).is_some() {}
        let mut count = self.next - start;
        // A single minus belongs to the number.
        if mark == "-" && count == 1 && matches!(self.peek(), Kind::Int(_) | Kind::Double(_)) {
            self.next -= 1;
            count = 0;
        }
        let operand = self.member()?;
        Some(if count.is_multiple_of(2) {
            operand
        } else {
            self.call(at, if mark == "!" { "!_" } else { "-_" }, vec![operand])
        })
    }

    /// An operand with selections, indexes and method calls.
    fn member(&mut self) -> Option<IdedExpr> {
        let mut value = self.primary()?;
        loop {
            self.sound()?;
            if let Some(at) = self.mark(".") {
                let optional = self.mark("?").is_some();
                let name = self.field()?;
                let open = self.at();
                if !optional && self.mark("(").is_some() {
                    let args = self.list(")")?;
                    value = self.method(open, value, name, args)?;
                } else if optional {
                    let field = self.node(at, Expr::Literal(LiteralValue::String(name.into())));
                    value = self.call(at, "_?._", vec![value, field]);
                } else {
                    let select = SelectExpr { operand: Box::new(value), field: name, test: false };
                    value = self.node(at, Expr::Select(select));
                }
            } else if let Some(at) = self.mark("[") {
                let name = if self.mark("?").is_some() { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.mark("]")?;
                value = self.call(at, name, vec![value, index]);
            } else if let (Kind::Mark("{"), Some(name)) = (self.peek(), super::form::dotted(&value)) {
                value = self.structure(name)?;
            } else {
                return Some(value);
            }
        }
    }

    fn field(&mut self) -> Option<String> {
        let name = match self.peek() {
            Kind::Ident(name) if !["in", "true", "false", "null"].contains(&name.as_str()) => name.clone(),
            Kind::Quoted(name) => name.clone(),
            _ => return None,
        };
        self.next += 1;
        Some(name)
    }

    /// Comma-separated expressions up to a closing bracket.
    fn list(&mut self, close: &'static str) -> Option<Vec<IdedExpr>> {
        let mut items = Vec::new();
        if self.mark(close).is_some() {
            return Some(items);
        }
        loop {
            items.push(self.expression()?);
            if self.mark(",").is_none() {
                self.mark(close)?;
                return Some(items);
            }
        }
    }

    fn primary(&mut self) -> Option<IdedExpr> {
        let at = self.at();
        let negative = self.mark("-").is_some();
        let word = self.peek().clone();
        self.next += 1;
        let literal = |literal| Some(Expr::Literal(literal));
        let expr = match word {
            Kind::Int(digits) => literal(LiteralValue::Int(integer(&digits, negative)?.into())),
            Kind::Double(number) => literal(LiteralValue::Double(if negative { -number } else { number }.into())),
            _ if negative => None,
            Kind::UInt(number) => literal(LiteralValue::UInt(number.into())),
            Kind::Text(text) => literal(LiteralValue::String(text.into())),
            Kind::Bytes(bytes) => literal(LiteralValue::Bytes(bytes.into())),
            Kind::Ident(word) if word == "true" || word == "false" => {
                literal(LiteralValue::Boolean((word == "true").into()))
            }
            Kind::Ident(word) if word == "null" => literal(LiteralValue::Null),
            Kind::Mark("(") => {
                let inner = self.expression()?;
                self.mark(")")?;
                return Some(inner);
            }
            Kind::Mark("[") => self.items(),
            Kind::Mark("{") => self.entries(),
            Kind::Mark(".") => return self.name(at, "."),
            Kind::Ident(_) => {
                self.next -= 1;
                return self.name(at, "");
            }
            _ => None,
        }?;
        Some(self.node(at, expr))
    }

    /// A variable or function call.
    fn name(&mut self, at: u32, dot: &str) -> Option<IdedExpr> {
        let Kind::Ident(name) = self.peek().clone() else { return None };
        if name == "in" {
            return None;
        }
        if RESERVED.contains(&name.as_str()) {
            self.fault = Some((Some(at), format!("reserved identifier: {name}")));
            return None;
        }
        self.next += 1;
        let open = self.at();
        if self.mark("(").is_some() {
            let args = self.list(")")?;
            return self.function(open, format!("{dot}{name}"), args);
        }
        Some(self.node(at, Expr::Ident(format!("{dot}{name}"))))
    }

    fn items(&mut self) -> Option<Expr> {
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        while self.mark("]").is_none() {
            if self.mark("?").is_some() {
                optional.push(elements.len());
            }
            elements.push(self.expression()?);
            if self.mark(",").is_none() {
                self.mark("]")?;
                break;
            }
        }
        Some(Expr::List(ListExpr::new_with_optionals(elements, optional)))
    }

    fn entries(&mut self) -> Option<Expr> {
        let mut entries = Vec::new();
        while self.mark("}").is_none() {
            let optional = self.mark("?").is_some();
            let key = self.expression()?;
            let at = self.mark(":")?;
            let value = self.expression()?;
            let expr = EntryExpr::MapEntry(MapEntryExpr { key, value, optional });
            entries.push(IdedEntryExpr { id: self.source.place(at), expr });
            if self.mark(",").is_none() {
                self.mark("}")?;
                break;
            }
        }
        Some(Expr::Map(MapExpr { entries }))
    }

    fn structure(&mut self, type_name: String) -> Option<IdedExpr> {
        let start = self.mark("{")?;
        let mut entries = Vec::new();
        while self.mark("}").is_none() {
            let optional = self.mark("?").is_some();
            let field = self.field()?;
            let at = self.mark(":")?;
            let value = self.expression()?;
            let expr = EntryExpr::StructField(StructFieldExpr { field, value, optional });
            entries.push(IdedEntryExpr { id: self.source.place(at), expr });
            if self.mark(",").is_none() {
                self.mark("}")?;
                break;
            }
        }
        Some(self.node(start, Expr::Struct(StructExpr { type_name, entries })))
    }

    /// A function call, or the expansion of a macro.
    fn function(&mut self, at: u32, name: String, mut args: Vec<IdedExpr>) -> Option<IdedExpr> {
        if name == "has" && args.len() == 1 {
            let Some(IdedExpr { expr: Expr::Select(select), .. }) = args.pop() else { return None };
            return Some(self.node(at, Expr::Select(SelectExpr { test: true, ..select })));
        }
        Some(self.node(at, Expr::Call(CallExpr { func_name: name, target: None, args })))
    }

    /// A method call, or the expansion of a macro. Macros that the evaluator handles stay calls.
    fn method(&mut self, at: u32, target: IdedExpr, name: String, args: Vec<IdedExpr>) -> Option<IdedExpr> {
        match (name.as_str(), args.len()) {
            ("all" | "exists" | "exists_one" | "filter", 2) | ("map", 2 | 3) => {
                let Expr::Ident(variable) = &args[0].expr else { return None };
                let variable = variable.clone();
                Some(self.folded(at, &name, target, &variable, args))
            }
            _ => Some(self.node(at, Expr::Call(CallExpr { func_name: name, target: Some(Box::new(target)), args }))),
        }
    }
}

impl Parser {
    /// A comprehension, which is a few levels deeper than its parts.
    fn folded(&mut self, at: u32, name: &str, target: IdedExpr, variable: &str, args: Vec<IdedExpr>) -> IdedExpr {
        let below = args.iter().chain([&target]).map(|part| self.levels_of(part)).max().unwrap_or(1);
        let fold = super::expand::fold(&mut self.source, at, name, target, variable, args);
        self.levels.resize(self.source.len(), 1);
        if let Some(levels) = usize::try_from(fold.id).ok().and_then(|id| self.levels.get_mut(id)) {
            *levels = below + 3;
        }
        if below + 3 > LEVELS {
            self.fault = Some((None, "max recursion depth exceeded".to_owned()));
        }
        fold
    }
}

fn integer(digits: &str, negative: bool) -> Option<i64> {
    let sign = if negative { "-" } else { "" };
    match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(&format!("{sign}{digits}"), 16).ok(),
        None => format!("{sign}{digits}").parse().ok(),
    }
}

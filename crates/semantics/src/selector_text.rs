//! Parser of the string form of label selectors: `app=web,tier in (a, b),!old`. Errors are worded as by kube-apiserver.

use crate::names;
use crate::requirement::{Operator, Requirement};

/// Parses the requirements of a selector.
pub(crate) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { tokens: scan(text), at: 0 }.parse()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    Wrong(String),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Wrong(text) => text,
            Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = [")", ",", "!", "==", "=", ">", "<", "!=", "("];
const SPECIAL: &str = "=!(),><";

fn scan(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            tokens.push(Token::End);
            return tokens;
        }
        let special = rest.find(|c| !SPECIAL.contains(c)).unwrap_or(rest.len());
        let len = if special > 0 {
            // The longest symbol at this position.
            match SYMBOLS.iter().filter(|symbol| rest.starts_with(**symbol)).max_by_key(|symbol| symbol.len()) {
                Some(symbol) => {
                    tokens.push(Token::Symbol(symbol));
                    symbol.len()
                }
                None => {
                    tokens.push(Token::Wrong(format!("error expected: keyword found '{}'", &rest[..special])));
                    special
                }
            }
        } else {
            let ends = |c: char| SPECIAL.contains(c) || " \t\r\n".contains(c);
            let len = rest.find(ends).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..len].to_owned()));
            len
        };
        rest = &rest[len..];
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn peeks(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(mine) if *mine == symbol)
    }

    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut terms = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(terms),
                Token::Word(_) | Token::Symbol("!") => {}
                other => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text())),
            }
            terms.push(self.term().map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next() {
                Token::End => return Ok(terms),
                Token::Symbol(",") => {
                    if !matches!(self.peek(), Token::Word(_) | Token::Symbol("!")) {
                        return Err(format!("found '{}', expected: identifier after ','", self.peek().text()));
                    }
                }
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    fn term(&mut self) -> Result<Requirement, String> {
        let absent = self.peeks("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        let wrong = names::qualified_name(&key);
        if !wrong.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; ")));
        }
        if absent || *self.peek() == Token::End || self.peeks(",") {
            return Ok(Requirement::new(&key, if absent { Operator::Absent } else { Operator::Exists }, Vec::new()));
        }
        let operator = self.next();
        let values = match operator.text() {
            "in" | "notin" => self.values()?,
            "=" | "==" | "!=" | ">" | "<" => vec![self.exact()?],
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let operator = operator_of(operator.text(), &values)?;
        for (at, value) in values.iter().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                return Err(format!("values[{at}][{key}]: Invalid value: {value:?}: {}", wrong.join("; ")));
            }
        }
        Ok(Requirement::new(&key, operator, values))
    }

    fn exact(&mut self) -> Result<String, String> {
        if *self.peek() == Token::End || self.peeks(",") {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => Ok(value),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = std::collections::BTreeSet::new();
        // Whether a value is expected next: an empty value is implied where none follows.
        let mut wanted = true;
        match self.peek() {
            Token::Symbol(")") => {
                self.next();
                return Ok(Vec::new());
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
        }
        loop {
            match self.next() {
                Token::Word(value) if wanted => {
                    values.insert(value);
                    wanted = false;
                }
                Token::Symbol(",") => {
                    if wanted {
                        values.insert(String::new());
                    }
                    wanted = true;
                }
                Token::Symbol(")") => {
                    if wanted {
                        values.insert(String::new());
                    }
                    return Ok(values.into_iter().collect());
                }
                other if wanted => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

fn operator_of(symbol: &str, values: &[String]) -> Result<Operator, String> {
    if let (">" | "<", Some(value)) = (symbol, values.first())
        && value.parse::<i64>().is_err()
    {
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        return Err(format!("values[0]: Invalid value: {value:?}: {why}"));
    }
    Ok(match symbol {
        "notin" | "!=" => Operator::NotIn,
        ">" => Operator::Greater,
        "<" => Operator::Less,
        _ => Operator::In,
    })
}

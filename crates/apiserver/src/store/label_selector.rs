//! Label selectors: the text form of requests, and the JSON form inside objects.

use serde_json::Value;

use crate::error::{Result, Status};
use crate::names;

/// A label selector. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads `app=web,tier in (a, b),!old`.
    pub fn parse(text: &str) -> Result<Self> {
        Parser { tokens: scan(text), at: 0 }.parse().map(Self).map_err(Status::bad_request)
    }

    /// Reads a `metav1.LabelSelector`: `matchLabels` and `matchExpressions`.
    pub fn from_json(selector: &Value) -> Result<Self> {
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let mut terms: Vec<Term> = labels
            .map(|(key, value)| Term::new(key, Test::In(vec![value.as_str().unwrap_or_default().to_owned()])))
            .collect();
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                other => return Err(Status::bad_request(format!("{other:?} is not a valid label selector operator"))),
            };
            terms.push(Term::new(key, test));
        }
        Ok(Self(terms))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels, given by a look-up, are selected.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|term| {
            let value = label(&term.key);
            match &term.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
                Test::Above(bound) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *bound),
                Test::Below(bound) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *bound),
            }
        })
    }

    /// Whether the labels of a JSON object are selected.
    pub fn matches_json(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.matches(|key| labels[key].as_str())
    }
}

impl Term {
    fn new(key: &str, test: Test) -> Self {
        Self { key: key.to_owned(), test }
    }
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
            // The longest symbol that the run starts with.
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

    fn parse(mut self) -> Result<Vec<Term>, String> {
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

    fn term(&mut self) -> Result<Term, String> {
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
            return Ok(Term::new(&key, if absent { Test::Absent } else { Test::Exists }));
        }
        let operator = self.next();
        let values = match operator.text() {
            "in" | "notin" => self.values()?,
            "=" | "==" | "!=" | ">" | "<" => vec![self.exact()?],
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let test = test(operator.text(), &values)?;
        for (at, value) in values.iter().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                return Err(format!("values[{at}][{key}]: Invalid value: {value:?}: {}", wrong.join("; ")));
            }
        }
        Ok(Term::new(&key, test))
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
        // Whether a value may come next: an empty one is meant where none does.
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

fn test(operator: &str, values: &[String]) -> Result<Test, String> {
    let number = || {
        let value = &values[0];
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        value.parse::<i64>().map_err(|_| format!("values[0]: Invalid value: {value:?}: {why}"))
    };
    Ok(match operator {
        "notin" | "!=" => Test::NotIn(values.to_vec()),
        ">" => Test::Above(number()?),
        "<" => Test::Below(number()?),
        _ => Test::In(values.to_vec()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select() {
        let labels = |key: &str| match key {
            "app" => Some("web"),
            "example.com/size" => Some("12"),
            "empty" => Some(""),
            _ => None,
        };
        let cases = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=web", true),
            ("app==web,other!=x", true),
            ("app = db", false),
            ("app in (db, web),example.com/size>11", true),
            ("app notin (db)", true),
            ("other notin (db)", true),
            ("other in (db)", false),
            ("example.com/size<12", false),
            ("empty=", true),
            ("empty in (,x)", true),
            ("empty in (x,)", true),
            ("empty!=", false),
            ("in in (in),app", false),
            ("app in ()", false),
            ("app notin ()", true),
        ];
        for (text, selected) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(labels), selected, "{text}");
        }
    }

    #[test]
    fn mistakes_are_worded_like_the_real_ones() {
        let cases = [
            ("app in x", "unable to parse requirement: found 'x' expected: '('"),
            ("app=a b", "found 'b', expected: ',' or 'end of string'"),
            ("app,", "found '', expected: identifier after ','"),
            (",app", "found ',', expected: !, identifier, or 'end of string'"),
            ("app x", "unable to parse requirement: found 'x', expected: in, notin, =, ==, !=, gt, lt"),
            ("app in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("app in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
            ("app in (a,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
            (
                "a>b",
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap_err().message, message, "{text}");
        }
    }

    #[test]
    fn the_json_form_is_read() {
        let selector = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}, {"key": "x", "operator": "DoesNotExist"}],
        });
        let selector = LabelSelector::from_json(&selector).unwrap();
        assert!(selector.matches_json(&json!({"metadata": {"labels": {"app": "web", "tier": "a"}}})));
        assert!(!selector.matches_json(&json!({"metadata": {"labels": {"app": "web", "tier": "a", "x": "y"}}})));
        assert!(!selector.matches_json(&json!({"metadata": {}})));
    }
}

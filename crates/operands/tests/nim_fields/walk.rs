//! Walks a schema and puts a value into every field, one at a time.

use serde_json::{Map, Value, json};

/// One field that holds a value, with the way to it: `env`, then `[]` for an item, then `name`.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    way: Vec<String>,
    schema: Value,
}

const ITEM: &str = "[]";

/// Every leaf below `schema`, in order. `samples` knows values for the fields that need one.
pub(crate) fn leaves(schema: &Value, way: &[String]) -> Vec<Leaf> {
    let below = |name: &str, schema: &Value| leaves(schema, &[way, &[name.to_owned()]].concat());
    if let Some(items) = schema.get("items").filter(|items| items["type"] == "object" && has_fields(items)) {
        return below(ITEM, items);
    }
    match schema["properties"].as_object() {
        Some(fields) => fields.iter().flat_map(|(name, schema)| below(name, schema)).collect(),
        None => vec![Leaf { way: way.to_vec(), schema: schema.clone() }],
    }
}

fn has_fields(schema: &Value) -> bool {
    schema["properties"].is_object()
}

/// Values for fields whose type says too little, by path; the longest row that ends a path counts.
pub(crate) type Samples<'a> = &'a [(&'a str, Value)];

impl Leaf {
    /// The path as it is written for people: `spec.env.name`.
    pub(crate) fn path(&self) -> String {
        text(&self.way)
    }

    /// Whether the leaf lies at `path` or below it.
    pub(crate) fn is_below(&self, path: &str) -> bool {
        self.path().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// `object` with everything that must surround the leaf, but not the leaf unless its parent needs it.
    pub(crate) fn surrounded(&self, object: &Value, root: &Value, samples: Samples<'_>) -> Value {
        let mut object = object.clone();
        self.parent(&mut object, root, samples);
        object
    }

    /// `object` with a value in the leaf.
    pub(crate) fn with(&self, object: &Value, value: Value, root: &Value, samples: Samples<'_>) -> Value {
        let mut object = object.clone();
        let (parent, name) = self.parent(&mut object, root, samples);
        match parent {
            Value::Array(items) => items[0] = value,
            other => other[name] = value,
        }
        object
    }

    /// Values worth a try, none of which is what is there.
    pub(crate) fn candidates(&self, object: &Value, samples: Samples<'_>) -> Vec<Value> {
        let mut there = object;
        for name in &self.way {
            there = if name == ITEM { &there[0] } else { &there[name.as_str()] };
        }
        values(&self.way, &self.schema, samples).into_iter().filter(|value| value != there).collect()
    }

    fn parent<'a, 'b>(&'b self, object: &'a mut Value, root: &Value, samples: Samples<'_>) -> (&'a mut Value, &'b str) {
        let (last, before) = self.way.split_last().expect("a leaf lies somewhere");
        let (mut place, mut schema) = (object, root);
        for (depth, name) in before.iter().enumerate() {
            let way = &self.way[..=depth];
            if name == ITEM {
                schema = &schema["items"];
                let items = place.as_array_mut().expect("a list");
                if items.is_empty() {
                    items.push(least(way, schema, samples));
                }
                place = &mut items[0];
            } else {
                schema = &schema["properties"][name.as_str()];
                let fields = place.as_object_mut().expect("an object");
                place = fields.entry(name.as_str()).or_insert_with(|| least(way, schema, samples));
            }
        }
        (place, last)
    }
}

fn text(way: &[String]) -> String {
    way.iter().filter(|name| *name != ITEM).map(String::as_str).collect::<Vec<_>>().join(".")
}

/// The least that `schema` takes.
fn least(way: &[String], schema: &Value, samples: Samples<'_>) -> Value {
    if schema.get("items").is_some() {
        return json!([]);
    }
    let Some(fields) = schema["properties"].as_object() else { return values(way, schema, samples).swap_remove(0) };
    if let Some(sample) = sample(way, samples) {
        return sample.clone();
    }
    let needed = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let needed =
        needed.map(|name| (name.to_owned(), least(&[way, &[name.to_owned()]].concat(), &fields[name], samples)));
    Value::Object(needed.collect::<Map<_, _>>())
}

fn sample<'a>(way: &[String], samples: Samples<'a>) -> Option<&'a Value> {
    let path = text(way);
    let fits = |row: &&(&str, Value)| path == row.0 || path.ends_with(&format!(".{}", row.0));
    samples.iter().filter(fits).max_by_key(|row| row.0.len()).map(|row| &row.1)
}

/// Values that `schema` takes.
fn values(way: &[String], schema: &Value, samples: Samples<'_>) -> Vec<Value> {
    if let Some(sample) = sample(way, samples) {
        return vec![sample.clone(), another(sample)];
    }
    if let Some(choices) = schema["enum"].as_array() {
        return choices.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return vec![json!("3"), json!("5")];
    }
    match schema["type"].as_str() {
        Some("boolean") => vec![json!(true), json!(false)],
        Some("integer") => vec![json!(7), json!(9)],
        Some("number") => vec![json!(0.25), json!(0.75)],
        Some("array") => {
            let items = values(way, &schema["items"], &[]);
            items.into_iter().map(|item| json!([item])).collect()
        }
        Some("object") => match schema.get("additionalProperties") {
            Some(inner) if inner["x-kubernetes-int-or-string"] == true => {
                vec![json!({"walk": "3"}), json!({"walk": "5"})]
            }
            Some(inner) => values(way, inner, &[]).into_iter().map(|value| json!({"walk": value})).collect(),
            None => vec![json!({"walk": "one"}), json!({"walk": "two"})],
        },
        Some("string") if schema["format"] == "byte" => vec![json!("e30="), json!("eyJhIjoxfQ==")],
        _ => vec![json!("walk-one"), json!("walk-two")],
    }
}

/// Another value of the same kind as a sample.
fn another(sample: &Value) -> Value {
    match sample {
        Value::String(text) => json!(format!("{text}0")),
        Value::Number(number) => json!(number.as_i64().unwrap_or(0) + 1),
        Value::Bool(is) => json!(!is),
        other => other.clone(),
    }
}

//! The protobuf encoding of the v2 document (gnostic's `openapi.v2.Document`): schemas, and the patch operations that
//! clients check for supported features.

use serde_json::Value;

/// Encodes a document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, "2.0");
    out.message(2, |info| {
        info.text(1, document["info"]["title"].as_str().unwrap_or_default());
        info.text(2, document["info"]["version"].as_str().unwrap_or_default());
    });
    out.message(8, |paths| {
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            paths.message(2, |named| {
                named.text(1, path);
                named.message(2, |out| path_item(out, item));
            });
        }
    });
    out.message(9, |definitions| named_schemas(definitions, &document["definitions"]));
    out.0
}

/// A protobuf message being encoded.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u64, value: bool) {
        if value {
            self.varint(field << 3);
            self.varint(1);
        }
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// `NamedAny`: a vendor extension with its value as YAML (JSON is valid YAML).
    fn extensions(&mut self, field: u64, from: &Value) {
        for (name, value) in from.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
            self.message(field, |named| {
                named.text(1, name);
                named.message(2, |any| any.text(2, &format!("{value}\n")));
            });
        }
    }
}

fn named_schemas(out: &mut Message, schemas: &Value) {
    for (name, value) in schemas.as_object().into_iter().flatten() {
        out.message(1, |named| {
            named.text(1, name);
            named.message(2, |out| schema(out, value));
        });
    }
}

fn schema(out: &mut Message, value: &Value) {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    out.text(1, text("$ref"));
    out.text(2, text("format"));
    out.text(4, text("description"));
    if let Some(default) = value.get("default") {
        out.message(5, |any| any.text(2, &format!("{default}\n")));
    }
    out.text(13, text("pattern"));
    for name in value["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        out.text(19, name);
    }
    for allowed in value["enum"].as_array().into_iter().flatten() {
        out.message(20, |any| any.text(2, &format!("{allowed}\n")));
    }
    match &value["additionalProperties"] {
        Value::Bool(allowed) => out.message(21, |item| item.flag(2, *allowed)),
        Value::Null => {}
        inner => out.message(21, |item| item.message(1, |out| schema(out, inner))),
    }
    if let Some(kind) = value["type"].as_str() {
        out.message(22, |item| item.text(1, kind));
    }
    if value["items"].is_object() {
        out.message(23, |item| item.message(1, |out| schema(out, &value["items"])));
    }
    if value["properties"].is_object() {
        out.message(25, |properties| named_schemas(properties, &value["properties"]));
    }
    out.extensions(31, value);
}

fn path_item(out: &mut Message, item: &Value) {
    for (method, field) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
        if item[method].is_object() {
            out.message(field, |out| operation(out, &item[method]));
        }
    }
}

fn operation(out: &mut Message, operation: &Value) {
    out.text(5, operation["operationId"].as_str().unwrap_or_default());
    for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|p| p["in"] == "query") {
        // ParametersItem, Parameter, NonBodyParameter, QueryParameterSubSchema.
        out.message(8, |item| {
            item.message(1, |parameter_| {
                parameter_.message(2, |plain| {
                    plain.message(3, |query| {
                        query.text(2, "query");
                        query.text(4, parameter["name"].as_str().unwrap_or_default());
                        query.text(6, parameter["type"].as_str().unwrap_or_default());
                    });
                });
            });
        });
    }
    out.extensions(13, operation);
}

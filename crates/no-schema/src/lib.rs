//! A derive of `JsonSchema` that does nothing.
//!
//! The program reads its CRDs from a generated file. The code that would make them from the types is a third of what the
//! compiler has to do for `capstan-api`, so it is there only where files are generated and tested (feature `schemas`).
//! Without it, types derive this, which accepts the attributes and ignores them.

use proc_macro::TokenStream;

/// Accepts `#[schemars(…)]` and adds nothing.
#[proc_macro_derive(JsonSchema, attributes(schemars))]
pub fn json_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

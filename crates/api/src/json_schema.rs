//! `JsonSchema`, as the types derive it: schemars' own where CRDs are generated from them, else nothing.

#[cfg(feature = "schemas")]
pub use schemars::JsonSchema;

#[cfg(not(feature = "schemas"))]
pub use self::without::JsonSchema;

#[cfg(not(feature = "schemas"))]
mod without {
    pub use capstan_no_schema::JsonSchema;

    /// Every type has it.
    pub trait JsonSchema {}

    impl<T: ?Sized> JsonSchema for T {}
}

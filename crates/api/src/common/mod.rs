//! Types that several domains share.

pub mod upgrade;

//! Types that several domains share.

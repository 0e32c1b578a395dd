//! Stories with a server.

//! Tests against real things: a container engine, a database.

mod sandbox;

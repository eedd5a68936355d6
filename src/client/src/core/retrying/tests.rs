//! A member alone, and members together with the coordinator's core under all that can go wrong.

mod coordinator;
mod member;
mod oracle;
mod together;
mod world;

//! The built `corelane` command, as people and scripts use it: arguments in, text and exit codes out, against a broker that is a
//! process too. Nothing here knows how long anything takes.

mod broker;
mod call;
mod client;
mod exit_codes;
mod groups;
mod messages;
mod restart;
mod serve;
mod terminal;
mod tools;
mod topics;

//! A worker of a group: prints numbers, and fails what is none. What keeps failing goes to the dead-letter topic.
//!
//! `cargo run -p corelane_client --example worker -- 127.0.0.1:7311 billing orders`

use std::error::Error;

use corelane_client::{Acknowledge, Client, ClientOptions, GroupOptions, GroupRecord};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [broker, group, topic] = arguments.as_slice() else {
        return Err("give a broker's address, a group and a topic".into());
    };
    let client = Client::connect(ClientOptions::new([broker])).await?;
    let options = GroupOptions { acknowledge: Acknowledge::Explicit, ..GroupOptions::new(group, [topic]) };
    let consumer = client.group_consumer(options);
    loop {
        let record = tokio::select! {
            record = consumer.next() => record?,
            _ = tokio::signal::ctrl_c() => break,
        };
        match handle(&record) {
            Ok(()) => consumer.done(&record),
            // It comes again when it is due; until then later records of its key wait, and other keys go on.
            Err(reason) => consumer.fail(&record, &reason),
        }
    }
    // Commits what is done and leaves the group, so that others take over at once.
    consumer.close().await?;
    Ok(())
}

fn handle(record: &GroupRecord) -> Result<(), String> {
    let text = std::str::from_utf8(record.record().value.unwrap_or_default()).map_err(|error| error.to_string())?;
    let number: f64 = text.trim().parse().map_err(|error| format!("{text:?}: {error}"))?;
    println!("{}/{} offset {}, attempt {}: {number}", record.topic(), record.partition(), record.offset(), record.attempt());
    Ok(())
}

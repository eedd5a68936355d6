//! Sends lines of standard input to a topic, and says where each was stored.
//!
//! `cargo run -p corelane_client --example produce -- 127.0.0.1:7311 orders < lines.txt`

use std::error::Error;
use std::io::BufRead;

use corelane_client::{Client, ClientOptions, ProducerOptions, Record};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [broker, topic] = arguments.as_slice() else {
        return Err("give a broker's address and a topic".into());
    };
    let client = Client::connect(ClientOptions::new([broker])).await?;
    let producer = client.producer(ProducerOptions::default());
    let mut deliveries = Vec::new();
    for line in std::io::stdin().lock().lines() {
        // Accepted: it is in a batch. It is stored when its delivery says so.
        deliveries.push(producer.send(Record::to(topic).value(&line?)).await?);
    }
    for delivery in deliveries {
        let delivered = delivery.await?;
        println!("{topic}/{} offset {} ({:?})", delivered.partition, delivered.offset.0, delivered.level);
    }
    producer.close().await?;
    Ok(())
}

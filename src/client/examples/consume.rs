//! Prints a topic from its beginning, and goes on with what arrives.
//!
//! `cargo run -p corelane_client --example consume -- 127.0.0.1:7311 orders`

use std::error::Error;

use corelane_client::{Client, ClientOptions, ConsumerOptions, StartAt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [broker, topic] = arguments.as_slice() else {
        return Err("give a broker's address and a topic".into());
    };
    let client = Client::connect(ClientOptions::new([broker])).await?;
    let consumer = client.consumer(ConsumerOptions::default());
    consumer.assign_all(topic, StartAt::Earliest).await?;
    loop {
        let batch = consumer.next_batch().await?;
        for record in batch.records() {
            // Key and value are borrowed from the buffer the batch was received in.
            let value = String::from_utf8_lossy(record.value.unwrap_or_default());
            println!("{topic}/{} offset {}: {value}", batch.partition(), record.offset.0);
        }
    }
}

//! Topics.

use crate::mock::Broker;
use crate::{connect, run};

#[test]
fn every_page_of_a_list_is_asked_for() {
    run(async {
        let broker = Broker::start().await;
        let admin = connect(&broker).await.admin();
        for count in 0..6 {
            let expected: Vec<String> = (0..count).map(|number| format!("t{number}")).collect();
            let listed = admin.list_topics().await.unwrap();
            assert_eq!(listed.into_iter().map(|topic| topic.name).collect::<Vec<_>>(), expected);
            broker.create(&format!("t{count}"), 1);
        }
    });
}

//! kill -9 under load, the start after it, and the reading of everything that was acknowledged.

use std::time::Duration;

use super::{RunError, Runner, Target};
use crate::driver::engine::Second;
use crate::live::Live;
use crate::trial::{Trial, read_back};

impl Runner<'_> {
    /// Kills the broker under load, starts it again, and reads everything back.
    pub(super) fn kill_and_restart(&mut self, after: Duration) -> Result<bool, RunError> {
        let Target::Own(broker) = &mut self.target else {
            return Err(RunError::Usage("only a broker of our own can be killed".to_owned()));
        };
        let prefix = format!("{}-kill", self.prefix);
        let trial = Trial {
            broker: self.address,
            prefix: &prefix,
            rate: self.workload.rate,
            verify: true,
            delete_topics: false,
            expect_disconnect: true,
            producers_from: 0,
        };
        let live = Live::new(self.workload.message_bytes, self.args.quiet);
        let killer = std::cell::RefCell::new(None);
        let findings = {
            let broker = &*broker;
            let mut show = |second: &Second| live.show(second);
            trial.run_observed(&self.workload, &mut show, &mut || {
                killer.replace(Some(broker.kill_later(after)));
            })
        };
        live.finish();
        let findings = findings?;
        if let Some(killer) = killer.into_inner() {
            killer.join().expect("the killing thread only sends a signal");
        }
        if findings.disconnected.is_none() {
            return Err(RunError::Usage(
                "the load ended before the broker was killed: --duration must exceed the kill time".to_owned(),
            ));
        }
        let ready = broker.restart()?;
        let acknowledged = findings.acknowledged.as_ref().expect("the trial verified");
        let (counts, messages) = read_back(self.address, &findings.topics, acknowledged)?;
        println!(
            "killed after {} acknowledged messages in {} partitions; ready after {:.2} s; {messages} messages read back: {counts}",
            acknowledged.count(),
            self.workload.partitions(),
            ready.as_secs_f64()
        );
        let slow = self.workload.objective.restart_s.filter(|limit| ready.as_secs_f64() > *limit);
        if let Some(limit) = slow {
            println!("MISSED: ready after {:.2} s, the objective is {limit} s", ready.as_secs_f64());
        }
        Ok(counts.is_clean() && slow.is_none())
    }
}

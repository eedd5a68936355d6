//! Runs the checks of the repository: one line a complaint, exit code 1 when there is any.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ci::complaints() {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            for complaint in complaints {
                eprintln!("{complaint}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: reading the repository: {error}");
            ExitCode::FAILURE
        }
    }
}

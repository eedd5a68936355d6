/// A list of processors that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a list of processors such as \"2-5,7\": {why}")]
pub struct CpuListError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Processor numbers above this are a mistake: the kernel's own limit.
const CPU_MAX: u32 = 8191;

/// Reads a list like "2-5,7": ascending, without repetition.
pub fn parse_cpu_list(text: &str) -> Result<Vec<u32>, CpuListError> {
    let error = |why| CpuListError { text: text.to_owned(), why };
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |digits: &str| digits.trim().parse::<u32>().map_err(|_| error("a part is not a number or a range"));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(error("a range ends before it starts"));
        }
        if last > CPU_MAX {
            return Err(error("a number is above 8191"));
        }
        cpus.extend(first..=last);
    }
    if cpus.is_empty() {
        return Err(error("it is empty"));
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Writes ascending processors as a list like "2-5,7".
pub fn render_cpu_list(cpus: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let Some(&first) = rest.first() {
        let length = rest.iter().zip(first..).take_while(|(cpu, expected)| **cpu == *expected).count();
        let last = rest[length - 1];
        rest = &rest[length..];
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if last > first {
            text.push('-');
            text.push_str(&last.to_string());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, cpus, written) in [
            ("2-5,7", vec![2, 3, 4, 5, 7], "2-5,7"),
            ("3", vec![3], "3"),
            (" 1, 0 ,1", vec![0, 1], "0-1"),
            ("0-1\n", vec![0, 1], "0-1"),
        ] {
            assert_eq!(parse_cpu_list(text).unwrap(), cpus);
            assert_eq!(render_cpu_list(&cpus), written);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "5-2", "a", "1-", "0-9000", "-3"] {
            assert!(parse_cpu_list(text).is_err(), "{text}");
        }
    }
}

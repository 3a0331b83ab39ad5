//! Kills a broker for as long as it is told to. Usage: `kill_soak [--cycles N] [--minutes M] [--seed S]`.
//!
//! Without a bound it kills for ten minutes. `LANEWAY_BIN` names the broker; without it the debug build is used.

use std::process::ExitCode;
use std::time::Duration;

use conformance_sdk_0_12_2::kill::{Plan, run};

const MINUTES_DEFAULT: u64 = 10;

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(plan) => {
            println!("seed {}", plan.seed);
            println!("{:#?}", run(&plan));
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}\nusage: kill_soak [--cycles N] [--minutes M] [--producers P] [--seed S]");
            ExitCode::from(2)
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let (mut cycles, mut minutes, mut producers) = (None, None, 4);
    let mut seed = u64::from(std::process::id());
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a number"))?;
        let number: u64 = value.parse().map_err(|_| format!("{flag} needs a number, not {value}"))?;
        match flag.as_str() {
            "--cycles" => cycles = Some(number),
            "--minutes" => minutes = Some(number),
            "--producers" => {
                producers = u32::try_from(number).map_err(|_| "too many producers".to_owned())?
            }
            "--seed" => seed = number,
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    let minutes = minutes.unwrap_or(if cycles.is_some() { u64::MAX / 60 } else { MINUTES_DEFAULT });
    Ok(Plan {
        cycles: cycles.unwrap_or(u64::MAX),
        duration: Duration::from_secs(minutes * 60),
        producers: producers.max(1),
        seed,
    })
}

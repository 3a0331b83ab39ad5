//! What the command line says.

use std::path::PathBuf;
use std::time::Duration;

use crate::Result;

pub struct Settings {
    pub binary: PathBuf,
    /// Where data directories and the files of the limits are made.
    pub directory: PathBuf,
    /// Payload of workload a, in 10^6 bytes.
    pub megabytes: u64,
    /// How long singles are sent.
    pub time: Duration,
    /// Letters of the workloads.
    pub only: String,
    pub shards: Vec<u32>,
}

impl Settings {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut settings = Self {
            binary: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/laneway")),
            directory: std::env::temp_dir(),
            megabytes: 2000,
            time: Duration::from_secs(4),
            only: "abcd".into(),
            shards: vec![1, 2],
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--dir" => settings.directory = value()?.into(),
                "--megabytes" => settings.megabytes = value()?.parse::<u64>()?.max(8),
                "--seconds" => settings.time = Duration::from_secs(value()?.parse()?),
                "--only" => settings.only = value()?,
                "--shards" => {
                    settings.shards =
                        value()?.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?
                }
                other if other.starts_with('-') => return Err(format!("unknown argument {other}").into()),
                _ => settings.binary = argument.into(),
            }
        }
        if settings.only.chars().any(|workload| !"abcde".contains(workload)) {
            return Err(format!("workloads are a, b, c, d and e, not {}", settings.only).into());
        }
        Ok(settings)
    }
}

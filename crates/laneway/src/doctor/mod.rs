//! `laneway doctor`: looks at the machine, the configuration and the data directory as a start would, changes nothing,
//! and says for each thing whether it is well, what is wrong, and how to mend it.

mod disk;
mod machine;
mod setup;

use std::fmt;

use laneway_config::Config;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The broker runs, but worse than it could.
    Warn,
    /// The broker does not run, or must not be trusted with data.
    Fail,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What was looked at, such as `disk.flush`.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// How to mend it; none when nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    fn warn(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn fail(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// Every check, in the order of the report.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// The checks.
    pub checks: Vec<Check>,
}

impl Report {
    /// The worst verdict.
    pub fn verdict(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let verdict = match check.verdict {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Fail => "FAIL",
            };
            write!(f, "{verdict:<4}  {:<16}  {}", check.name, check.found)?;
            match &check.remedy {
                Some(remedy) => writeln!(f, "; {remedy}")?,
                None => writeln!(f)?,
            }
        }
        let count = |verdict| self.checks.iter().filter(|check| check.verdict == verdict).count();
        let (ok, warn, fail) = (count(Verdict::Ok), count(Verdict::Warn), count(Verdict::Fail));
        writeln!(f, "{ok} ok, {warn} warnings, {fail} failures")
    }
}

/// Looks at everything that a start with this configuration needs.
pub fn examine(config: &Config) -> Report {
    let mut checks = setup::configuration(config);
    checks.extend(machine::examine(config));
    checks.extend(disk::examine(&config.data_dir));
    let running = setup::running_broker(&config.data_dir);
    checks.push(setup::data_directory(&config.data_dir, running));
    checks.push(setup::port(config.tcp.address, running));
    Report { checks }
}

/// The report of a configuration that cannot be read: nothing else is looked at.
pub fn unreadable(error: &laneway_config::ConfigError) -> Report {
    Report {
        checks: vec![Check::fail(
            "config",
            error.to_string(),
            "correct it; `laneway config --keys` lists every key",
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_line_for_each_check_and_a_sum() {
        let report = Report {
            checks: vec![
                Check::ok("kernel", "6.18"),
                Check::warn("disk.space", "5 GiB free", "make room"),
                Check::fail("port", "busy", "choose another"),
            ],
        };
        assert_eq!(
            report.to_string(),
            "ok    kernel            6.18\n\
             warn  disk.space        5 GiB free; make room\n\
             FAIL  port              busy; choose another\n\
             1 ok, 1 warnings, 1 failures\n"
        );
        assert_eq!(report.verdict(), Verdict::Fail);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["checks"][1]["verdict"], "warn");
        assert!(json["checks"][0].get("remedy").is_none());
    }
}

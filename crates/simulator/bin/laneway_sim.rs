//! `laneway-sim`: repeats a simulated run by its seed, or runs many seeds on all cores and names those that fail.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use laneway_simulator::faults::Mask;
use laneway_simulator::run::{self, Sum};
use laneway_simulator::shrink;
use laneway_simulator::trace::Verbosity;
use laneway_simulator::{Options, Profile};

/// Runs whole simulated clusters of Laneway on one thread each. One seed decides everything about a run: how many nodes
/// and clients there are, what clients ask, what links, disks, clocks and processes do wrong, and in which order
/// everything happens. The same seed gives the same run, in every build.
///
/// A run fails when anything is wrong that a client or an operator could ever notice: a lost or repeated request, two
/// histories, a stale read, replicas that differ, an answer that never comes after the last fault.
#[derive(Parser, Debug)]
#[command(name = "laneway-sim", version, max_term_width = 110, after_long_help = EXAMPLES)]
struct Arguments {
    /// Repeat this run and print what happens in it
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "time"])]
    seed: Option<u64>,

    /// Run the seeds A up to B, exclusive, on all cores
    #[arg(long, value_name = "A..B", value_parser = parse_range, conflicts_with = "time")]
    seeds: Option<(u64, u64)>,

    /// Run new seeds for so long, on all cores: 30s, 10m, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,

    /// With --for: the first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,

    /// Length of the runs
    #[arg(long, value_enum, default_value_t = ProfileArgument::Lite)]
    profile: ProfileArgument,

    /// With --seed: look for a smaller run that fails the same way
    #[arg(long, requires = "seed")]
    shrink: bool,

    /// Plant a bug into every replica, to see it found; `list` names them. Needs a build with --features mutations
    #[arg(long, value_name = "NAME")]
    mutation: Option<String>,

    /// Take back faults by their numbers, as --shrink prints them: 3,7-20
    #[arg(long, value_name = "NUMBERS", default_value = "", hide_default_value = true)]
    mask: Mask,

    /// Number of nodes, 1 to 6, instead of what the seed says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=6))]
    nodes: Option<u8>,

    /// Number of clients instead of what the seed says
    #[arg(long, value_name = "N")]
    clients: Option<usize>,

    /// Requests of each client instead of what the seed says
    #[arg(long, value_name = "N")]
    requests: Option<u32>,

    /// Threads for --seeds and --for [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// With --seed: only say how it ended
    #[arg(long)]
    quiet: bool,

    /// With --seeds and --for: stop after so many failures
    #[arg(long, value_name = "N", default_value_t = 20)]
    failures_max: usize,

    /// With --seeds and --for: stop when this file appears
    #[arg(long, value_name = "PATH")]
    stop_file: Option<std::path::PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  laneway-sim --seed 42                    repeat one run, with a readable trace
  laneway-sim --seeds 0..10000             a soak of ten thousand runs
  laneway-sim --for 10m --from 1000000     a soak of ten minutes, from that seed on
  laneway-sim --seed 42 --shrink           make a failing run smaller
  laneway-sim --seeds 0..500 --mutation ack-before-durable
                                           plant a bug and see how soon it is found

The exit code is 0 when every run passed and 1 when one failed.";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProfileArgument {
    /// Short runs, every kind of fault
    Lite,
    /// Long runs, more clients and lanes
    Swarm,
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (first, end) = text.split_once("..").ok_or("write it as A..B, for example 0..1000")?;
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().map_err(|error| error.to_string());
    let (first, end) = (number(first)?, number(end)?);
    if first < end { Ok((first, end)) } else { Err(format!("{first} is not below {end}")) }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let count = &text[..text.len() - unit.len()];
    let count: u64 = count.parse().map_err(|_| format!("`{text}` does not begin with a number"))?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("end it with s, m or h, for example 10m".to_owned()),
    };
    Ok(Duration::from_secs(count * seconds))
}

impl Arguments {
    fn options(&self, seed: u64, mutation: Option<usize>) -> Options {
        Options {
            seed,
            profile: match self.profile {
                ProfileArgument::Lite => Profile::Lite,
                ProfileArgument::Swarm => Profile::Swarm,
            },
            mask: self.mask.clone(),
            nodes: self.nodes.map(usize::from),
            clients: self.clients,
            requests: self.requests,
            mutation,
            verbosity: Verbosity::Off,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run::keep_panics_quiet();
    let mutation = match &arguments.mutation {
        None => None,
        Some(name) => match laneway_simulator::mutations::find(name) {
            Some(name) => Some(name),
            None => {
                let names = laneway_simulator::mutations::all();
                match names.is_empty() {
                    true => println!("this build plants no bugs: build it with --features mutations"),
                    false => println!("the bugs that can be planted:\n  {}", names.join("\n  ")),
                }
                return if name == "list" { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
        },
    };
    match (arguments.seed, arguments.seeds, arguments.time) {
        (Some(seed), _, _) if arguments.shrink => shrink_one(&arguments.options(seed, mutation)),
        (Some(seed), _, _) => replay(&arguments, &arguments.options(seed, mutation)),
        (None, Some((first, end)), _) => soak(&arguments, mutation, first, end, None),
        (None, None, Some(time)) => soak(&arguments, mutation, arguments.from, u64::MAX, Some(time)),
        (None, None, None) => soak(&arguments, mutation, 0, 1_000, None),
    }
}

fn replay(arguments: &Arguments, options: &Options) -> ExitCode {
    let verbosity = if arguments.quiet { Verbosity::Off } else { Verbosity::All };
    let options = Options { verbosity, ..options.clone() };
    let outcome = run::run(&options);
    for line in &outcome.lines {
        println!("{line}");
    }
    if !arguments.quiet {
        println!("{}", run::describe_plan(&outcome.plan));
    }
    println!("{}", run::describe(&options, &outcome));
    if outcome.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn shrink_one(options: &Options) -> ExitCode {
    match shrink::shrink(options, 2_000) {
        None => {
            println!("seed {} does not fail", options.seed);
            ExitCode::SUCCESS
        }
        Some(shrunk) => {
            println!("{} faults left after {} runs", shrunk.faults_left, shrunk.tries);
            println!("fails: {}", shrunk.violation);
            println!("{}", shrink::command_of(&shrunk.options));
            ExitCode::FAILURE
        }
    }
}

/// Seeds that one thread takes at a time.
const CHUNK: u64 = 16;

fn soak(
    arguments: &Arguments,
    mutation: Option<usize>,
    first: u64,
    end: u64,
    time: Option<Duration>,
) -> ExitCode {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or(cores).max(1);
    let next = AtomicU64::new(first);
    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    let (sender, sums) = mpsc::channel::<Sum>();
    let total = thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, is_over) = (sender.clone(), &next, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let from = next.fetch_add(CHUNK, Ordering::Relaxed);
                    if from >= end {
                        return;
                    }
                    let mut sum = Sum::default();
                    for seed in from..from.saturating_add(CHUNK).min(end) {
                        sum.run(&arguments.options(seed, mutation));
                    }
                    if sender.send(sum).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut total = Sum::default();
        let mut said = Instant::now();
        for sum in sums {
            for (seed, cause) in &sum.failures {
                println!("seed {seed} FAILED: {cause}");
            }
            total.add(sum);
            let stop = arguments.stop_file.as_ref().is_some_and(|path| path.exists());
            let late = time.is_some_and(|time| started.elapsed() >= time);
            if stop || late || total.failures.len() >= arguments.failures_max {
                is_over.store(true, Ordering::Relaxed);
            }
            if said.elapsed() > Duration::from_secs(60) {
                said = Instant::now();
                let runs = total.totals.runs;
                println!("{runs} runs, {} failures, {} s", total.failures.len(), started.elapsed().as_secs());
            }
        }
        total
    });
    let seconds = started.elapsed().as_secs_f64();
    println!("{}", total.totals.report());
    let missing: Vec<&str> = total.totals.coverage.missing().map(|mark| mark.text()).collect();
    println!(
        "never met            {}",
        if missing.is_empty() { "nothing".to_owned() } else { missing.join("; ") }
    );
    println!(
        "took                 {seconds:.1} s on {threads} threads: {:.0} runs/s, {:.0} simulated seconds a second",
        total.totals.runs as f64 / seconds,
        total.totals.simulated_seconds() as f64 / seconds
    );
    println!("failures             {}", total.failures.len());
    if total.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

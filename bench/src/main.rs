//! `laneway-bench`: what the broker does, beside what the machine can do. See `README.md`.

mod batches;
mod connection;
mod latency;
mod limit;
mod process;
mod settings;
mod singles;
mod storm;
mod topic;
mod workers;

use std::process::ExitCode;
use std::time::Duration;

use crate::limit::{Limits, gigabytes_per_second};
use crate::process::Broker;
use crate::settings::Settings;
use crate::storm::Storm;
use crate::topic::Topic;
use crate::workers::Taken;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PARTITIONS: u32 = 8;
const IDLE_PARTITIONS: u32 = 1000;
const IDLE_TIME: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let result = Settings::parse(std::env::args().skip(1))
        .and_then(|settings| settings.shards.iter().try_for_each(|shards| measure(&settings, *shards)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("laneway-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything with one number of shards, each workload on a broker of its own.
fn measure(settings: &Settings, shards: u32) -> Result<()> {
    let mut limits = Limits::measure(&settings.directory)?;
    let block = limits.block.percentile(0.5);
    println!("== {shards} shard(s)");
    println!(
        "limit: disk 1 MiB write+fdatasync: buffered {:.2} GB/s, direct {:.2} GB/s, direct over written blocks {:.2} \
         GB/s; 4 KiB direct write+fdatasync p50 {block:.3} ms, p99 {:.3} ms; loopback {:.2} GB/s",
        limits.buffered,
        limits.direct,
        limits.recycled,
        limits.block.percentile(0.99),
        limits.loopback
    );
    for workload in settings.only.chars() {
        let broker = Broker::start(&settings.binary, shards, &settings.directory)?;
        let result = match workload {
            'a' => measure_batches(settings, &broker, &limits),
            'b' => measure_singles(settings, &broker, 64, block),
            'c' => measure_singles(settings, &broker, 1, block),
            'e' => measure_storm(settings, &broker),
            _ => measure_idle(&broker),
        };
        result.map_err(|error| format!("{error}\nlog of the broker:\n{}", broker.log()))?;
    }
    Ok(())
}

fn measure_batches(settings: &Settings, broker: &Broker, limits: &Limits) -> Result<()> {
    let topic = Topic::create(broker.address(), "batches", PARTITIONS)?;
    let batches = settings.megabytes * 1_000_000 / batches::BATCH_BYTES / u64::from(PARTITIONS);
    let bytes = batches * u64::from(PARTITIONS) * batches::BATCH_BYTES;
    let mut produced = batches::produce(broker, &topic, batches)?;
    let rate = gigabytes_per_second(bytes, produced.taken.time);
    println!(
        "a produce: {rate:.3} GB/s ({:.0} % of direct, {:.0} % of direct over written blocks), p50 {:.1} ms, p99 {:.1} \
         ms, max {:.0} ms, {} retries; {}",
        rate / limits.direct * 100.0,
        rate / limits.recycled * 100.0,
        produced.latencies.percentile(0.5),
        produced.latencies.percentile(0.99),
        produced.latencies.percentile(1.0),
        produced.retries,
        per_gigabyte(&produced.taken, bytes)
    );
    let taken = batches::consume(broker, &topic, batches)?;
    let rate = gigabytes_per_second(bytes, taken.time);
    println!(
        "a consume: {rate:.3} GB/s ({:.0} % of loopback), verified; {}",
        rate / limits.loopback * 100.0,
        per_gigabyte(&taken, bytes)
    );
    Ok(())
}

fn per_gigabyte(taken: &Taken, bytes: u64) -> String {
    format!(
        "broker {:.2} core-s per GB, {:.0} MiB resident before, {:.0} after, {:.0} at most, {} descriptors",
        taken.cpu_seconds() / (bytes as f64 / 1e9),
        taken.before.resident_mib,
        taken.after.resident_mib,
        taken.after.resident_mib_max,
        taken.after.descriptors
    )
}

fn measure_singles(settings: &Settings, broker: &Broker, connections: usize, block: f64) -> Result<()> {
    let topic = Topic::create(broker.address(), "singles", PARTITIONS)?;
    let mut sent = singles::send(broker, &topic, connections, settings.time)?;
    singles::verify(broker, &topic, &sent)?;
    let taken = sent.taken;
    let count = sent.latencies.count() as f64;
    let p50 = sent.latencies.percentile(0.5);
    println!(
        "{}: {connections} connection(s): {:.0} acks/s, p50 {p50:.3} ms ({:.1} x 4 KiB write+fdatasync), p99 {:.3} ms, \
         max {:.1} ms, {} retries, verified; broker {:.1} core-us and {:.1} context switches per message, {:.0} MiB \
         resident, {:.1} KiB more per message",
        if connections > 1 { 'b' } else { 'c' },
        count / taken.time.as_secs_f64(),
        p50 / block,
        sent.latencies.percentile(0.99),
        sent.latencies.percentile(1.0),
        sent.retries,
        taken.cpu_seconds() * 1e6 / count,
        (taken.after.context_switches - taken.before.context_switches) as f64 / count,
        taken.after.resident_mib,
        (taken.after.resident_mib - taken.before.resident_mib) * 1024.0 / count
    );
    Ok(())
}

fn measure_storm(settings: &Settings, broker: &Broker) -> Result<()> {
    let topic = Topic::create(broker.address(), "storm", PARTITIONS)?;
    let mut senders = storm::senders(broker)?;
    // Once more in the end, because the first of all runs on a machine that is not warm.
    for storm in
        [Storm::Calm, Storm::Pings, Storm::OneAddress, Storm::ManyAddresses, Storm::Calm, Storm::Pings]
    {
        let mut weather = storm::send(broker, &topic, &mut senders, storm, settings.time)?;
        println!(
            "e {storm:?}: {} messages, p50 {:.3} ms, p99 {:.3} ms, max {:.1} ms; {} connections asked ({} a second \
             wanted): {} evicted, {} replied, {} unanswered; broker {:.2} cores",
            weather.latencies.count(),
            weather.latencies.percentile(0.5),
            weather.latencies.percentile(0.99),
            weather.latencies.percentile(1.0),
            weather.asked,
            storm::GUESSES_PER_SECOND,
            weather.evicted,
            weather.replied,
            weather.unanswered,
            weather.cpu_seconds / settings.time.as_secs_f64()
        );
    }
    Ok(())
}

fn measure_idle(broker: &Broker) -> Result<()> {
    let empty = broker.usage()?;
    Topic::create(broker.address(), "idle", IDLE_PARTITIONS)?;
    std::thread::sleep(Duration::from_secs(1));
    let before = broker.usage()?;
    std::thread::sleep(IDLE_TIME);
    let after = broker.usage()?;
    println!(
        "d idle: {IDLE_PARTITIONS} partitions: {:.1} % of a core, {:.1} switches/s, {:.1} MiB resident ({:.1} before \
         they were made), {} descriptors",
        (after.cpu_seconds - before.cpu_seconds) / IDLE_TIME.as_secs_f64() * 100.0,
        (after.context_switches - before.context_switches) as f64 / IDLE_TIME.as_secs_f64(),
        after.resident_mib,
        empty.resident_mib,
        after.descriptors
    );
    Ok(())
}

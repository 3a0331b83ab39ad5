//! GetStats: what the node holds and what the process uses.

use std::cmp::Reverse;
use std::rc::Rc;

use laneway_metadata::permissions::Rule;
use laneway_wire::Status;
use laneway_wire::reply::{CacheMetrics, Record, Stats};

use super::login::SERVER_VERSION;
use crate::connections::Binding;
use crate::message::{CacheCounts, PartitionUsage, ReplyTo, UsageScope};
use crate::process;
use crate::shard::Shard;

impl Shard {
    pub(super) async fn serve_stats(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
    ) -> Result<(), Status> {
        self.metadata().permit(binding.user, Rule::Servers)?;
        let usage = self.usage(UsageScope::Node).await?;
        let clients = self.clients().await?.len();
        let process = self.process();
        let metadata = self.metadata();
        let streams = metadata.streams();
        let stats = Stats {
            process_id: std::process::id(),
            cpu_usage: process.cpu_percent,
            total_cpu_usage: process.total_cpu_percent,
            memory_usage: process.memory_bytes,
            total_memory: process.memory_total_bytes,
            available_memory: process.memory_available_bytes,
            run_time_us: process.run_time_us,
            start_time: laneway_wire::Micros(process.start_time_us),
            read_bytes: process.read_bytes,
            written_bytes: process.written_bytes,
            messages_size_bytes: usage.rows().map(|row| row.bytes).sum(),
            streams_count: count(streams.count() as u64),
            topics_count: count(streams.topics_count()),
            partitions_count: count(streams.partitions_count()),
            segments_count: count(usage.rows().map(|row| u64::from(row.segments)).sum()),
            messages_count: usage.rows().map(|row| row.messages).sum(),
            clients_count: count(clients as u64),
            consumer_groups_count: 0,
            hostname: &process.hostname,
            os_name: &process.os_name,
            os_version: &process.os_version,
            kernel_version: &process.kernel_version,
            server_version: SERVER_VERSION,
            server_semver: process::semver(SERVER_VERSION),
            caches: caches(usage.rows()),
            threads_count: process.threads,
            free_disk_space: process.disk_free_bytes,
            total_disk_space: process.disk_total_bytes,
            open_files: Some((process.open_files, process.open_files_max)),
        };
        self.answer(reply_to, |out| stats.put(out));
        Ok(())
    }
}

/// Partitions with reads that one answer tells of: those that were read most.
const CACHES_MAX: usize = 1024;

fn caches<'a>(rows: impl Iterator<Item = &'a PartitionUsage>) -> Vec<CacheMetrics> {
    let mut read: Vec<&PartitionUsage> = rows.filter(|row| row.cache != CacheCounts::default()).collect();
    read.sort_by_key(|row| (Reverse(row.cache.hits + row.cache.misses), row.key));
    read.truncate(CACHES_MAX);
    read.sort_by_key(|row| (row.stream, row.topic, row.key));
    let metrics = |row: &PartitionUsage| {
        let CacheCounts { hits, misses } = row.cache;
        CacheMetrics {
            stream: row.stream,
            topic: row.topic,
            partition: row.key.partition.0,
            hits,
            misses,
            hit_ratio: (hits as f64 / (hits + misses) as f64) as f32,
        }
    };
    read.into_iter().map(metrics).collect()
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

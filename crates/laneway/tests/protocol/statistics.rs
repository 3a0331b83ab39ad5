//! What a node says of its process, its machine and its clients. Source: resources, sections 17, 18 and 24.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use laneway_wire::Reader;
use laneway_wire::reply::{ClientDetails, ClientHeader, Record, Stats, read_list};
use laneway_wire::request::{GetClient, GetClients, GetMe, GetStats};

use crate::client::Client;
use crate::harness;
use crate::node::{Node, SHARDS};

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Blocks of a file system, the size of one, and those that are free for us.
fn file_system(path: &Path) -> [u64; 3] {
    let output = Command::new("stat").args(["-f", "-c", "%b %S %a"]).arg(path).output().expect("run stat");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let numbers: Vec<u64> = text.split_whitespace().map(|part| part.parse().expect("a number")).collect();
    numbers.try_into().expect("three numbers")
}

#[test]
fn figures_are_those_of_the_process_and_its_machine() {
    // S99, S100
    let broker = harness::Broker::start(harness::Settings::new(env!("CARGO_BIN_EXE_laneway")));
    let mut client = Client::sign_in(broker.address());
    let place = client.topic("load", 1).remove(0);
    for _ in 0..50 {
        client.append(&place, &[[b'x'; 1000]; 10]);
    }
    let body = client.must(&GetStats {});
    let stats = Stats::read(&mut Reader::new(&body)).expect("statistics");
    assert_eq!(stats.process_id, broker.pid());
    let proc = |name: &str| format!("/proc/{}/{name}", broker.pid());

    let near = |what: &str, told: u64, real: u64, slack: u64| {
        assert!(told.abs_diff(real) <= slack, "{what}: told {told}, is {real}");
    };
    let resident = broker.process_use().resident_bytes;
    near("memory", stats.memory_usage, resident, resident / 2);
    near("threads", stats.threads_count.into(), fs::read_dir(proc("task")).expect("tasks").count() as u64, 2);
    let (open, limit) = stats.open_files.expect("the count of open files");
    near("open files", open, broker.process_use().descriptors as u64, 4);
    let limits = text(&proc("limits"));
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit");
    assert_eq!(soft.split_whitespace().next(), Some(limit.to_string().as_str()));

    assert_eq!(stats.hostname, text("/proc/sys/kernel/hostname"));
    assert_eq!(stats.kernel_version, text("/proc/sys/kernel/osrelease"));
    assert!(!stats.os_name.is_empty());
    assert_eq!(stats.server_version, env!("CARGO_PKG_VERSION"));
    let numbers: Vec<u32> =
        stats.server_version.split(['.', '-']).take(3).map(|part| part.parse().expect("a number")).collect();
    assert_eq!(stats.server_semver, numbers[0] * 1_000_000 + numbers[1] * 1_000 + numbers[2]);

    let [blocks, size, free] = file_system(&broker.data_dir());
    assert_eq!(stats.total_disk_space, blocks * size);
    near("free space", stats.free_disk_space, free * size, 8 << 30);
    let machine = text("/proc/meminfo");
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("a total");
    let total: u64 = total.trim().trim_end_matches(" kB").parse().expect("kB");
    assert!(stats.total_memory <= total * 1024 && stats.available_memory <= stats.total_memory);
    assert!(stats.memory_usage < stats.total_memory);

    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64;
    near("start and run time", stats.start_time.0 + stats.run_time_us, now, 10_000_000);
    assert!((0.0..=100.5).contains(&stats.total_cpu_usage), "{}", stats.total_cpu_usage);
    assert!(stats.cpu_usage >= 0.0);
    assert!(stats.written_bytes > 0, "the journal was written");
    assert_eq!((stats.messages_count, stats.messages_size_bytes), (500, 50 * (256 + 10 * 1048)));
    assert_eq!([stats.streams_count, stats.topics_count, stats.partitions_count], [1; 3]);
    assert_eq!(stats.clients_count, 1);
}

#[test]
fn clients_are_listed_and_found_by_their_number() {
    // S13, S102
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let mut others: Vec<_> = (0..5).map(|_| client.another()).collect();
        let mut mine = Vec::new();
        for other in &mut others {
            let body = other.must(&GetMe {});
            let me = ClientDetails::read(&mut Reader::new(&body)).expect("a client");
            mine.push((me.header.client_id, me.header.address.to_owned()));
        }
        let body = client.must(&GetClients {});
        let listed: Vec<ClientHeader<'_>> = read_list(&body).expect("clients");
        assert_eq!(listed.len(), 6);
        for (id, address) in &mine {
            let body = client.must(&GetClient { client_id: *id });
            let found = ClientDetails::read(&mut Reader::new(&body)).expect("a client");
            assert_eq!(found.header.address, address);
            assert!(listed.contains(&found.header) && found.groups.is_empty());
            assert!(address.starts_with("127.0.0.1:"));
        }
        let free =
            (0..).find(|id| listed.iter().all(|client| client.client_id != *id)).expect("a free number");
        assert!(client.must(&GetClient { client_id: free }).is_empty());
        let (gone, _) = mine.remove(0);
        drop(others.remove(0));
        let until = std::time::Instant::now() + crate::client::ANSWER_MAX;
        while !client.must(&GetClient { client_id: gone }).is_empty() {
            assert!(std::time::Instant::now() < until, "a connection that ended is still listed");
        }
    }
}

//! The links between nodes: each direction of each pair by itself.

use crate::faults::{FaultKind, Faults};
use crate::queue::{MICROSECOND, MILLISECOND, SECOND, Time};
use crate::random::{Ppm, Random};

/// What the links of a run do to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkSettings {
    /// Messages that are lost in transit. Replica links are streams; a loss stands for a full queue that drops.
    pub loss: Ppm,
    /// Messages that come twice.
    pub duplicate: Ppm,
    /// Messages that break their connection.
    pub reset: Ppm,
    /// Messages that arrive damaged.
    pub garble: Ppm,
    /// Messages that are held back for long.
    pub delay: Ppm,
    /// Least time on the way.
    pub latency_min: Time,
    /// Mean of what is added to it.
    pub latency_mean: Time,
    /// Mean of what is added to a message that is held back.
    pub delay_mean: Time,
    /// Whether messages of one link keep their order.
    pub ordered: bool,
}

impl NetworkSettings {
    /// A link that works.
    pub const GOOD: NetworkSettings = NetworkSettings {
        loss: Ppm::ZERO,
        duplicate: Ppm::ZERO,
        reset: Ppm::ZERO,
        garble: Ppm::ZERO,
        delay: Ppm::ZERO,
        latency_min: 50 * MICROSECOND,
        latency_mean: 150 * MICROSECOND,
        delay_mean: 0,
        ordered: true,
    };

    /// Links of a run, drawn.
    pub fn draw(random: &mut Random) -> Self {
        let mut settings = Self::GOOD;
        // Each fault is off in half of the runs, so that rare combinations of the others are seen by themselves.
        if random.flip() {
            settings.loss = Ppm(random.below(100_000) as u32);
        }
        if random.flip() {
            settings.duplicate = Ppm(random.below(150_000) as u32);
        }
        if random.flip() {
            settings.reset = Ppm(random.below(3_000) as u32);
        }
        if random.flip() {
            settings.garble = Ppm(random.below(5_000) as u32);
        }
        if random.flip() {
            settings.delay = Ppm(random.below(50_000) as u32);
            settings.delay_mean = random.between(5, 100) * MILLISECOND;
        }
        settings.latency_min = random.between(20, 3_000) * MICROSECOND;
        settings.latency_mean = random.between(20, 5_000) * MICROSECOND;
        settings.ordered = random.flip();
        settings
    }
}

/// How nodes are cut off from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Two groups; nothing passes between them.
    Split,
    /// One node hears nobody and nobody hears it.
    Isolate,
    /// One node hears nobody, but is heard.
    Deaf,
    /// One node is not heard, but hears.
    Mute,
    /// One pair of nodes; both still reach all others.
    Bridge,
    /// Each node hears only the one before it.
    Ring,
}

impl Cut {
    /// All of them.
    pub const ALL: [Cut; 6] = [Cut::Split, Cut::Isolate, Cut::Deaf, Cut::Mute, Cut::Bridge, Cut::Ring];
}

/// One direction between two nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    cut: bool,
    /// Nothing arrives before.
    clogged_until: Time,
    /// Grows with each reset; messages of an older connection are lost.
    connection: u32,
    /// When the newest message arrives.
    newest: Time,
}

/// Where a message goes: when, and on which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When it arrives.
    pub at: Time,
    /// Valid only while the link still has this connection.
    pub connection: u32,
    /// Whether it arrives damaged.
    pub garbled: bool,
}

/// All links of a cluster.
#[derive(Debug)]
pub struct Network {
    settings: NetworkSettings,
    nodes: usize,
    links: Vec<Link>,
}

impl Network {
    /// Links between so many nodes.
    pub fn new(nodes: usize, settings: NetworkSettings) -> Self {
        Self { settings, nodes, links: vec![Link::default(); nodes * nodes] }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.nodes + to]
    }

    /// Sends a message: where it arrives, up to twice.
    pub fn send(
        &mut self,
        now: Time,
        from: usize,
        to: usize,
        random: &mut Random,
        faults: &mut Faults,
    ) -> [Option<Delivery>; 2] {
        let settings = self.settings;
        let is_healed = faults.is_healed();
        let mut hit = |kind, chance: Ppm| chance.0 > 0 && faults.decide(kind, random.chance(chance));
        let lost = hit(FaultKind::Loss, settings.loss);
        let twice = hit(FaultKind::Duplicate, settings.duplicate);
        let reset = hit(FaultKind::Reset, settings.reset);
        let garbled = hit(FaultKind::Garble, settings.garble);
        let late = hit(FaultKind::Delay, settings.delay);
        let link = self.link(from, to);
        if link.cut {
            return [None, None];
        }
        if reset {
            link.connection += 1;
            link.newest = now;
            self.link(to, from).connection += 1;
            return [None, None];
        }
        if lost {
            return [None, None];
        }
        let mut arrival = |link: &mut Link| {
            let latency = settings.latency_min + random.exponential(settings.latency_mean);
            let latency = latency + if late { random.exponential(settings.delay_mean) } else { 0 };
            // Held back for at most this long, so that one draw does not outlast the whole run.
            let mut at = (now + latency.min(2 * SECOND)).max(link.clogged_until);
            if settings.ordered || is_healed {
                at = at.max(link.newest);
                link.newest = at;
            }
            Delivery { at, connection: link.connection, garbled }
        };
        let link = &mut self.links[from * self.nodes + to];
        let first = arrival(link);
        let second = twice.then(|| Delivery { garbled: false, ..arrival(link) });
        [Some(first), second]
    }

    /// Whether a message that was sent on a connection still arrives.
    pub fn arrives(&mut self, from: usize, to: usize, connection: u32) -> bool {
        let link = self.link(from, to);
        !link.cut && link.connection == connection
    }

    /// Breaks all connections of a node, as its end does.
    pub fn disconnect(&mut self, node: usize) {
        for other in 0..self.nodes {
            self.link(node, other).connection += 1;
            self.link(other, node).connection += 1;
        }
    }

    /// Nothing arrives over a link before `until`.
    pub fn clog(&mut self, from: usize, to: usize, until: Time) {
        let link = self.link(from, to);
        link.clogged_until = link.clogged_until.max(until);
    }

    /// Cuts nodes off. A cut replaces the one before.
    pub fn cut(&mut self, cut: Cut, random: &mut Random) {
        self.join();
        let nodes = self.nodes;
        if nodes < 2 {
            return;
        }
        let one = random.index(nodes);
        let other = (one + 1 + random.index(nodes - 1)) % nodes;
        let sides: Vec<bool> = (0..nodes).map(|_| random.flip()).collect();
        for from in 0..nodes {
            for to in (0..nodes).filter(|to| *to != from) {
                let pair = (from == one && to == other) || (from == other && to == one);
                let is_cut = match cut {
                    Cut::Split => sides[from] != sides[to],
                    Cut::Isolate => from == one || to == one,
                    Cut::Deaf => to == one,
                    Cut::Mute => from == one,
                    Cut::Bridge => pair,
                    Cut::Ring => to != (from + 1) % nodes,
                };
                self.link(from, to).cut = is_cut;
            }
        }
    }

    /// Ends a cut.
    pub fn join(&mut self) {
        for link in &mut self.links {
            link.cut = false;
        }
    }

    /// Ends everything that is wrong: cuts, clogs, and from now on losses.
    pub fn heal(&mut self, now: Time) {
        self.settings = NetworkSettings {
            latency_min: self.settings.latency_min.min(MILLISECOND),
            latency_mean: self.settings.latency_mean.min(MILLISECOND),
            ..NetworkSettings::GOOD
        };
        for link in &mut self.links {
            link.cut = false;
            link.clogged_until = link.clogged_until.min(now);
            link.newest = link.newest.min(now + 2 * SECOND);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(settings: NetworkSettings, sent: u64) -> (Vec<Time>, Faults) {
        let mut network = Network::new(2, settings);
        let (mut random, mut faults) = (Random::new(5, 1), Faults::default());
        let mut all = Vec::new();
        for number in 0..sent {
            let deliveries = network.send(number * 1_000, 0, 1, &mut random, &mut faults);
            all.extend(deliveries.into_iter().flatten().map(|delivery| delivery.at));
        }
        (all, faults)
    }

    #[test]
    fn a_good_link_delivers_everything_in_order() {
        let (all, _) = arrivals(NetworkSettings::GOOD, 1_000);
        assert!(all.len() == 1_000 && all.is_sorted());
    }

    #[test]
    fn links_lose_duplicate_and_reorder_as_asked() {
        let settings = NetworkSettings {
            loss: Ppm::percent(20),
            duplicate: Ppm::percent(30),
            ordered: false,
            ..NetworkSettings::GOOD
        };
        let (all, faults) = arrivals(settings, 10_000);
        let count = |kind: FaultKind| faults.counts()[kind as usize];
        assert!((1_800..2_200).contains(&count(FaultKind::Loss)));
        assert!((2_800..3_200).contains(&count(FaultKind::Duplicate)));
        assert!((9_900..10_900).contains(&all.len()), "{}", all.len());
        assert!(!all.is_sorted());
    }

    #[test]
    fn cuts_are_what_they_say_and_heal() {
        let mut random = Random::new(1, 1);
        for cut in Cut::ALL {
            let mut network = Network::new(4, NetworkSettings::GOOD);
            for _ in 0..20 {
                network.cut(cut, &mut random);
                let passes = |network: &mut Network, from, to| network.arrives(from, to, 0);
                let count = (0..16)
                    .filter(|pair| pair / 4 != pair % 4 && passes(&mut network, pair / 4, pair % 4))
                    .count();
                match cut {
                    Cut::Split => assert!([4, 6, 12].contains(&count), "{count}"),
                    Cut::Isolate => assert_eq!(count, 6),
                    Cut::Deaf | Cut::Mute => assert_eq!(count, 9),
                    Cut::Bridge => assert_eq!(count, 10),
                    Cut::Ring => assert_eq!(count, 4),
                }
            }
            network.heal(0);
            assert!((0..16).all(|pair| pair / 4 == pair % 4 || network.arrives(pair / 4, pair % 4, 0)));
        }
    }

    #[test]
    fn a_reset_loses_what_is_on_the_way_in_both_directions() {
        let mut network = Network::new(2, NetworkSettings::GOOD);
        network.disconnect(1);
        assert!(!network.arrives(0, 1, 0) && !network.arrives(1, 0, 0));
        let mut random = Random::new(1, 1);
        let sent = network.send(0, 0, 1, &mut random, &mut Faults::default());
        assert!(network.arrives(0, 1, sent[0].unwrap().connection));
    }

    #[test]
    fn a_clog_holds_everything_back() {
        let mut network = Network::new(2, NetworkSettings::GOOD);
        network.clog(0, 1, 5 * SECOND);
        let mut random = Random::new(1, 1);
        let sent = network.send(0, 0, 1, &mut random, &mut Faults::default());
        assert!(sent[0].unwrap().at >= 5 * SECOND);
    }
}

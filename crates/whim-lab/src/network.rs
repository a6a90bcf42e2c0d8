//! The network of a lab as input for `ip` and `tc`: pure functions from what is wanted to text.
//!
//! In the switch: interface `vI` for node I; a route to each node; a last-resort blackhole for
//! the subnet, so that packets for a node that is off vanish instead of being answered. Rules by
//! priority: 500 nodes that are off, 1000 cuts, 2000 links with properties, which look into a
//! table that leads to a wire or a cable, and to nowhere when that is gone.

use serde::{Deserialize, Serialize};

use crate::options::LinkSettings;
use crate::state::{address4, address6};

const GATEWAY4: &str = "169.254.1.1";
const GATEWAY6: &str = "fe80::1";
const CABLE4: &str = "169.254.2.2";
const CABLE6: &str = "fe80::2";
/// The least that a link needs to carry IPv6.
const IPV6_MTU_MIN: u32 = 1280;
const OFF_PRIORITY: u32 = 500;
const CUT_PRIORITY: u32 = 1000;
const LINK_PRIORITY: u32 = 2000;
/// The last route that is looked at.
const LAST_METRIC: u32 = 4_000_000_000;

/// One run of a configuration program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetStep {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) input: String,
    /// Errors do not matter: what is taken away may be gone already.
    pub(crate) forgiving: bool,
}

/// Builds the steps for one kind of machine: with or without IPv6.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network {
    pub(crate) ipv6: bool,
}

impl Network {
    /// Whether this machine speaks IPv6 at all.
    pub(crate) fn of_this_machine() -> Network {
        Network {
            ipv6: std::path::Path::new("/proc/sys/net/ipv6").exists(),
        }
    }

    /// In the switch, once.
    pub(crate) fn switch(self) -> Vec<NetStep> {
        self.both(
            &[
                "link set lo up".into(),
                format!("route add blackhole 10.99.0.0/24 metric {LAST_METRIC}"),
            ],
            &[format!(
                "route add blackhole fd99::/64 metric {LAST_METRIC}"
            )],
        )
    }

    /// In the switch: connects the node whose first process has this id (in the caller's
    /// numbering).
    pub(crate) fn attach(self, node: usize, init: i32) -> Vec<NetStep> {
        let (a4, a6) = (address4(node), address6(node));
        self.both(
            &[
                format!("link add v{node} type veth peer name eth0 netns {init}"),
                format!("addr add {GATEWAY4}/32 dev v{node}"),
                format!("link set v{node} up"),
                format!("route add {a4}/32 dev v{node}"),
            ],
            &[
                format!("addr add {GATEWAY6}/64 dev v{node} nodad"),
                format!("route add {a6}/128 dev v{node}"),
            ],
        )
    }

    /// In the switch: takes away what `attach` made.
    pub(crate) fn detach(self, node: usize) -> Vec<NetStep> {
        vec![forgiving("-4", &[format!("link del v{node}")])]
    }

    /// In the node, after `attach`.
    pub(crate) fn node(self, node: usize) -> Vec<NetStep> {
        let (a4, a6) = (address4(node), address6(node));
        self.both(
            &[
                "link set lo up".into(),
                "link set eth0 up".into(),
                format!("addr add {a4}/32 dev eth0"),
                format!("route add {GATEWAY4} dev eth0 src {a4}"),
                format!("route add 10.99.0.0/24 via {GATEWAY4} dev eth0 src {a4}"),
            ],
            &[
                format!("addr add {a6}/128 dev eth0 nodad"),
                format!("route add fd99::/64 via {GATEWAY6} dev eth0 src {a6}"),
            ],
        )
    }

    /// In the switch: nothing passes from or to the node any more, in silence.
    pub(crate) fn silence(self, node: usize) -> Vec<NetStep> {
        self.rules(
            "add",
            &[
                (address4(node), address6(node), Direction::From),
                (address4(node), address6(node), Direction::To),
            ],
        )
    }

    /// In the switch: undoes `silence`.
    pub(crate) fn unsilence(self, node: usize) -> Vec<NetStep> {
        let steps = self.rules(
            "del",
            &[
                (address4(node), address6(node), Direction::From),
                (address4(node), address6(node), Direction::To),
            ],
        );
        steps.into_iter().map(forgive).collect()
    }

    fn rules(self, verb: &str, ends: &[(String, String, Direction)]) -> Vec<NetStep> {
        let line = |direction: &Direction, address: &str| {
            let word = match direction {
                Direction::From => "from",
                Direction::To => "to",
            };
            format!("rule {verb} {word} {address} pref {OFF_PRIORITY} blackhole")
        };
        let v4: Vec<String> = ends.iter().map(|(a4, _, d)| line(d, a4)).collect();
        let v6: Vec<String> = ends.iter().map(|(_, a6, d)| line(d, a6)).collect();
        self.both(&v4, &v6)
    }

    /// In the switch: nothing passes between two nodes any more, in silence.
    pub(crate) fn cut(self, a: usize, b: usize) -> Vec<NetStep> {
        self.cut_rules("add", a, b)
    }

    /// In the switch: undoes `cut`.
    pub(crate) fn heal(self, a: usize, b: usize) -> Vec<NetStep> {
        self.cut_rules("del", a, b)
            .into_iter()
            .map(forgive)
            .collect()
    }

    fn cut_rules(self, verb: &str, a: usize, b: usize) -> Vec<NetStep> {
        let line = |from: String, to: String| {
            format!("rule {verb} from {from} to {to} pref {CUT_PRIORITY} blackhole")
        };
        self.both(
            &[
                line(address4(a), address4(b)),
                line(address4(b), address4(a)),
            ],
            &[
                line(address6(a), address6(b)),
                line(address6(b), address6(a)),
            ],
        )
    }

    /// In the switch: makes the two ends of a cable that has only a rate and an MTU.
    pub(crate) fn make_cable(self, a: usize, b: usize) -> Vec<NetStep> {
        let ends = LinkEnds::cable(a, b);
        let (mac_a, mac_b) = (cable_mac(a, b, 0xa), cable_mac(a, b, 0xb));
        vec![strict(
            "-4",
            &[format!(
                "link add {} address {mac_a} type veth peer name {} address {mac_b}",
                ends.a, ends.b
            )],
        )]
    }

    /// In the switch: sets up the two devices of a link and leads the pair's packets into them.
    pub(crate) fn lead(
        self,
        a: usize,
        b: usize,
        ends: &LinkEnds,
        link: &LinkSettings,
    ) -> Vec<NetStep> {
        let mtu = link.mtu.unwrap_or(1500);
        let network = Network {
            ipv6: self.ipv6 && mtu >= IPV6_MTU_MIN,
        };
        let mut devices = Vec::new();
        for device in [&ends.a, &ends.b] {
            // The kernel's own neighbour chatter would be counted as packets of the link.
            devices.push(format!("link set {device} addrgenmode none"));
            // Long enough that a burst is not lost before the wire gets to see it.
            devices.push(format!("link set {device} txqueuelen 10000 mtu {mtu} up"));
        }
        let mut steps = vec![strict("-4", &devices)];
        if let Some(rate) = link.rate_bits {
            steps.extend([&ends.a, &ends.b].map(|device| rate_step(device, rate, mtu)));
        }
        let cable = ends
            .cable
            .then(|| (cable_mac(a, b, 0xa), cable_mac(a, b, 0xb)));
        let one = Lead {
            from: a,
            to: b,
            device: &ends.a,
            far_mac: cable.as_ref().map(|c| &c.1),
        };
        let back = Lead {
            from: b,
            to: a,
            device: &ends.b,
            far_mac: cable.as_ref().map(|c| &c.0),
        };
        for lead in [one, back] {
            steps.extend(network.lead_one_way(&lead));
        }
        // Where IPv6 cannot pass, it shall vanish rather than take the plain way.
        if self.ipv6 && !network.ipv6 {
            let rules: Vec<String> = [(a, b), (b, a)]
                .iter()
                .flat_map(|(from, to)| {
                    [
                        last_resort(*from, *to),
                        link_rule("add", *from, *to, address6),
                    ]
                })
                .collect();
            steps.push(forgiving("-6", &rules));
        }
        steps
    }

    fn lead_one_way(self, lead: &Lead<'_>) -> Vec<NetStep> {
        let (from, to, device) = (lead.from, lead.to, lead.device);
        let table = table(from, to);
        let way = |gateway: &str| match lead.far_mac {
            Some(_) => {
                format!("route replace default via {gateway} dev {device} onlink table {table}")
            }
            None => format!("route replace default dev {device} table {table}"),
        };
        let neighbour = |gateway: &str| {
            lead.far_mac.map(|mac| {
                format!("neigh replace {gateway} lladdr {mac} dev {device} nud permanent")
            })
        };
        let mut v4: Vec<String> = neighbour(CABLE4).into_iter().collect();
        v4.push(way(CABLE4));
        let mut v6: Vec<String> = neighbour(CABLE6).into_iter().collect();
        v6.push(way(CABLE6));
        let mut steps = self.both(&v4, &v6);
        // The rule comes last, when the table leads somewhere; all of this may exist already.
        let last = [last_resort(from, to), link_rule("add", from, to, address4)];
        steps.push(forgiving("-4", &last));
        if self.ipv6 {
            let last = [last_resort(from, to), link_rule("add", from, to, address6)];
            steps.push(forgiving("-6", &last));
        }
        steps
    }

    /// In the switch: the pair's packets take the plain way again.
    pub(crate) fn unlead(self, a: usize, b: usize) -> Vec<NetStep> {
        let mut steps = Vec::new();
        for (from, to) in [(a, b), (b, a)] {
            let flush = format!("route flush table {}", table(from, to));
            steps.push(forgiving(
                "-4",
                &[link_rule("del", from, to, address4), flush.clone()],
            ));
            if self.ipv6 {
                steps.push(forgiving(
                    "-6",
                    &[link_rule("del", from, to, address6), flush],
                ));
            }
        }
        steps
    }

    /// In the switch: takes a cable away.
    pub(crate) fn drop_cable(self, a: usize, b: usize) -> Vec<NetStep> {
        vec![forgiving(
            "-4",
            &[format!("link del {}", LinkEnds::cable(a, b).a)],
        )]
    }

    fn both(self, v4: &[String], v6: &[String]) -> Vec<NetStep> {
        let mut steps = vec![strict("-4", v4)];
        if self.ipv6 {
            steps.push(strict("-6", v6));
        }
        steps
    }
}

enum Direction {
    From,
    To,
}

struct Lead<'a> {
    from: usize,
    to: usize,
    device: &'a str,
    far_mac: Option<&'a String>,
}

/// The two devices in the switch between which a link's packets are treated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkEnds {
    pub(crate) a: String,
    pub(crate) b: String,
    cable: bool,
}

impl LinkEnds {
    /// Two ends of a veth pair.
    pub(crate) fn cable(a: usize, b: usize) -> LinkEnds {
        LinkEnds {
            a: format!("c{a}-{b}a"),
            b: format!("c{a}-{b}b"),
            cable: true,
        }
    }

    /// Two TUN devices of a wire process.
    pub(crate) fn wire(a: usize, b: usize) -> LinkEnds {
        LinkEnds {
            a: format!("w{a}-{b}a"),
            b: format!("w{a}-{b}b"),
            cable: false,
        }
    }
}

fn table(from: usize, to: usize) -> usize {
    // Nodes are numbered 1 to 32, so the tables do not meet, nor the kernel's own (253 to 255).
    1000 + from * 64 + to
}

fn link_rule(verb: &str, from: usize, to: usize, address: fn(usize) -> String) -> String {
    let (source, target, table) = (address(from), address(to), table(from, to));
    // `iif`: what comes out at the other end of the link must not be sent through it again.
    format!("rule {verb} from {source} to {target} iif v{from} pref {LINK_PRIORITY} lookup {table}")
}

fn last_resort(from: usize, to: usize) -> String {
    format!(
        "route add blackhole default metric {LAST_METRIC} table {}",
        table(from, to)
    )
}

fn cable_mac(a: usize, b: usize, end: u8) -> String {
    format!("02:77:68:{a:02x}:{b:02x}:{end:02x}")
}

fn rate_step(device: &str, rate_bits: u64, mtu: u32) -> NetStep {
    // A burst below the rate of one clock tick (4 ms) or below a packet would never pass.
    let burst = (rate_bits / 8 / 250).max(10 * u64::from(mtu + 14));
    let words = format!(
        "qdisc replace dev {device} root tbf rate {rate_bits}bit burst {burst} latency 50ms"
    );
    NetStep {
        program: "tc".to_owned(),
        arguments: words.split(' ').map(str::to_owned).collect(),
        input: String::new(),
        forgiving: false,
    }
}

fn strict(family: &str, lines: &[String]) -> NetStep {
    NetStep {
        program: "ip".to_owned(),
        arguments: vec![family.to_owned(), "-batch".to_owned(), "-".to_owned()],
        input: lines.join("\n") + "\n",
        forgiving: false,
    }
}

fn forgiving(family: &str, lines: &[String]) -> NetStep {
    forgive(strict(family, lines))
}

fn forgive(mut step: NetStep) -> NetStep {
    step.forgiving = true;
    step.arguments.insert(0, "-force".to_owned());
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_silent_in_both_directions_and_families() {
        let steps = Network { ipv6: true }.cut(1, 2);
        let text: String = steps.iter().map(|s| s.input.as_str()).collect();
        assert_eq!(text.matches("blackhole").count(), 4);
        assert!(text.contains("from 10.99.0.1 to 10.99.0.2"));
        assert!(text.contains("from 10.99.0.2 to 10.99.0.1"));
        assert!(text.contains("from fd99::2 to fd99::1"));
        assert_eq!(Network { ipv6: false }.cut(1, 2).len(), 1);
    }

    #[test]
    fn tables_and_names_do_not_meet() {
        let mut tables: Vec<usize> = (1..=32)
            .flat_map(|a| (1..=32).map(move |b| table(a, b)))
            .collect();
        tables.sort_unstable();
        tables.dedup();
        assert_eq!(tables.len(), 32 * 32);
        assert!(LinkEnds::wire(31, 32).a.len() <= whim_sys::tun::NAME_MAX);
    }
}

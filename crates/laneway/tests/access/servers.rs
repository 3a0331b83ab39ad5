//! What is said of the server, and to whom.

use laneway_wire::request::{ChangeStart, DescribeOptions, GetMetadataChanges, GetStats, OptionScope, Ping};

use crate::accounts::{global, with_user};
use crate::client::Client;

/// Outcomes of statistics, change log and the descriptions of options.
fn outcomes(client: &mut Client) -> [u32; 3] {
    let start = ChangeStart::Latest;
    let changes = GetMetadataChanges { start, since: None, until: None, limit: 1, groups: &[] };
    assert_eq!(client.ask(&Ping {}).outcome(), 0);
    [
        client.ask(&GetStats {}).outcome(),
        client.ask(&changes).outcome(),
        client.ask(&DescribeOptions { scope: OptionScope::Topic }).outcome(),
    ]
}

#[test]
fn statistics_and_changes_need_a_right_and_descriptions_none() {
    // S42, S99, S105
    let (_node, mut root, mut ann) = with_user(2, None);
    assert_eq!(outcomes(&mut ann), [41, 41, 0]);
    assert_eq!(outcomes(&mut root), [0, 0, 0]);
    let reader = global(|global| global.read_servers = true);
    assert_eq!(root.grant("ann", reader).outcome(), 0);
    assert_eq!(outcomes(&mut ann), [0, 41, 0]);
    let manager = global(|global| global.manage_servers = true);
    assert_eq!(root.grant("ann", manager).outcome(), 0);
    assert_eq!(outcomes(&mut ann), [0, 0, 0]);
    let all_but_servers = global(|global| {
        *global = laneway_wire::permissions::Permissions::root().global;
        (global.read_servers, global.manage_servers) = (false, false);
    });
    assert_eq!(root.grant("ann", all_but_servers).outcome(), 0);
    assert_eq!(outcomes(&mut ann), [41, 41, 0]);
}

//! Signing in when somebody guesses. Source: resources, section 13; S53, S54.

use crate::accounts::{PASSWORD, Refused, login, with_user};

/// A guess that is not looked at any more: nothing happened, try again later.
const LATER: Refused = Refused::Rejected(58);
const WRONG: Refused = Refused::Evicted(9);

/// Wrong guesses of one name are not looked at for a while; other names from the same address sign in, and so does the
/// name once the guesses are forgotten.
#[test]
fn guesses_are_damped_and_nobody_else_is() {
    let (node, mut root, _ann) = with_user(2, None);
    root.create_user("bob", None).payload();
    let answers: Vec<_> = (0..40).map(|_| login(node.address(), "ann", "guess").err()).collect();
    let looked_at = answers.iter().filter(|answer| **answer == Some(WRONG)).count();
    assert!((10..=20).contains(&looked_at), "{looked_at} guesses were looked at");
    assert_eq!(answers[39], Some(LATER));
    assert!(login(node.address(), "bob", PASSWORD).is_ok(), "a neighbour signs in");
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while login(node.address(), "ann", PASSWORD).is_err() {
        assert!(std::time::Instant::now() < patience, "the account is not locked");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

/// S53, with the kinds that need a second user: an inactive one, and one that is not there.
#[test]
fn inactive_and_unknown_users_have_the_answer_of_a_wrong_password() {
    let (node, mut root, _ann) = with_user(1, None);
    let inactive = laneway_wire::request::UserStatus::Inactive;
    root.create_user_with("bob", PASSWORD, inactive, None).payload();
    for (username, password) in [("bob", PASSWORD), ("bob", "wrong"), ("carl", PASSWORD), ("ann", "wrong")] {
        assert_eq!(login(node.address(), username, password).err(), Some(WRONG), "{username} {password}");
    }
}

/// A wrong current password is a guess as well.
#[test]
fn guesses_of_a_current_password_are_damped() {
    let (_node, _root, mut ann) = with_user(2, None);
    let answers: Vec<u32> = (0..20).map(|_| ann.change_password("ann", "guess", "new").outcome()).collect();
    assert_eq!((answers[0], answers[19]), (42, 58));
}

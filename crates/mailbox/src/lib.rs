//! Laneway: mailbox.

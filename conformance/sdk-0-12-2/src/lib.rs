//! Kills a broker again and again while clients of the published SDK work, and checks what it acknowledged.

pub mod kill;

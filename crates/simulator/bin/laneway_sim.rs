//! `laneway-sim`: runs simulated clusters.

fn main() {
    println!("laneway-sim: see --help");
}

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the broker under test: `LANEWAY_BIN` when it is set, otherwise the debug build of this repository.
///
/// The debug build is brought up to date once per process: a stale binary would let the suite pass on code that is
/// not there any more, and a fresh one costs a fraction of a second. The build uses the repository's own target
/// folder, also when the caller sets `CARGO_TARGET_DIR` for the package that it runs.
///
/// # Panics
/// When the build fails, or when the file that `LANEWAY_BIN` names does not exist.
pub fn laneway_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("LANEWAY_BIN") {
        Some(named) => {
            let path = PathBuf::from(named);
            assert!(path.is_file(), "LANEWAY_BIN names {}, which is not a file", path.display());
            path
        }
        None => build(&repository_root()),
    })
}

fn build(root: &Path) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", "laneway", "--bin", "laneway"])
        .current_dir(root)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .status()
        .expect("run cargo to build the broker");
    assert!(status.success(), "the broker does not build: {status}");
    let path = root.join("target/debug/laneway");
    assert!(path.is_file(), "cargo built no {}", path.display());
    path
}

/// The folder above `conformance/harness`.
fn repository_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("the package lies two folders below the repository").to_path_buf()
}

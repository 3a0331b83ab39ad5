//! How a person who types commands in the same place names this program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Name of the program where a shell finds it by itself.
const NAME: &str = "laneway";

/// What to type to run this program again: relative to the working directory if it lies below, `laneway` if the search
/// path leads to it, else its whole path.
pub fn program_text() -> String {
    let Ok(program) = std::env::current_exe() else { return NAME.to_owned() };
    text(&program, std::env::current_dir().ok().as_deref(), std::env::var_os("PATH").as_deref())
}

fn text(program: &Path, directory: Option<&Path>, search: Option<&OsStr>) -> String {
    if let Some(below) = directory.and_then(|directory| program.strip_prefix(directory).ok()) {
        return quoted(&PathBuf::from(".").join(below));
    }
    // Another program of the same name would be the wrong one.
    let found = search
        .and_then(|search| std::env::split_paths(search).map(|path| path.join(NAME)).find(|at| at.is_file()));
    match found.and_then(|found| found.canonicalize().ok()) {
        Some(found) if program.canonicalize().is_ok_and(|program| program == found) => NAME.to_owned(),
        _ => quoted(program),
    }
}

/// As a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c)) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_named_as_it_can_be_typed() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("bin").join(NAME);
        std::fs::create_dir(directory.path().join("bin")).unwrap();
        std::fs::write(&program, "").unwrap();
        let search = program.parent().unwrap().as_os_str();
        let elsewhere = Some(Path::new("/nowhere"));
        assert_eq!(text(&program, Some(directory.path()), None), "./bin/laneway");
        assert_eq!(text(&program, elsewhere, Some(search)), "laneway");
        assert_eq!(text(&program, elsewhere, Some(OsStr::new("/nowhere"))), program.display().to_string());
        assert_eq!(text(&program, None, None), program.display().to_string());
    }

    #[test]
    fn another_program_of_the_name_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let (program, other) = (directory.path().join("mine"), directory.path().join(NAME));
        std::fs::write(&program, "").unwrap();
        std::fs::write(&other, "").unwrap();
        let search = directory.path().as_os_str();
        assert_eq!(text(&program, None, Some(search)), program.display().to_string());
    }

    #[test]
    fn blanks_and_quotes_stay_one_word() {
        assert_eq!(quoted(Path::new("/a b/it's")), "'/a b/it'\\''s'");
    }
}

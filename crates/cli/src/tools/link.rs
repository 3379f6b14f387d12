//! `bitacora tools link DIR`: a link for every tool, under its own name and with `.sh`, so that scripts and habits that
//! name Kafka's tools work unchanged.
//!
//! Links that are there are set anew; a file that is no link stops everything before anything is changed. A crash
//! leaves some links, and a second run sets the rest.

use std::path::{Path, PathBuf};

use crate::io::{End, Io};

/// Served by the program itself, not by this crate.
const SERVER_START: &str = "kafka-server-start";

const USAGE: &str = "USAGE: bitacora tools link DIR";

pub fn run(arguments: &[String], io: &mut Io) -> Result<(), End> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["link", directory] => {
            let program = std::env::current_exe().map_err(|error| {
                End::message(format!("Error: cannot tell where this program is: {error}"))
            })?;
            let count = link(Path::new(directory), &program).map_err(End::Message)?;
            io.line(format!("{count} links to {} in {directory}", program.display()));
            Ok(())
        }
        _ => {
            io.error_line(USAGE);
            io.error_line(format!(
                "Puts a link for every Kafka tool into DIR: {}, each also with .sh",
                super::names().chain([SERVER_START]).collect::<Vec<_>>().join(", ")
            ));
            Err(End::code(1))
        }
    }
}

/// Sets the links; gives their number.
fn link(directory: &Path, program: &Path) -> Result<usize, String> {
    let fail = |path: &Path, error: std::io::Error| format!("Error: {}: {error}", path.display());
    std::fs::create_dir_all(directory).map_err(|error| fail(directory, error))?;
    let names = super::names().chain([SERVER_START]);
    let links: Vec<PathBuf> =
        names.flat_map(|name| [directory.join(name), directory.join(format!("{name}.sh"))]).collect();
    for path in &links {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_symlink() => {
                return Err(format!(
                    "Error: {} exists and is not a link; remove it or choose another directory",
                    path.display()
                ));
            }
            Ok(_) => std::fs::remove_file(path).map_err(|error| fail(path, error))?,
            Err(_) => {}
        }
    }
    for path in &links {
        std::os::unix::fs::symlink(program, path).map_err(|error| fail(path, error))?;
    }
    Ok(links.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_gets_two_links_and_files_are_left_alone() {
        let directory = std::env::temp_dir().join(format!("bitacora-links-{}", std::process::id()));
        let program = Path::new("/bin/bitacora");
        let count = link(&directory, program).unwrap();
        assert_eq!(count, 2 * (super::super::names().count() + 1));
        assert_eq!(link(&directory, program).unwrap(), count);
        let linked = |name: &str| std::fs::read_link(directory.join(name)).unwrap();
        assert_eq!(linked("kafka-topics"), program);
        assert_eq!(linked("kafka-topics.sh"), program);
        std::fs::remove_file(directory.join("kafka-topics")).unwrap();
        std::fs::write(directory.join("kafka-topics"), "mine").unwrap();
        assert!(link(&directory, program).unwrap_err().contains("kafka-topics exists"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

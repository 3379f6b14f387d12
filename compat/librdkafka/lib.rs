//! Nothing: the package exists for its lock file.

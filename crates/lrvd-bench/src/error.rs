//! Errors are chains of messages. A [`Kind`] marks what a caller answers in its own way.

use std::{fmt, io};

pub use anyhow::Error;
use anyhow::anyhow;
use lrvd_models::Error as ModelsError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) type Burn<T> = Result<T, lrvd_burn::Error>;

/// Property of an error that an exit code, an HTTP status or a caller's next step depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A data directory has no files of a task.
    NotFound,
    /// A merged model's logits are not those of base and adapter.
    Differs,
    /// A stop request ended training, prediction or generation.
    Stopped,
    /// An adapter was trained on another base model, or on one that was held in another way.
    OtherBase,
    /// The model cannot read an input.
    Input,
    /// The model has no chat template, and an input is a conversation.
    NoTemplate,
    /// The hub, a disk or a file server cannot do now what a later start may find possible.
    Unavailable,
    /// Another process writes into the folder.
    InUse,
}

/// An error with a kind. Message and causes are the error's.
#[derive(Debug)]
struct KindError {
    kind: Kind,
    error: Error,
}

impl fmt::Display for KindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for KindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl Kind {
    pub(crate) fn mark(self, error: impl Into<Error>) -> Error {
        Error::new(KindError { kind: self, error: error.into() })
    }
}

/// The error of `missing` threads that the system does not start.
pub fn no_threads(missing: usize, source: impl Into<Error>) -> Error {
    let end = if missing == 1 { "" } else { "s" };
    source.into().context(format!(
        "cannot start {missing} more thread{end}: raise the limit of processes (`ulimit -u`, `pids.max` of a container), or \
         set `--threads` or `RAYON_NUM_THREADS` to fewer"
    ))
}

/// The kind of the error or of its nearest cause that has one.
pub fn kind_of(error: &Error) -> Option<Kind> {
    let of = |cause: &(dyn std::error::Error + 'static)| {
        if let Some(marked) = cause.downcast_ref::<KindError>() {
            return Some(marked.kind);
        }
        match cause.downcast_ref() {
            Some(lrvd_burn::Error::Stopped) => return Some(Kind::Stopped),
            Some(lrvd_burn::Error::InUse { .. }) => return Some(Kind::InUse),
            _ => {}
        }
        cause.downcast_ref().filter(|error| is_of_the_machine(error)).map(|_| Kind::Unavailable)
    };
    error.chain().find_map(of)
}

/// `true` if the state of a disk, a server or the system is the reason (no space, quota, input/output error, stale handle,
/// timeout), `false` if the path is (no such file, no permission, not a folder).
fn is_of_the_machine(error: &io::Error) -> bool {
    use io::ErrorKind as Reason;
    let is_of_the_path = matches!(
        error.kind(),
        Reason::NotFound
            | Reason::PermissionDenied
            | Reason::ReadOnlyFilesystem
            | Reason::AlreadyExists
            | Reason::NotADirectory
            | Reason::IsADirectory
            | Reason::DirectoryNotEmpty
            | Reason::CrossesDevices
            | Reason::InvalidFilename
            | Reason::InvalidInput
            | Reason::Unsupported
            | Reason::BrokenPipe
    );
    // Errors of parsers, such as a file that ends too early, have no number of the system.
    error.raw_os_error().is_some() && !is_of_the_path
}

/// The error of what needs a feature of this program that was left out of it.
pub fn left_out(feature: &str) -> Error {
    anyhow!(
        "this program was built without its feature `{feature}`: `cargo install --path crates/lrvd-cli` installs it with all \
         that it usually has, `--features {feature}` adds this one to a build"
    )
}

/// Why the model cannot read an input, in words that name no place of this machine; `None` if the input did not cause the error.
pub fn unreadable(error: &Error) -> Option<String> {
    match (error.downcast_ref(), kind_of(error)) {
        (Some(ModelsError::Text(text)), _) => Some(text.clone()),
        // Not the tokenizer's file.
        (Some(ModelsError::Tokenizer { .. } | ModelsError::Argument { .. }), _) => {
            Some("the tokenizer cannot encode it".to_owned())
        }
        (_, Some(Kind::Input)) => Some(error.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_below_context() {
        let marked = || Kind::Input.mark(anyhow!("cause").context("message"));
        assert_eq!(kind_of(&anyhow!("message")), None);
        assert_eq!(format!("{:#}", marked()), "message: cause");
        for error in [marked(), marked().context("outer")] {
            assert_eq!(kind_of(&error), Some(Kind::Input), "{error:#}");
        }
        let stopped = Error::from(lrvd_burn::Error::Stopped);
        assert_eq!(kind_of(&stopped), Some(Kind::Stopped));
    }

    /// Numbers of `errno.h` on Linux.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_unavailable_and_a_missing_file_is_not() {
        let (eio, enospc, etimedout, estale, edquot) = (5, 28, 110, 116, 122);
        let (enoent, eacces, eexist, enotdir, eisdir, einval, erofs) = (2, 13, 17, 20, 21, 22, 30);
        let unavailable = Some(Kind::Unavailable);
        let expected = [eio, enospc, etimedout, estale, edquot].map(|number| (number, unavailable));
        let paths = [enoent, eacces, eexist, enotdir, eisdir, einval, erofs];
        for (number, expected) in expected.into_iter().chain(paths.map(|number| (number, None))) {
            let source = || io::Error::from_raw_os_error(number);
            let path = std::path::Path::new("out");
            for error in [
                crate::io::cannot("write", path)(source()),
                lrvd_burn::Error::io("write", path, source()).into(),
                lrvd_models::Error::Read { file: path.into(), source: source() }.into(),
            ] {
                assert_eq!(kind_of(&error), expected, "{error:#}");
            }
        }
        assert_eq!(kind_of(&io::Error::from(io::ErrorKind::UnexpectedEof).into()), None);
    }
}

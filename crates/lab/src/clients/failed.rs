//! Why a hunt ended before its time: by what it found, or by what it lacks.

/// Why a hunt did not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// What it needs is not there: memory, a program, rights. Nothing was found.
    Unable(String),
    /// A promise was broken.
    Violation(String),
}

impl From<String> for Failed {
    fn from(what: String) -> Self {
        Self::Violation(what)
    }
}

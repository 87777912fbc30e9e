//! How a file is opened, in the manner of `std::fs::OpenOptions`.

/// Access and creation flags of [`crate::Files::open`]; all are off at first.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is one O_ flag, independent of the others")]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) sync: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) directory: bool,
    pub(crate) no_follow: bool,
    pub(crate) unnamed: bool,
    pub(crate) mode: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            sync: false,
            truncate: false,
            create: false,
            create_new: false,
            directory: false,
            no_follow: false,
            unnamed: false,
            mode: 0o666,
        }
    }
}

impl OpenOptions {
    /// Nothing switched on, mode 0666 for a file that is made.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads are allowed.
    #[must_use]
    pub fn read(self, on: bool) -> Self {
        Self { read: on, ..self }
    }

    /// Writes are allowed.
    #[must_use]
    pub fn write(self, on: bool) -> Self {
        Self { write: on, ..self }
    }

    /// Writes are allowed, and each goes to the end of the file (`O_APPEND`).
    #[must_use]
    pub fn append(self, on: bool) -> Self {
        Self { append: on, write: on || self.write, ..self }
    }

    /// Each write is durable when it returns, in mode buffered too, with all that was written to the file
    /// before (`O_DSYNC`, `O_SYNC`).
    #[must_use]
    pub fn sync(self, on: bool) -> Self {
        Self { sync: on, ..self }
    }

    /// The file is emptied (`O_TRUNC`).
    #[must_use]
    pub fn truncate(self, on: bool) -> Self {
        Self { truncate: on, ..self }
    }

    /// A missing file is made (`O_CREAT`).
    #[must_use]
    pub fn create(self, on: bool) -> Self {
        Self { create: on, ..self }
    }

    /// The file is made and must not exist, not as a dangling link either (`O_CREAT | O_EXCL`).
    #[must_use]
    pub fn create_new(self, on: bool) -> Self {
        Self { create_new: on, ..self }
    }

    /// It must be a directory (`O_DIRECTORY`).
    #[must_use]
    pub fn directory(self, on: bool) -> Self {
        Self { directory: on, ..self }
    }

    /// It must not be a symbolic link (`O_NOFOLLOW`).
    #[must_use]
    pub fn no_follow(self, on: bool) -> Self {
        Self { no_follow: on, ..self }
    }

    /// The path leads to a directory, and a file without a name is made there (`O_TMPFILE`), for
    /// writing. [`crate::Files::link_file`] gives it one, unless [`OpenOptions::create_new`] is on too
    /// (`O_EXCL`); otherwise it goes when it is closed.
    #[must_use]
    pub fn unnamed(self, on: bool) -> Self {
        Self { unnamed: on, ..self }
    }

    /// Permission bits of a file that is made.
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        Self { mode: mode & 0o7777, ..self }
    }
}

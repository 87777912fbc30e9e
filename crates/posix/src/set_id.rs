//! When a change takes set-id bits from a file, as Linux does it on its own file systems: a write, a
//! truncation, `fallocate` and a copy where the caller lacks `CAP_FSETID`, a change of owner always.

use novale_core::{Attr, ClearSetId, Ctx, Error, FileKind, Fs, SetAttr};

/// The bits of a mode that say set-uid and set-gid.
pub const SET_ID: u32 = 0o6000;

/// Who changes a file, as far as its set-id bits go by that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changer {
    /// Whether it has `CAP_FSETID`: it may keep the bits alive.
    pub has_fsetid: bool,
    /// Whether it is in the file's group: it may keep a set-gid bit that is no program's.
    pub is_in_group: bool,
}

impl Changer {
    /// The administrator.
    pub const PRIVILEGED: Self = Self { has_fsetid: true, is_in_group: true };

    /// What a change of contents takes.
    fn of_contents(self) -> ClearSetId {
        match (self.has_fsetid, self.is_in_group) {
            (true, _) => ClearSetId::Nothing,
            (false, true) => ClearSetId::Executable,
            (false, false) => ClearSetId::All,
        }
    }

    /// What a change of owner takes: the bits of programs from everybody, others as a change of contents.
    fn of_owner(self) -> ClearSetId {
        match self.of_contents() {
            ClearSetId::All => ClearSetId::All,
            ClearSetId::Nothing | ClearSetId::Executable => ClearSetId::Executable,
        }
    }

    /// Whether a change of owner takes bits away.
    #[must_use]
    pub fn owning_takes(self, attr: &Attr) -> bool {
        attr.kind != FileKind::Directory && self.of_owner().taken_from(attr.mode) != 0
    }

    /// Takes the bits away before contents are changed, in a commit of its own, where there are any.
    ///
    /// # Errors
    /// Those of [`Fs::setattr`].
    pub fn before_write(self, fs: &Fs, ctx: &Ctx, attr: &Attr) -> Result<(), Error> {
        let clear_set_id = self.of_contents();
        let falls = clear_set_id != ClearSetId::Nothing && attr.kind == FileKind::File;
        if falls && attr.mode & SET_ID != 0 {
            fs.setattr(ctx, attr.node(), &SetAttr { clear_set_id, ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// A change of attributes with what it takes: by its new owner or group, else by its new size.
    #[must_use]
    pub fn changing(self, changes: &SetAttr) -> SetAttr {
        if changes.uid.is_some() || changes.gid.is_some() {
            return self.owning(changes);
        }
        match changes.size {
            Some(_) => SetAttr { clear_set_id: self.of_contents(), ..*changes },
            None => *changes,
        }
    }

    /// A change of owner, which may give the owner that there is.
    #[must_use]
    pub fn owning(self, changes: &SetAttr) -> SetAttr {
        SetAttr { clear_set_id: self.of_owner(), ..*changes }
    }
}

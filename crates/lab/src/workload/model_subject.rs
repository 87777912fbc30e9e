//! The model as a subject: it runs steps itself.

use std::collections::BTreeMap;

use novale_model::{Ino, Model};

use super::bytes::fill_bytes;
use super::step::Action;
use super::subject::{Entry, Failure, Op, Outcome, Subject};

impl Subject for Model {
    fn apply(&mut self, op: &Op<'_>, now: i64) -> Result<Outcome, Failure> {
        let shown = match *op {
            Op::Lookup { parent, name } => Outcome::Attr(Self::lookup(self, parent, name)?),
            Op::Create { parent, name, new } => Outcome::Attr(self.create(parent, name, new, now)?),
            Op::CreateUnnamed { dir, new } => Outcome::Attr(self.create_unnamed(dir, new, now)?),
            Op::Link { ino, parent, name } => Outcome::Attr(self.link(ino, parent, name, now)?),
            Op::Copy { from, to, len } => {
                Outcome::Number(self.copy(from, to, len as usize, now)?)
            }
            Op::On { ino, action } => return on(self, ino, action, now),
            Op::Unlink { parent, name } => done(self.unlink(parent, name, now)?),
            Op::Rmdir { parent, name } => done(self.rmdir(parent, name, now)?),
            Op::Rename { from, to, mode } => done(self.rename(from, to, mode, now)?),
            Op::Hold(ino) => done(self.hold(ino)?),
            Op::Release(ino) => {
                self.release(ino, 1);
                Outcome::Done
            }
            Op::Map(ino) => done(self.map(ino)?),
            Op::Unmap(ino) => {
                self.unmap(ino);
                Outcome::Done
            }
        };
        Ok(shown)
    }

    fn limits(&mut self) -> Result<BTreeMap<u32, u64>, Failure> {
        Ok(Self::limits(self).clone())
    }
}

fn done((): ()) -> Outcome {
    Outcome::Done
}

fn on(model: &mut Model, ino: Ino, action: &Action, now: i64) -> Result<Outcome, Failure> {
    let shown = match action {
        Action::Stat => Outcome::Attr(model.getattr(ino)?),
        Action::Set(set) => Outcome::Attr(model.setattr(ino, set, now)?),
        Action::Readlink => Outcome::Bytes(model.readlink(ino)?),
        Action::Read { offset, len } => {
            Outcome::Bytes(model.read(ino, *offset, *len as usize, now)?)
        }
        Action::Write { offset, len, fill } => {
            let bytes = fill_bytes(*fill, *len as usize);
            Outcome::Number(model.write(ino, *offset, &bytes, now)? as u64)
        }
        Action::Append { len, fill } => {
            Outcome::Number(model.append(ino, &fill_bytes(*fill, *len as usize), now)?)
        }
        Action::Store { offset, len, fill } => {
            done(model.store(ino, *offset, &fill_bytes(*fill, *len as usize), now)?)
        }
        Action::Flush { page, pages } => done(model.flush(ino, *page, *pages, now)?),
        Action::Scatter { .. } => done(model.write_scattered(ino, &action.pieces(), now)?),
        Action::Allocate { extend, offset, len } => {
            done(model.fallocate(ino, *extend, *offset, *len, now)?)
        }
        Action::Range { how, offset, len } => done(model.range(ino, *how, *offset, *len, now)?),
        // The model does not tell data from holes; it only refuses what has neither.
        Action::Seek { .. } => {
            model.is_zero(ino, 0, 0)?;
            Outcome::Done
        }
        Action::List { .. } => {
            let entry = |(name, ino)| {
                let kind = model.getattr(ino)?.kind;
                Ok(Entry { name, ino, kind })
            };
            let entries: Result<_, Failure> = model.readdir(ino)?.into_iter().map(entry).collect();
            Outcome::Entries(entries?)
        }
        Action::SetXattr { name, value, mode } => {
            done(model.setxattr(ino, name, &value.bytes(), *mode, now)?)
        }
        Action::GetXattr(name) => Outcome::Bytes(model.getxattr(ino, name)?),
        Action::RemoveXattr(name) => done(model.removexattr(ino, name, now)?),
        Action::ListXattr => Outcome::Bytes(model.listxattr(ino)?.join(&0)),
        Action::Limit { inodes } => done(model.limit(ino, *inodes, now)?),
        Action::Parent => Outcome::Ino(model.parent(ino)?),
        Action::Leave { .. } => Outcome::Done,
        Action::Sync => {
            model.sync(ino);
            model.getattr(ino)?;
            Outcome::Done
        }
    };
    Ok(shown)
}

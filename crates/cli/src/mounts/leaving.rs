//! A slot that goes without being asked for again: it was emptied while its pool was in use, or its removal was
//! cut off. Who mounts the pool for writing, and a daemon that has closed it, end that, if nobody has it open.

use std::path::PathBuf;

use anyhow::Result;
use novale_pm::PmOptions;
use novale_posix::slots::{self as changing, Helpers};

use crate::base::progress::{AllCpus, Bar};
use crate::pools::locked::PoolLock;
use crate::pools::slots::{self, is_gone, without};

/// Ends the removal of a slot that was emptied while the pool was in use, or that was cut off, unless `lock`
/// says that somebody has the pool open; returns the slots that are left, of which the pool consists.
pub(crate) fn finish(
    given: &[PathBuf],
    lock: impl FnOnce(&[PathBuf]) -> Result<Option<PoolLock>>,
) -> Result<Vec<PathBuf>> {
    let pool = without_gone(slots::absolute(given)?);
    if !is_unfinished(&pool) {
        return Ok(pool);
    }
    let Some(lock) = lock(&pool)? else { return Ok(pool) };
    let only = lock.files()?;
    // Before the lock another call may have ended it, had the slot stay, or made a new pool.
    let pool = without_gone(pool);
    let Ok(Some(old)) = changing::going(&pool) else { return Ok(pool) };
    with_bar(&only, |helpers| Ok(changing::remove(&pool, &old, helpers)?))?;
    let others = without(&pool, &old);
    settle(&others, &only);
    remark!("novale: {} was emptied, and is no slot of the pool any more", old.display());
    Ok(others)
}

/// The slots less those that are none any more, where that is a whole pool.
fn without_gone(pool: Vec<PathBuf>) -> Vec<PathBuf> {
    let (gone, left): (Vec<_>, Vec<_>) = pool.iter().cloned().partition(|path| is_gone(path));
    if gone.is_empty() || slots::find(&left).is_err() {
        return pool;
    }
    for slot in gone {
        remark!("novale: {} is no slot of the pool any more: leave it out", slot.display());
    }
    left
}

/// Whether [`finish`] has something to do for these slots.
pub(crate) fn is_unfinished(pool: &[PathBuf]) -> bool {
    changing::going(pool).is_ok_and(|going| going.is_some())
}

/// Has the pool say what is free. It is whole without that.
pub(crate) fn settle(pool: &[PathBuf], only: &[(u64, u64)]) {
    if let Err(error) = with_bar(only, |helpers| Ok(changing::settle(pool, helpers)?)) {
        remark!("novale: what is free is known after the next mount: {error:#}");
    }
}

/// Does something with slots, in `only` those files.
pub(crate) fn with_bar<T>(
    only: &[(u64, u64)],
    act: impl FnOnce(&Helpers<'_>) -> Result<T>,
) -> Result<T> {
    let bar = Bar::new();
    act(&Helpers {
        exec: &AllCpus,
        progress: &|progress| bar.show(progress),
        mapping: &|_| PmOptions { only: only.to_vec(), ..PmOptions::default() },
        given_up: &|| {
            remark!(
                "novale: the pool was changed since all who used it were killed; what they had only buffered is given up"
            );
        },
    })
}

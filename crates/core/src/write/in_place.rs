//! Writes over old bytes, without a copy of them: to files whose own pages programs have mapped, and where
//! the policy says so (PMFS's way, the baseline of the papers).
//!
//! Crash points: as [`crate::map::fill`] says. Size, times and new pages are all or nothing; of the old
//! bytes each aligned unit of 8 is the old one or the new one. Before they change, no data checksum that
//! recovery may ask for covers them: a certificate is durable, where the line that stands has one. A file
//! that is mapped needs none, since its mapping has seen to that.

use crate::base::error::{Error, Result};
use crate::fs::Fs;
use crate::map::fill::{Bytes, InPlace};
use crate::op::call::Call;
use crate::op::commit::Rest;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::write::plan::FILE_BYTES_MAX;

impl Fs {
    /// Writes bytes that nobody else changes any more.
    pub(crate) fn write_in_place(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        let view = &locked.view;
        if view.is_summed() && !view.is_dax() && !seeded::is_on(Bug::InPlaceNotCertified) {
            self.commit(call, locked, &mut locked.next_state(), Rest::Nothing, || Ok(()))?;
        }
        let bytes = Bytes::Given(data);
        let change = InPlace { offset, end, bytes, fills: true, extends: true };
        self.change_in_place(call, locked, &change)
    }
}

//! A map from name hashes to small values, for directories of any size.

//! What belongs to another pool, inode, generation or place is refused, for the checksum alone.

use novale_layout::LayoutError;
use proptest::prelude::*;

use crate::structures::{Structure, for_each_structure, housed};

macro_rules! foreign {
    ($name:ident, $type:ty) => {
        proptest! {
            #[test]
            fn $name((home, value) in housed::<$type>()) {
                let bytes = Structure::encode(&value, &home);
                for part in <$type>::SEED {
                    let elsewhere = home.elsewhere(*part);
                    let decoded = <$type as Structure>::decode(&bytes, &elsewhere);
                    let refused = matches!(decoded, Err(LayoutError::Checksum { .. }));
                    prop_assert!(refused, "another {:?}: {:?}", part, decoded);
                }
            }
        }
    };
}

for_each_structure!(foreign);

//! Declares raw on-media structures, each field beside its offset; lines that hold none.

/// Whether a line is all zeros. Asked of each line that is read.
#[inline]
pub(crate) fn is_zero(line: &[u8; 64]) -> bool {
    let (words, _) = line.as_chunks::<8>();
    words.iter().fold(0, |all, word| all | u64::from_le_bytes(*word)) == 0
}

/// Declares a raw structure and asserts its size, its alignment and the offset of every field.
///
/// It also lists the fields, so that bytes can be shown by them, and `docs/SPEC.md` compared.
macro_rules! raw {
    (
        $(#[$meta:meta])*
        struct $name:ident, $title:literal, $size:literal {
            $($offset:literal $field:ident: $ty:ty,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone,
            Copy,
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::Immutable,
            zerocopy::KnownLayout,
            zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $ty,)+
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == 1);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)+
        };

        impl crate::fields::Listed for $name {
            const TITLE: &str = $title;
            const FIELDS: &[crate::Field] = &[$(crate::Field {
                name: stringify!($field),
                offset: std::mem::offset_of!($name, $field),
                bytes: size_of::<$ty>(),
            },)+];
        }
    };
}

//! Declares raw on-media structures, each field beside its offset.

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

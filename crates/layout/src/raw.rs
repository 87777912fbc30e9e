//! Declares raw on-media structures, each field beside its offset.

/// Declares a raw structure and asserts its size, its alignment and the offset of every field.
///
/// Under test it also lists the fields, so that `docs/SPEC.md` can be compared with them.
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

        #[cfg(test)]
        impl $name {
            /// The structure's title in `docs/SPEC.md`, its size, and (name, offset, size) a field.
            pub(crate) const TABLE: (&'static str, usize, &'static [(&'static str, usize, usize)]) = (
                $title,
                size_of::<$name>(),
                &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$ty>()),)+],
            );
        }
    };
}

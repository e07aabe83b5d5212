//! The macro that defines kernels.

/// Defines a kernel `$name`, and beside it `$plain`, its body: `$plain::<false>` is what processors without AVX2 run.
/// The body may ask `FUSED`: true where fused multiplication and addition is an instruction.
macro_rules! kernel {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident / $plain:ident ($($argument:ident: $type:ty),+ $(,)?) $(-> $result:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[cfg(not(feature = "portable"))]
        #[multiversion::multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx2+fma", "x86_64+avx2+fma"))]
        $vis fn $name($($argument: $type),+) $(-> $result)? {
            $plain::<{ multiversion::target::target_cfg_f!(target_feature = "fma") }>($($argument),+)
        }

        $(#[$meta])*
        #[cfg(feature = "portable")]
        $vis fn $name($($argument: $type),+) $(-> $result)? {
            $plain::<false>($($argument),+)
        }

        #[inline(always)]
        fn $plain<const FUSED: bool>($($argument: $type),+) $(-> $result)? $body
    };
}

pub(crate) use kernel;

//! Loops compiled for the vector units of the machine they run on.

/// Declares functions whose bodies are compiled for every vector width, the widest of the machine chosen at run time.
///
/// Code is compiled for another width only as part of the body: what its loops call must be marked
/// `#[inline(always)]`, closures of more than a few operations cannot. The results are the same bits for every width:
/// products and sums are never contracted, and reductions have a fixed number of lanes.
macro_rules! wide {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident<'a, E $(, $other:ident: $bound:path)?>($($argument:ident: $type:ty),+ $(,)?)
            $(-> $result:ty)? $body:block
    )+) => {$(
        $(#[$attribute])*
        $visibility fn $name<'a, E: $crate::ops::cpu::Real $(, $other: $bound)?>(
            $($argument: $type),+
        ) -> $crate::ops::cpu::wide!(@result $($result)?) {
            struct Task<'a, E $(, $other: $bound)?> {
                $($argument: $type,)+
                $(kind: std::marker::PhantomData<$other>,)?
            }
            impl<'a, E: $crate::ops::cpu::Real $(, $other: $bound)?> pulp::NullaryFnOnce
                for Task<'a, E $(, $other)?>
            {
                type Output = $crate::ops::cpu::wide!(@result $($result)?);

                #[inline(always)]
                fn call(self) -> Self::Output {
                    let Self { $($argument,)+ .. } = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Task::<'a, E $(, $other)?> {
                $($argument,)+
                $(kind: std::marker::PhantomData::<$other>,)?
            })
        }
    )+};
    (@result) => { () };
    (@result $result:ty) => { $result };
}
pub(crate) use wide;

#[cfg(test)]
mod tests {
    use crate::ops::cpu::{Real, sum};

    fn narrow<E: Real>(x: &[E], out: &mut [E]) -> E {
        for (out, &x) in out.iter_mut().zip(x) {
            let (distribution, density) = x.normal();
            *out = x * distribution + density;
        }
        sum(out)
    }

    super::wide! {
        fn broad<'a, E>(x: &'a [E], out: &'a mut [E]) -> E {
            for (out, &x) in out.iter_mut().zip(x) {
                let (distribution, density) = x.normal();
                *out = x * distribution + density;
            }
            sum(out)
        }
    }

    #[test]
    fn wide_vectors_give_the_same_bits() {
        let x: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.0) * 0.013).collect();
        let (mut one, mut other) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let total = narrow(&x, &mut one);
        assert_eq!(total.to_bits(), broad(&x, &mut other).to_bits());
        assert_eq!(one, other);
    }
}

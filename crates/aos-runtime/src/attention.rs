//! Attention of one token over the pages of one process.
//!
//! Start at [`attend`]. What always holds: sums are taken in the same order however many tokens are read at once, so that
//! a prompt gives the same numbers whole and in pieces. The loops are plain Rust; `pulp` compiles them for the vector
//! units that the processor at hand has.

use std::cell::RefCell;

use crate::kv::PAGE;

/// Numbers summed side by side: a register of the widest vector unit.
const LANES: usize = 16;

thread_local! {
    /// Weights of all positions for one head.
    static WEIGHTS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static ARCH: pulp::Arch = pulp::Arch::new();
}

/// What the heads of `query` see in the first `seen` positions, into `out`; `heads` counts those of queries and of keys.
pub(crate) fn attend<'p>(
    query: &[f32],
    pages: impl Iterator<Item = (&'p [f32], &'p [f32])>,
    seen: usize,
    (heads, kv_heads): (usize, usize),
    out: &mut [f32],
) {
    let pages: Vec<(&[f32], &[f32])> = pages.take(seen.div_ceil(PAGE)).collect();
    let arch = ARCH.with(|arch| *arch);
    WEIGHTS.with_borrow_mut(|weights| {
        weights.resize(seen, 0.0);
        let head = query.len() / heads;
        for nth in 0..heads {
            let of = nth * head..(nth + 1) * head;
            let shared = nth * kv_heads / heads * head;
            let (query, out, width) = (&query[of.clone()], &mut out[of], head * kv_heads);
            arch.dispatch(
                #[inline(always)]
                || one(query, &pages, weights, width, shared, out),
            );
        }
    });
}

#[inline(always)]
fn one(query: &[f32], pages: &[(&[f32], &[f32])], weights: &mut [f32], width: usize, shared: usize, out: &mut [f32]) {
    let head = query.len();
    let scale = (head as f32).sqrt().recip();
    let mut most = f32::NEG_INFINITY;
    for ((keys, _), weights) in pages.iter().zip(weights.chunks_mut(PAGE)) {
        for (key, weight) in keys.chunks_exact(width).zip(weights) {
            *weight = dot(query, &key[shared..shared + head]) * scale;
            most = most.max(*weight);
        }
    }
    let mut sum = 0.0;
    for weight in weights.iter_mut() {
        *weight = (*weight - most).exp();
        sum += *weight;
    }
    out.fill(0.0);
    for ((_, values), weights) in pages.iter().zip(weights.chunks(PAGE)) {
        for (value, weight) in values.chunks_exact(width).zip(weights) {
            let value = &value[shared..shared + head];
            out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
        }
    }
    let scale = sum.recip();
    out.iter_mut().for_each(|out| *out *= scale);
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition, in double precision.
    #[test]
    fn it_is_the_weighted_mean_of_the_values() {
        let (heads, kv_heads, head, seen) = (4, 2, 24, PAGE + 9);
        let mut random = fastrand::Rng::with_seed(3);
        let mut numbers = |count: usize| -> Vec<f32> { (0..count).map(|_| random.f32() * 2.0 - 1.0).collect() };
        let width = kv_heads * head;
        let (query, keys, values) = (numbers(heads * head), numbers(2 * PAGE * width), numbers(2 * PAGE * width));
        let pages = keys.chunks_exact(PAGE * width).zip(values.chunks_exact(PAGE * width));
        let mut out = vec![9.0; heads * head];
        attend(&query, pages, seen, (heads, kv_heads), &mut out);
        for nth in 0..heads {
            let at = |of: &[f32], position: usize, i: usize| f64::from(of[position * width + nth / 2 * head + i]);
            let weights: Vec<f64> = (0..seen)
                .map(|position| {
                    let dot: f64 = (0..head).map(|i| f64::from(query[nth * head + i]) * at(&keys, position, i)).sum();
                    (dot / (head as f64).sqrt()).exp()
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            for i in 0..head {
                let want: f64 = (0..seen).map(|position| weights[position] / sum * at(&values, position, i)).sum();
                assert!((want - f64::from(out[nth * head + i])).abs() < 1e-5, "head {nth}, number {i}");
            }
        }
    }
}

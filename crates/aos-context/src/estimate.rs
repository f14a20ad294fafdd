//! How many tokens a text takes, before and after a provider has been heard.

use aos_abi::inference::{Message, Part};
use serde::{Deserialize, Serialize};

/// Bytes of text counted as one token. English prose has about four characters a token with the tokenizers of OpenAI
/// ("What are tokens and how to count them", OpenAI help centre), code and JSON nearer to three; three errs on the safe
/// side. [`Calibration`] corrects the rest.
pub(crate) const BYTES_PER_TOKEN: u64 = 3;
/// Tokens that frame one message: the OpenAI cookbook ("How to count tokens with tiktoken") counts three, and one for a
/// name.
const TOKENS_PER_ITEM: u64 = 4;
/// Bytes of overhead that an item is counted with where space is shared out in bytes: its frame, and what rounding up
/// to a whole token can add.
pub(crate) const FRAME_BYTES: usize = 14;
/// Tokens of one image, a page-sized one: between the 765 and 1,600 that providers charge for about a megapixel.
pub(crate) const IMAGE_TOKENS: u64 = 1600;

/// Tokens of one item of so many bytes, estimated.
#[must_use]
pub fn estimate(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN) + TOKENS_PER_ITEM
}

/// Tokens of one message of a prompt, estimated: each part of a user message is an item, and so is each native call.
#[must_use]
pub fn message_tokens(message: &Message) -> u64 {
    match message {
        Message::User(parts) => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => estimate(text.len()),
                Part::Image { .. } => IMAGE_TOKENS,
            })
            .sum(),
        Message::Assistant { text, calls } => {
            let of_calls: u64 =
                calls.iter().map(|call| estimate(call.id.len() + call.name.len() + call.arguments.len())).sum();
            estimate(text.len()) + of_calls
        }
        Message::Result { call_id, name, content } => estimate(call_id.len() + name.len() + content.len()),
    }
}

/// How the estimates of one model compare to what its provider reports. Integer arithmetic, so that replay computes the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// Real tokens per estimated one, in 1024ths. Changed by [`Calibration::observe`] and [`Calibration::too_long`].
    ratio: u32,
}

const ONE: u64 = 1024;
const RATIO_MIN: u64 = ONE / 2;
/// A tokenizer of single bytes has three tokens where the estimate has one; the local model's is nearly that.
const RATIO_MAX: u64 = ONE * 4;
/// Prompts below this say more about their frame than about their text.
const OBSERVED_TOKENS_MIN: u64 = 64;

impl Default for Calibration {
    fn default() -> Self {
        Calibration { ratio: ONE as u32 }
    }
}

impl Calibration {
    /// Learns from one inference: `estimated` is what [`Calibration::apply`] gave for its prompt, `actual` what the
    /// provider counted, cached tokens included. Moves half of the way up and an eighth of the way down, since too low
    /// an estimate costs a refused prompt and too high a one only room.
    pub fn observe(&mut self, estimated: u64, actual: u64) {
        if estimated < OBSERVED_TOKENS_MIN || actual == 0 {
            return;
        }
        let now = u64::from(self.ratio);
        let wide = u128::from(now) * u128::from(actual) / u128::from(estimated);
        let target = u64::try_from(wide).unwrap_or(RATIO_MAX).clamp(RATIO_MIN, RATIO_MAX);
        let next = if target > now { now + (target - now).div_ceil(2) } else { now - (now - target) / 8 };
        self.set(next);
    }

    /// The provider refused a prompt as too long although it was within its budget: estimates are a quarter too low.
    pub fn too_long(&mut self) {
        let now = u64::from(self.ratio);
        self.set(now + now / 4);
    }

    /// Estimated tokens as this model will count them.
    #[must_use]
    pub fn apply(&self, estimated: u64) -> u64 {
        scale(estimated, u64::from(self.ratio), ONE)
    }

    /// So many of the model's tokens in estimated ones: the budget of a window. The ratio is rounded up to an eighth
    /// here, so that what is cut to fit does not change with every observation.
    #[must_use]
    pub fn uncalibrated(&self, tokens: u64) -> u64 {
        let step = ONE / 8;
        let floor = u128::from(tokens) * u128::from(ONE) / u128::from(u64::from(self.ratio).div_ceil(step) * step);
        u64::try_from(floor).unwrap_or(u64::MAX)
    }

    fn set(&mut self, ratio: u64) {
        self.ratio = u32::try_from(ratio.clamp(RATIO_MIN, RATIO_MAX)).expect("the largest ratio is 4096");
    }
}

fn scale(number: u64, by: u64, over: u64) -> u64 {
    u64::try_from((u128::from(number) * u128::from(by)).div_ceil(u128::from(over))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_item_costs_its_bytes_and_its_frame() {
        assert_eq!([estimate(0), estimate(1), estimate(3), estimate(3000)], [4, 5, 5, 1004]);
    }

    #[test]
    fn it_converges_on_what_the_provider_counts() {
        for (real, of) in [(3u64, 2u64), (3, 5), (3, 1)] {
            let mut calibration = Calibration::default();
            for _ in 0..100 {
                calibration.observe(calibration.apply(10_000), 10_000 * real / of);
            }
            let applied = calibration.apply(10_000);
            let truth = 10_000 * real / of;
            assert!(applied.abs_diff(truth) <= truth / 50, "{applied} for {truth}");
        }
    }

    #[test]
    fn a_prompt_refused_again_and_again_shrinks_to_a_quarter() {
        let mut calibration = Calibration::default();
        (0..20).for_each(|_| calibration.too_long());
        assert_eq!(calibration.uncalibrated(8000), 2000);
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(observed in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50), tokens: u64) {
            let mut calibration = Calibration::default();
            for (estimated, actual) in observed {
                calibration.observe(estimated, actual);
            }
            prop_assert!((512..=4096).contains(&calibration.ratio));
            let budget = calibration.uncalibrated(tokens / 8);
            prop_assert!(calibration.apply(budget) <= tokens / 8 + 4);
        }
    }
}

//! Several readings of one prompt, of which the mean decides.
//!
//! Start at [`Voices`]. aos-nano sees a word that it does not know as a numbered slot, and which number stands for which
//! word means nothing: what it gets wrong with one numbering it often gets right with another. So it reads each prompt
//! in several numberings at once. What always holds: tokens outside are those of the first numbering; with one voice all
//! is as without this.

use crate::decoder::{Decoder, Piece};
use crate::fault::Fault;

/// A decoder that reads each piece with several voices.
pub(crate) struct Voices<D> {
    decoder: D,
    /// For each voice but the first, what it reads in the place of each token.
    others: Vec<Vec<u32>>,
}

impl<D: Decoder> Voices<D> {
    pub(crate) fn new(decoder: D, others: Vec<Vec<u32>>) -> Voices<D> {
        Voices { decoder, others }
    }

    /// What is read by a voice in the place of a token.
    fn read_as(&self, voice: usize, id: u32) -> u32 {
        let other = voice.checked_sub(1).and_then(|nth| self.others[nth].get(id as usize));
        other.copied().unwrap_or(id)
    }

    /// The sum of the voices' logits, as the first voice names the tokens; the likeliest is that of their mean.
    fn sum(&self, mut logits: impl Iterator<Item = Option<Vec<f32>>>) -> Option<Vec<f32>> {
        let mut sum = logits.next()??;
        for (other, logits) in self.others.iter().zip(logits) {
            for (sum, read) in sum.iter_mut().zip(other) {
                *sum += logits.as_ref()?.get(*read as usize)?;
            }
        }
        Some(sum)
    }
}

impl<D: Decoder> Decoder for Voices<D> {
    type State = Vec<D::State>;

    fn window(&self) -> usize {
        self.decoder.window()
    }

    fn fresh(&self) -> Self::State {
        (0..=self.others.len()).map(|_| self.decoder.fresh()).collect()
    }

    fn len(state: &Self::State) -> usize {
        state.first().map_or(0, D::len)
    }

    fn truncate(state: &mut Self::State, len: usize) {
        state.iter_mut().for_each(|state| D::truncate(state, len));
    }

    fn bytes_of(&self, tokens: usize) -> usize {
        (1 + self.others.len()) * self.decoder.bytes_of(tokens)
    }

    fn bytes_held(&self) -> usize {
        self.decoder.bytes_held()
    }

    fn read(&self, pieces: &mut [Piece<'_, Self::State>]) -> Result<Vec<Option<Vec<f32>>>, Fault> {
        let read: Vec<Vec<u32>> = (0..=self.others.len())
            .flat_map(|voice| {
                pieces.iter().map(move |piece| piece.ids.iter().map(|id| self.read_as(voice, *id)).collect())
            })
            .collect();
        let count = pieces.len();
        let mut all: Vec<Piece<'_, D::State>> = Vec::with_capacity(read.len());
        for (nth, piece) in pieces.iter_mut().enumerate() {
            for (voice, state) in piece.state.iter_mut().enumerate() {
                all.push(Piece { ids: &read[voice * count + nth], state, wanted: piece.wanted });
            }
        }
        let mut logits = self.decoder.read(&mut all)?.into_iter();
        let voices = 1 + self.others.len();
        Ok((0..count).map(|_| self.sum(logits.by_ref().take(voices))).collect())
    }

    fn save(&self, state: &Self::State) -> Vec<u8> {
        let saved = state.iter().map(|state| self.decoder.save(state));
        saved.flat_map(|bytes| (bytes.len() as u64).to_le_bytes().into_iter().chain(bytes)).collect()
    }

    fn restore(&self, mut bytes: &[u8]) -> Result<Self::State, Fault> {
        let short = Fault::Saved("it is cut short");
        let mut states = Vec::new();
        for _ in 0..=self.others.len() {
            let (len, rest) = bytes.split_first_chunk().ok_or(short.clone())?;
            let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| short.clone())?;
            let (state, rest) = rest.split_at_checked(len).ok_or(short.clone())?;
            states.push(self.decoder.restore(state)?);
            bytes = rest;
        }
        Ok(states)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says again what it read last, and knows all that it read.
    struct Echo;

    impl Decoder for Echo {
        type State = Vec<u32>;

        fn window(&self) -> usize {
            9
        }

        fn fresh(&self) -> Vec<u32> {
            Vec::new()
        }

        fn len(state: &Vec<u32>) -> usize {
            state.len()
        }

        fn truncate(state: &mut Vec<u32>, len: usize) {
            state.truncate(len);
        }

        fn bytes_of(&self, tokens: usize) -> usize {
            tokens
        }

        fn bytes_held(&self) -> usize {
            0
        }

        fn read(&self, pieces: &mut [Piece<'_, Vec<u32>>]) -> Result<Vec<Option<Vec<f32>>>, Fault> {
            let one = |piece: &mut Piece<'_, Vec<u32>>| {
                piece.state.extend(piece.ids);
                let last = piece.ids.last().copied();
                piece.wanted.then(|| (0..4).map(|id| f32::from(u8::from(Some(id) == last))).collect())
            };
            Ok(pieces.iter_mut().map(one).collect())
        }

        fn save(&self, state: &Vec<u32>) -> Vec<u8> {
            state.iter().map(|id| *id as u8).collect()
        }

        fn restore(&self, bytes: &[u8]) -> Result<Vec<u32>, Fault> {
            Ok(bytes.iter().map(|byte| u32::from(*byte)).collect())
        }
    }

    #[test]
    fn each_voice_reads_its_own_tokens_and_the_sum_is_in_those_of_the_first() {
        let voices = Voices::new(Echo, vec![vec![0, 2, 3, 1], vec![0, 3, 1, 2]]);
        let (mut one, mut other) = (voices.fresh(), voices.fresh());
        let pieces = &mut [
            Piece { ids: &[0, 1], state: &mut one, wanted: true },
            Piece { ids: &[3], state: &mut other, wanted: false },
        ];
        assert_eq!(voices.read(pieces).unwrap(), [Some(vec![0.0, 3.0, 0.0, 0.0]), None]);
        assert_eq!((&one, &other), (&vec![vec![0, 1], vec![0, 2], vec![0, 3]], &vec![vec![3], vec![1], vec![2]]));
        let saved = voices.save(&one);
        assert_eq!(voices.restore(&saved), Ok(one.clone()));
        assert!((0..saved.len()).all(|cut| voices.restore(&saved[..cut]).is_err()));
        Voices::<Echo>::truncate(&mut one, 1);
        assert_eq!((Voices::<Echo>::len(&one), &one), (1, &vec![vec![0]; 3]));
    }
}

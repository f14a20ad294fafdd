//! What computes: from tokens read to the likelihood of each next one.
//!
//! Start at [`Decoder`]. The runtime above it (batching, caches, grammars) knows nothing of weights; today's only decoder
//! is `llama`, in Rust. One that speaks to a C++ runtime in a child process would implement the same trait, with
//! handles for states.

use crate::fault::Fault;

/// Tokens to be read by one process in one step.
pub struct Piece<'a, S> {
    /// The tokens, in order; at least one.
    pub ids: &'a [u32],
    /// What the process has read before; after the step these too.
    pub state: &'a mut S,
    /// Whether the likelihoods after the last of them are wanted.
    pub wanted: bool,
}

/// Something that reads tokens and says how likely each next one is.
pub trait Decoder: Send {
    /// What is remembered of the tokens that one process has read. A copy is a fork: it costs next to nothing, and each
    /// goes its own way from there.
    type State: Clone + Send;

    /// Most tokens that one state can hold.
    fn window(&self) -> usize;

    /// A state that has read nothing.
    fn fresh(&self) -> Self::State;

    /// Tokens that a state has read.
    fn len(state: &Self::State) -> usize;

    /// Forgets all but the first `len` tokens.
    fn truncate(state: &mut Self::State, len: usize);

    /// Bytes that so many tokens take at most, where nothing is shared.
    fn bytes_of(&self, tokens: usize) -> usize;

    /// Bytes that all states together take now; what states share counts once.
    fn bytes_held(&self) -> usize;

    /// Reads every piece, all in one pass over the weights. For each piece the logits of the next token, or nothing where
    /// they are not wanted. What one piece gets does not depend on the others.
    ///
    /// # Errors
    /// [`Fault::Broke`]; the states of all pieces are then worth nothing.
    fn read(&self, pieces: &mut [Piece<'_, Self::State>]) -> Result<Vec<Option<Vec<f32>>>, Fault>;

    /// A state as bytes.
    fn save(&self, state: &Self::State) -> Vec<u8>;

    /// What [`Decoder::save`] gave.
    ///
    /// # Errors
    /// [`Fault::Saved`].
    fn restore(&self, bytes: &[u8]) -> Result<Self::State, Fault>;
}

//! The decoder: from a model's reply to the calls it makes.

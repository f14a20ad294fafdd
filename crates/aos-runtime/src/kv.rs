//! What a model remembers of the tokens it has read: keys and values per layer, as data that can be copied, cut, saved
//! and restored.
//!
//! Start at [`Kv`]. It is made of pages of [`PAGE`] positions; a copy shares its pages with the original until one of the
//! two writes, so that a fork costs a list of pointers, and the common beginning of many processes is held once. What
//! always holds: memory is counted by the [`Meter`] page by page, shared pages once; what is restored is bit for bit
//! what was saved.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fault::Fault;

/// Positions of a page. Small enough that the copy of one at a fork is nothing, large enough that the list is short.
pub(crate) const PAGE: usize = 64;
const MAGIC: [u8; 8] = *b"AOSKV001";

/// Bytes of all pages of one model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<AtomicUsize>);

impl Meter {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Page {
    /// Layer after layer; of each the keys of all positions, then the values.
    data: Box<[f32]>,
    meter: Meter,
}

impl Page {
    fn new(data: Box<[f32]>, meter: &Meter) -> Page {
        meter.0.fetch_add(size_of_val(&*data), Ordering::Relaxed);
        Page { data, meter: meter.clone() }
    }
}

impl Clone for Page {
    fn clone(&self) -> Page {
        Page::new(self.data.clone(), &self.meter)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.meter.0.fetch_sub(size_of_val(&*self.data), Ordering::Relaxed);
    }
}

/// How large the keys and values of one position are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dims {
    pub(crate) layers: usize,
    /// Numbers of one key or value: key heads times the size of a head.
    pub(crate) width: usize,
}

impl Dims {
    fn page_floats(self) -> usize {
        self.layers * 2 * PAGE * self.width
    }

    /// Bytes that so many positions take at most.
    pub(crate) fn bytes(self, positions: usize) -> usize {
        positions.div_ceil(PAGE) * self.page_floats() * size_of::<f32>()
    }
}

/// The keys and values of the tokens read so far.
#[derive(Clone, Debug)]
pub struct Kv {
    dims: Dims,
    pages: Vec<Arc<Page>>,
    len: usize,
    meter: Meter,
}

impl Kv {
    pub(crate) fn new(dims: Dims, meter: &Meter) -> Kv {
        Kv { dims, pages: Vec::new(), len: 0, meter: meter.clone() }
    }

    /// Tokens read.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forgets all but the first `len` tokens.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.pages.truncate(self.len.div_ceil(PAGE));
    }

    /// Makes room for `more` tokens of its own; they count at once and must be written in every layer.
    pub(crate) fn extend(&mut self, more: usize) {
        let before = self.len;
        self.len += more;
        while self.pages.len() * PAGE < self.len {
            let data = vec![0.0; self.dims.page_floats()].into_boxed_slice();
            self.pages.push(Arc::new(Page::new(data, &self.meter)));
        }
        for page in &mut self.pages[before / PAGE..] {
            Arc::make_mut(page);
        }
    }

    /// Writes key and value of one position.
    pub(crate) fn put(&mut self, layer: usize, position: usize, key: &[f32], value: &[f32]) {
        let width = self.dims.width;
        let page = Arc::get_mut(&mut self.pages[position / PAGE]).expect("extend made the page its own");
        let keys = (layer * 2 * PAGE + position % PAGE) * width;
        page.data[keys..keys + width].copy_from_slice(key);
        let values = keys + PAGE * width;
        page.data[values..values + width].copy_from_slice(value);
    }

    /// Keys and values of a layer, page by page: each `PAGE` times `width` numbers.
    pub(crate) fn pages(&self, layer: usize) -> impl Iterator<Item = (&[f32], &[f32])> {
        let size = PAGE * self.dims.width;
        self.pages.iter().map(move |page| {
            let begin = layer * 2 * size;
            page.data[begin..begin + 2 * size].split_at(size)
        })
    }

    /// As bytes, to be kept anywhere.
    pub(crate) fn save(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32 + self.dims.bytes(self.len));
        bytes.extend(MAGIC);
        for number in [self.dims.layers, self.dims.width, self.len] {
            bytes.extend((number as u64).to_le_bytes());
        }
        for page in &self.pages {
            bytes.extend(page.data.iter().flat_map(|number| number.to_le_bytes()));
        }
        bytes
    }

    /// What [`Kv::save`] gave.
    ///
    /// # Errors
    /// [`Fault::Saved`] where it is of another model's shape, or cut short.
    pub(crate) fn restore(bytes: &[u8], dims: Dims, meter: &Meter) -> Result<Kv, Fault> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(Fault::Saved("it is no cache"))?;
        let (head, data) = rest.split_at_checked(24).ok_or(Fault::Saved("it is cut short"))?;
        let number = |nth: usize| {
            let eight: [u8; 8] = head[nth * 8..nth * 8 + 8].try_into().expect("eight bytes are eight bytes");
            usize::try_from(u64::from_le_bytes(eight)).unwrap_or(usize::MAX)
        };
        if (number(0), number(1)) != (dims.layers, dims.width) {
            return Err(Fault::Saved("it is of another model"));
        }
        let page_bytes = dims.page_floats() * size_of::<f32>();
        let len = number(2);
        if len.div_ceil(PAGE).checked_mul(page_bytes) != Some(data.len()) {
            return Err(Fault::Saved("it is cut short"));
        }
        let floats = |bytes: &[u8]| -> Box<[f32]> {
            let (numbers, _) = bytes.as_chunks::<4>();
            numbers.iter().map(|four| f32::from_le_bytes(*four)).collect()
        };
        let pages = data.chunks_exact(page_bytes).map(|page| Arc::new(Page::new(floats(page), meter))).collect();
        Ok(Kv { dims, pages, len, meter: meter.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIMS: Dims = Dims { layers: 2, width: 3 };

    fn filled(kv: &mut Kv, upto: usize, with: f32) {
        let begin = kv.len();
        kv.extend(upto - begin);
        for position in begin..upto {
            for layer in 0..2 {
                let number = with + position as f32;
                kv.put(layer, position, &[number; 3], &[-number; 3]);
            }
        }
    }

    #[test]
    fn a_copy_shares_its_pages_until_one_of_the_two_writes() {
        let meter = Meter::default();
        let mut one = Kv::new(DIMS, &meter);
        filled(&mut one, 2 * PAGE + 5, 0.5);
        assert_eq!(meter.bytes(), DIMS.bytes(2 * PAGE + 5));
        let mut other = one.clone();
        assert_eq!(meter.bytes(), DIMS.bytes(2 * PAGE + 5), "nothing is copied yet");
        other.truncate(2 * PAGE + 1);
        filled(&mut other, 2 * PAGE + 9, 7.5);
        assert_eq!(meter.bytes(), 4 * DIMS.bytes(PAGE), "the last page alone is there twice");
        let key = |kv: &Kv, position: usize| kv.pages(1).nth(position / PAGE).unwrap().0[position % PAGE * 3];
        assert_eq!(key(&one, 2 * PAGE + 3), 0.5 + (2 * PAGE + 3) as f32);
        assert_eq!(key(&other, 2 * PAGE + 3), 7.5 + (2 * PAGE + 3) as f32);
        drop((one, other));
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn what_is_restored_is_what_was_saved_and_nothing_else_is() {
        let meter = Meter::default();
        let mut kv = Kv::new(DIMS, &meter);
        filled(&mut kv, PAGE + 7, 0.25);
        let saved = kv.save();
        let back = Kv::restore(&saved, DIMS, &meter).unwrap();
        assert_eq!((back.len(), back.save()), (PAGE + 7, saved.clone()));
        let fault = |bytes: &[u8], dims| Kv::restore(bytes, dims, &meter).unwrap_err();
        assert_eq!(fault(&saved, Dims { layers: 2, width: 4 }), Fault::Saved("it is of another model"));
        for cut in [0, 7, 20, 31, 32, saved.len() - 1] {
            assert!(matches!(fault(&saved[..cut], DIMS), Fault::Saved(_)), "cut at {cut}");
        }
    }
}

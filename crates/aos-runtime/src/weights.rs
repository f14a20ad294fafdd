//! A GGUF file, opened and checked before anything is computed with it.
//!
//! Start at [`Weights::open`]. What always holds: what the file promises about itself, each part and all together, is
//! checked against its size before memory is taken for it; a fault names the key or tensor. Deliberately absent: mapping the file into memory, which
//! cannot be done in safe Rust since another program may cut a mapped file short under us; it is read once.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{Content, Value};

use crate::fault::Fault;

/// Bytes read at once: tensors are read whole, so this only matters for the header.
const BUFFER_BYTES: usize = 64 << 10;

/// The most bytes before the tensors: a quarter of a million words take some ten million. Each byte may be a number in a
/// list, which takes thirty in memory.
const HEADER_BYTES_MAX: u64 = 32 << 20;

/// The beginning of a file.
struct Header<'f> {
    file: &'f mut dyn Bytes,
    left: u64,
}

impl Read for Header<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most < buffer.len() {
            return Err(io::Error::other(format!("its header is longer than {} MiB", HEADER_BYTES_MAX >> 20)));
        }
        let length = self.file.read(buffer)?;
        self.left -= length as u64;
        Ok(length)
    }
}

impl Seek for Header<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// What a file is read from.
trait Bytes: Read + Seek + Send {}

impl<T: Read + Seek + Send> Bytes for T {}

/// An opened file: its metadata, and its tensors on demand.
pub(crate) struct Weights {
    path: PathBuf,
    file: Box<dyn Bytes>,
    content: Content,
}

impl Weights {
    /// Opens a file and reads its header; `inside` is what stands in its place where there is none.
    ///
    /// # Errors
    /// [`Fault::Absent`], [`Fault::Unreadable`], [`Fault::Damaged`] where it is no GGUF or shorter than it says,
    /// [`Fault::Unsupported`] where it is of another architecture.
    pub(crate) fn open(path: &Path, inside: Option<&'static [u8]>) -> Result<Weights, Fault> {
        let (mut file, len) = opened(path, inside)?;
        let damaged = |why: String| Fault::Damaged { path: path.to_owned(), why };
        // An alignment of zero, for one, makes the library panic.
        let mut header = Header { file: &mut *file, left: HEADER_BYTES_MAX };
        let read = catch_unwind(AssertUnwindSafe(|| Content::read(&mut header)));
        let content = read
            .map_err(|_| damaged("its header makes no sense".to_owned()))?
            .map_err(|error| damaged(first_line(&error)))?;
        let weights = Weights { path: path.to_owned(), file, content };
        // Before the sizes: a file of another architecture may use types that we cannot measure.
        let architecture = weights.text("general.architecture")?;
        if architecture != "llama" {
            return Err(weights.unsupported(format!("its architecture is `{architecture}`, not `llama`")));
        }
        // Several may lie on the same bytes, and each takes memory of its own.
        let mut together = 0u64;
        for (name, info) in &weights.content.tensor_infos {
            let block = info.ggml_dtype.block_size();
            let elements = info.shape.dims().iter().try_fold(1usize, |all, dim| all.checked_mul(*dim));
            let bytes = elements
                .filter(|elements| elements.is_multiple_of(block))
                .and_then(|elements| (elements / block).checked_mul(info.ggml_dtype.type_size()));
            let end = bytes.and_then(|bytes| {
                weights.content.tensor_data_offset.checked_add(info.offset)?.checked_add(bytes as u64)
            });
            together = together.saturating_add(bytes.unwrap_or(0) as u64);
            match end {
                Some(end) if end <= len => {}
                Some(end) => {
                    return Err(damaged(format!("tensor {name} ends at byte {end}, the file at {len}")));
                }
                None => return Err(damaged(format!("tensor {name} has the impossible shape {:?}", info.shape))),
            }
        }
        if together > len {
            return Err(damaged(format!("its tensors take {together} bytes together, it has {len}")));
        }
        Ok(weights)
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// A tensor of the shape that the model's dimensions ask for.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, Fault> {
        let Some(info) = self.content.tensor_infos.get(name) else {
            return Err(self.unsupported(format!("it has no tensor {name}")));
        };
        if info.shape.dims() != shape {
            let has = info.shape.dims();
            return Err(self.unsupported(format!("its tensor {name} has the shape {has:?}, {shape:?} is needed")));
        }
        let read = self.content.tensor(&mut self.file, name, &Device::Cpu);
        read.map_err(|error| Fault::Damaged { path: self.path.clone(), why: first_line(&error) })
    }

    /// A list of numbers, such as the weights of a norm.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, Fault> {
        let tensor = self.tensor(name, &[len])?;
        let read = tensor.dequantize(&Device::Cpu).and_then(|tensor| tensor.to_vec1::<f32>());
        read.map_err(|error| self.unsupported(format!("its tensor {name} cannot be read: {}", first_line(&error))))
    }

    /// A whole number of the metadata, from 1 to 2^24; `otherwise` where the key is left out.
    pub(crate) fn count(&self, key: &str, otherwise: Option<usize>) -> Result<usize, Fault> {
        let number = match self.content.metadata.get(key) {
            None => otherwise.ok_or_else(|| self.unsupported(format!("it does not say {key}")))?,
            Some(value) => whole(value)
                .and_then(|number| usize::try_from(number).ok())
                .ok_or_else(|| self.unsupported(format!("its {key} is no whole number")))?,
        };
        if (1..=1 << 24).contains(&number) {
            Ok(number)
        } else {
            Err(self.unsupported(format!("its {key} is {number}")))
        }
    }

    /// A number of the metadata, finite and above zero.
    pub(crate) fn number(&self, key: &str, otherwise: Option<f32>) -> Result<f32, Fault> {
        let number = match self.content.metadata.get(key) {
            None => otherwise,
            Some(Value::F32(number)) => Some(*number),
            Some(Value::F64(number)) => Some(*number as f32),
            Some(_) => None,
        };
        let number = number.filter(|number| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| self.unsupported(format!("it does not say {key} as a number above zero")))
    }

    /// A text of the metadata.
    pub(crate) fn text(&self, key: &str) -> Result<&str, Fault> {
        match self.content.metadata.get(key) {
            Some(Value::String(text)) => Ok(text),
            Some(_) | None => Err(self.unsupported(format!("it does not say {key}"))),
        }
    }

    /// A yes or no of the metadata; no where it is left out.
    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.content.metadata.get(key), Some(Value::Bool(true)))
    }

    /// A list of texts of the metadata, if there is one.
    pub(crate) fn texts(&self, key: &str) -> Option<Vec<String>> {
        let Some(Value::Array(values)) = self.content.metadata.get(key) else { return None };
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            _ => None,
        };
        values.iter().map(text).collect()
    }

    /// A list of whole numbers of the metadata, if there is one.
    pub(crate) fn wholes(&self, key: &str) -> Option<Vec<i64>> {
        let Some(Value::Array(values)) = self.content.metadata.get(key) else { return None };
        values.iter().map(whole).collect()
    }

    /// A list of numbers of the metadata, if there is one.
    pub(crate) fn numbers(&self, key: &str) -> Option<Vec<f32>> {
        let Some(Value::Array(values)) = self.content.metadata.get(key) else { return None };
        let number = |value: &Value| match value {
            Value::F32(number) => Some(*number),
            _ => None,
        };
        values.iter().map(number).collect()
    }

    /// A token's id of the metadata.
    pub(crate) fn id(&self, key: &str) -> Option<u32> {
        self.content.metadata.get(key).and_then(whole).and_then(|id| u32::try_from(id).ok())
    }

    /// That this runtime does not run it, and why.
    pub(crate) fn unsupported(&self, why: String) -> Fault {
        Fault::Unsupported { path: self.path.clone(), why }
    }
}

/// A file, or what stands in its place, and how many bytes it has.
fn opened(path: &Path, inside: Option<&'static [u8]>) -> Result<(Box<dyn Bytes>, u64), Fault> {
    let unreadable = |error: std::io::Error| Fault::Unreadable { path: path.to_owned(), why: error.to_string() };
    let file = match (File::open(path), inside) {
        (Ok(file), _) => file,
        (Err(error), Some(bytes)) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok((Box::new(Cursor::new(bytes)), bytes.len() as u64));
        }
        (Err(error), None) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Fault::Absent(path.to_owned()));
        }
        (Err(error), _) => return Err(unreadable(error)),
    };
    let meta = file.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return Err(Fault::Unreadable { path: path.to_owned(), why: "it is no file".to_owned() });
    }
    Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, file)), meta.len()))
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::U8(number) => Some(i64::from(*number)),
        Value::I8(number) => Some(i64::from(*number)),
        Value::U16(number) => Some(i64::from(*number)),
        Value::I16(number) => Some(i64::from(*number)),
        Value::U32(number) => Some(i64::from(*number)),
        Value::I32(number) => Some(i64::from(*number)),
        Value::U64(number) => i64::try_from(*number).ok(),
        Value::I64(number) => Some(*number),
        Value::F32(_) | Value::F64(_) | Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
    }
}

/// What an error of the library says, without a backtrace.
pub(crate) fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

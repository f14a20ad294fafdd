//! `FS_READ`: a piece of a regular file, as text where it is text.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use aos_abi::limits;
use aos_abi::syscall::FsRead;
use serde_json::{Value, json};

use super::error::Error;
use super::path::Beneath;
use super::workspace::Workspace;
use crate::content::as_text;

/// Reads at most `limit` bytes (256 KiB) from `offset`. Text is cut at a character boundary; what is no UTF-8 comes as
/// base64. Where more follows, `truncated` is true and `next_offset` is where to go on. An image of up to 3 MiB comes
/// whole unless a piece is asked for, with its `media_type`, so that a model that sees can be shown it.
pub(super) fn read(workspace: &Workspace<'_>, args: &FsRead) -> Result<Value, Error> {
    let path = Beneath::parse(&args.path)?;
    let (file, stat) = workspace.file(&path.of_file()?)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let offset = args.offset.unwrap_or(0);
    let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let whole = args.offset.is_none() && args.limit.is_none() && left <= limits::IMAGE_BYTES_MAX;
    let media_type = if whole { media_type(&file).map_err(Error::io(&args.path))? } else { None };
    let limit = match media_type {
        Some(_) => limits::IMAGE_BYTES_MAX,
        None => usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX).min(limits::FS_READ_BYTES_MAX),
    };
    let mut bytes = vec![0; limit.min(left)];
    let mut filled = 0;
    // The file may have shrunk since it was looked at; then less comes.
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io(&args.path)(error)),
        }
    }
    bytes.truncate(filled);
    let (content, taken, encoding) = as_text(bytes, filled < left);
    let next = offset.saturating_add(taken as u64);
    let truncated = next < size;
    let mut result = json!({ "content": content, "size": size, "truncated": truncated });
    if let Some(encoding) = encoding {
        result["encoding"] = encoding.into();
        if let Some(media_type) = media_type.filter(|_| !truncated) {
            result["media_type"] = media_type.into();
        }
    }
    if truncated {
        result["next_offset"] = next.into();
    }
    Ok(result)
}

/// Of which kind an image is, by how it begins: those that every provider with images takes.
fn media_type(file: &File) -> io::Result<Option<&'static str>> {
    let mut head = [0; 12];
    let taken = file.read_at(&mut head, 0)?;
    Ok(match &head[..taken] {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => Some("image/webp"),
        _ => None,
    })
}

"""Writes a checkpoint as a GGUF file (version 3), matrices in Q8_0, in plain Python and numpy.

Start at export. What always holds: names and metadata are those of FORMAT.md, section 6; tied embeddings, so there is no
output.weight; RoPE is interleaved and nothing is permuted. The format: ggml's docs/gguf.md; Q8_0: blocks of 32 values, one
half-precision scale and 32 signed bytes.

    python3 export.py --run first --out weights/aos-nano.gguf
    python3 export.py --run more --mean weights/aos-nano.gguf --share .6    # .6 of the run, the rest of the file it began with
"""

import argparse
import os
import struct
from pathlib import Path

import numpy

import grammar
from network import EPSILON, HEAD, ROPE_BASE

ALIGNMENT, F32, Q8_0, BLOCK = 32, 0, 8, 32
U32, FLOAT, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def field(key, kind, value):
    """One metadata field."""
    packed = {U32: lambda: struct.pack("<I", value), FLOAT: lambda: struct.pack("<f", value), STRING: lambda: text(value)}
    if kind == ARRAY:
        of, items = value
        one = text if of == STRING else lambda item: struct.pack("<i", item)
        return text(key) + struct.pack("<IIQ", ARRAY, of, len(items)) + b"".join(one(item) for item in items)
    return text(key) + struct.pack("<I", kind) + packed[kind]()


def metadata(shape, tokenizer):
    """The fields, in the order of the file."""
    return [
        field("general.architecture", STRING, "llama"), field("general.name", STRING, "aos-nano"),
        field("general.file_type", U32, 7), field("general.alignment", U32, ALIGNMENT),
        field("llama.context_length", U32, shape["context"]), field("llama.embedding_length", U32, shape["width"]),
        field("llama.block_count", U32, shape["layers"]), field("llama.feed_forward_length", U32, shape["inner"]),
        field("llama.attention.head_count", U32, shape["width"] // HEAD),
        field("llama.attention.head_count_kv", U32, shape["width"] // HEAD),
        field("llama.attention.layer_norm_rms_epsilon", FLOAT, EPSILON), field("llama.rope.dimension_count", U32, HEAD),
        field("llama.rope.freq_base", FLOAT, ROPE_BASE), field("llama.vocab_size", U32, shape["vocabulary"]),
        field("tokenizer.ggml.model", STRING, "aos-nano"), field("tokenizer.ggml.tokens", ARRAY, (STRING, tokenizer.tokens)),
        field("tokenizer.ggml.token_type", ARRAY, (INT32, tokenizer.types)),
        field("tokenizer.ggml.eos_token_id", U32, tokenizer.id["<|end|>"]),
        field("tokenizer.ggml.padding_token_id", U32, tokenizer.id["<|pad|>"]),
        field("aos.nano.format", U32, 2), field("aos.nano.calls", ARRAY, (STRING, list(grammar.CALLS))),
        field("aos.nano.grammar", STRING, grammar.export()),
    ]


def quantised(weights):
    """Q8_0: rows in blocks of 32."""
    rows = weights.astype(numpy.float32).reshape(-1, BLOCK)
    scale = (numpy.abs(rows).max(axis=1) / 127).astype(numpy.float32)
    inverse = numpy.divide(1, scale, out=numpy.zeros_like(scale), where=scale > 0)
    blocks = numpy.zeros(len(rows), dtype=[("scale", "<f2"), ("values", "i1", BLOCK)])
    blocks["scale"] = scale
    blocks["values"] = numpy.round(rows * inverse[:, None]).astype(numpy.int8)
    return blocks.tobytes()


def restored(weights):
    """The values that a reader of the file sees, for evaluating what is shipped."""
    if weights.ndim != 2:
        return weights
    blocks = numpy.frombuffer(quantised(weights), dtype=[("scale", "<f2"), ("values", "i1", BLOCK)])
    return (blocks["scale"].astype(numpy.float32)[:, None] * blocks["values"]).reshape(weights.shape)


def export(path, shape, weights, tokenizer):
    """Writes the file. `weights`: numpy arrays by their GGUF names."""
    fields = metadata(shape, tokenizer)
    infos, blobs, offset = [], [], 0
    for name, array in weights.items():
        kind = Q8_0 if array.ndim == 2 else F32
        assert array.ndim == 1 or array.shape[1] % BLOCK == 0, name
        blob = quantised(array) if kind == Q8_0 else array.astype("<f4").tobytes()
        # Dimensions are written with the row's length first.
        infos.append(text(name) + struct.pack("<I", array.ndim) + b"".join(struct.pack("<Q", size) for size in reversed(array.shape))
                     + struct.pack("<IQ", kind, offset))
        blob += b"\0" * (-len(blob) % ALIGNMENT)
        blobs.append(blob)
        offset += len(blob)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(fields)) + b"".join(fields) + b"".join(infos)
    head += b"\0" * (-len(head) % ALIGNMENT)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    aside = Path(str(path) + ".new")
    aside.write_bytes(head + b"".join(blobs))
    aside.rename(path)
    return len(head) + offset


def read(path):
    """The tensors of a file that `export` wrote, by name, as float32, and its tokens."""
    data, at = Path(path).read_bytes(), 24

    def take(form):
        nonlocal at
        found = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return found if len(found) > 1 else found[0]

    def string():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size:at].decode()

    def value(kind):
        if kind == ARRAY:
            of, count = take("IQ")
            return [value(of) for _ in range(count)]
        return string() if kind == STRING else take({U32: "I", FLOAT: "f", INT32: "i"}[kind])

    version, tensors, fields = struct.unpack_from("<IQQ", data, 4)
    assert data[:4] == b"GGUF" and version == 3, path
    tokens = next(found for key, found in [(string(), value(take("I"))) for _ in range(fields)] if key == "tokenizer.ggml.tokens")
    infos = []
    for _ in range(tensors):
        name, dimensions = string(), take("I")
        shape = [take("Q") for _ in range(dimensions)][::-1]
        infos.append((name, shape, *take("IQ")))
    begin, found = at + -at % ALIGNMENT, {}
    for name, shape, kind, offset in infos:
        count = int(numpy.prod(shape))
        if kind == F32:
            found[name] = numpy.frombuffer(data, "<f4", count, begin + offset).reshape(shape).copy()
        else:
            blocks = numpy.frombuffer(data, [("scale", "<f2"), ("values", "i1", BLOCK)], count // BLOCK, begin + offset)
            found[name] = (blocks["scale"].astype(numpy.float32)[:, None] * blocks["values"]).reshape(shape)
    return found, tokens


def mean(weights, tokens, file, share):
    """That share of some weights, and for the rest those of a file; words that it does not have stay as they are."""
    others, known = read(file)
    at = {token: nth for nth, token in enumerate(known)}
    rows = weights["token_embd.weight"].copy()
    for nth, token in enumerate(tokens):
        if token in at:
            rows[nth] = others["token_embd.weight"][at[token]]
    others["token_embd.weight"] = rows
    return {name: share * array + (1 - share) * others[name] for name, array in weights.items()}


def main():
    import torch

    from tokenizer import Tokenizer
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="first")
    parser.add_argument("--cache", default="~/.cache/aos-nano")
    parser.add_argument("--out", default=str(Path(__file__).parent / "weights" / "aos-nano.gguf"))
    parser.add_argument("--mean", help="a file: its weights and the run's, mixed")
    parser.add_argument("--share", type=float, default=.5, help="of the run in such a mixture")
    options = parser.parse_args()
    state = torch.load(Path(os.path.expanduser(options.cache)) / options.run / "state.pt", map_location="cpu")
    tokenizer = Tokenizer()
    assert state["tokens"] == tokenizer.tokens, "words.txt or grammar.py changed since this run began"
    weights = {name: value.detach().float().numpy() for name, value in state["average"].items()}
    if options.mean:
        weights = mean(weights, tokenizer.tokens, options.mean, options.share)
    size = export(options.out, state["shape"], weights, tokenizer)
    print(f"{options.out}: {size:,} bytes, step {state['progress']['step']}, {state['progress']['tokens']:,} tokens")


if __name__ == "__main__":
    main()

"""The tokenizer: bytes, control tokens, marks of the answer's JSON, and whole words; no merges.

Start at Tokenizer.encode. What always holds: a string has the same ids wherever it stands between word edges, so copying
it is copying ids; control tokens never come from text; decode(encode(text)) == text. The rules are those of FORMAT.md,
"Tokenizer", which the Rust runtime implements too; vectors/tokens.jsonl binds both.
"""

from pathlib import Path

import grammar

HERE = Path(__file__).parent
CONTROL = ["<|pad|>", "<|end|>", "<|lack|>", "<|user|>", "<|reply|>", "<|result|>", "<|error|>", "<|told|>", "<|cut|>"]
BYTE, CONTROL_TYPE, NORMAL, USER_DEFINED, UNUSED = 6, 3, 1, 4, 5
ESCAPES = ['\\"', "\\\\", "\\n", "\\t"]
WORD_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") | frozenset(range(128, 256))


def marks():
    """Escapes, and what stands around names and values in an answer: one mark from a value's end to the next's begin."""
    found = [*ESCAPES, '{"calls":[{"name":"', '","args":{}}]}', '","args":{', '{"say":"', '"}', '","']
    opening = {"string": '"', "number": "", "true": "true", "edits": '[{"old":"', "list": '["'}
    closing = {"string": '"', "number": "", "true": "", "edits": '"}]', "list": '"]'}
    for shapes in grammar.CALLS.values():
        for shape in shapes:
            before = None
            for field, kind in shape:
                kind = form(kind)
                lead = "" if before is None else closing[before] + ","
                found.append(f'{lead}"{field}":{opening[kind]}')
                before = kind
            if before:
                found.append(closing[before] + "}}]}")
    found.append('","new":"')
    # Sentences that the model says by itself are one choice each, not a row of letters.
    own = [grammar.LACK, *(template for template in grammar.SAY if not template.startswith(grammar.LACK.split("{}")[0]))]
    for template in own:
        found += [piece for piece in template.split("{}") if " " in piece and len(piece) >= 10]
    return list(dict.fromkeys(found))


def form(kind):
    """How a kind of value is written."""
    if kind == grammar.INT:
        return "number"
    if kind == grammar.TRUE:
        return "true"
    if kind == grammar.EDITS:
        return "edits"
    return "list" if isinstance(kind, list) and kind[0] == "list" else "string"


class Tokenizer:
    """Text to ids and back. `tokens` and `types` go into the GGUF file as they are."""

    def __init__(self, words=None):
        words = words if words is not None else (HERE / "words.txt").read_text().split()
        words = list(dict.fromkeys([*grammar.CALLS, *words]))
        plain = marks()
        self.tokens = [f"<0x{byte:02X}>" for byte in range(256)] + CONTROL + plain + words
        self.types = [BYTE] * 256 + [CONTROL_TYPE] * len(CONTROL) + [NORMAL] * len(plain) + [USER_DEFINED] * len(words)
        unused = -len(self.tokens) % 32
        self.tokens += [f"<|unused{nth}|>" for nth in range(unused)]
        self.types += [UNUSED] * unused
        self.id = {token: nth for nth, token in enumerate(self.tokens)}
        assert len(self.id) == len(self.tokens), "a token stands twice"
        self.bytes = [bytes([nth]) if nth < 256 else token.encode() if kind in (NORMAL, USER_DEFINED) else b""
                      for nth, (token, kind) in enumerate(zip(self.tokens, self.types))]
        # By first byte, the longest first, with whether it needs word edges.
        self.starts = {}
        for nth, (piece, kind) in enumerate(zip(self.bytes, self.types)):
            if kind in (NORMAL, USER_DEFINED):
                self.starts.setdefault(piece[0], []).append((piece, kind == USER_DEFINED, nth))
        for list_ in self.starts.values():
            list_.sort(key=lambda entry: -len(entry[0]))

    def encode(self, text):
        """Ids of a text: at each place the longest mark or word, else the byte."""
        data = text.encode()
        ids, at, end, edge = [], 0, len(data), True
        while at < end:
            for piece, word, nth in self.starts.get(data[at], ()):
                if word and not edge:
                    continue
                after = at + len(piece)
                if data.startswith(piece, at) and not (word and after < end and data[after] in WORD_BYTES):
                    ids.append(nth)
                    at, edge = after, True
                    break
            else:
                ids.append(data[at])
                edge = data[at] not in WORD_BYTES
                at += 1
        return ids

    def decode(self, ids):
        """The text of ids; control tokens give nothing."""
        return b"".join(self.bytes[nth] for nth in ids).decode("utf-8", "replace")

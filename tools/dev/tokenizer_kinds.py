# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of the kinds that are not byte-level BPE, trained on text of
this tree, for dump_tokenizer_vectors.py: KINDS maps a name to a function that
returns (tokenizer, bos, eos)."""
import json
import os

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

from dump_tokenizer_tables import charsmap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
BYTES = [f"<0x{b:02X}>" for b in range(256)]
WORLD = [
    "Grüße aus Köln, où l'été s'achève; mañana será otro día. İstanbul ıi ﬁ ﬂ ２ ① ½ ² ™",
    "Καλημέρα κόσμε, τι κάνεις; Съешь же ещё этих мягких французских булок.",
    "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。吾輩は猫である。名前はまだ無い。",
    "동해 물과 백두산이 마르고 닳도록 السلام عليكم नमस्ते दुनिया สวัสดีชาวโลก שלום עולם",
    "for (int i = 0; i < n; i++) {\n\tx[i] += 0x1fUL; // why\n}\n",
    "def f(a, *b):\n    return {k: v for k, v in b}  # comment\n",
]


def text():
    lines = []
    for name in ("tests/bench/held_out.txt", "README.md", "CONTRIBUTING.md"):
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            lines += f.read().splitlines(keepends=True)
    return lines[:1500] + WORLD * 6


def special(content, **kw):
    return AddedToken(content, special=True, normalized=False, **kw)


def edited(tok, change):
    data = json.loads(tok.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def framed(tok, before, after):
    ids = [(s, tok.token_to_id(s)) for s in before + after]
    tok.post_processor = processors.TemplateProcessing(
        " ".join(before + ["$A"] + after), special_tokens=ids)


def train_bpe(tok, size, alphabet=70, **kw):
    """Merges of characters."""
    tok.train_from_iterator(text(), trainers.BpeTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=alphabet, **kw))


def with_bytes(tok, options, first=("<unk>", "<s>", "</s>")):
    """The same vocabulary with its ids after those of first and the 256 bytes."""
    def change(data):
        model = data["model"]
        names = [w for w in sorted(model["vocab"], key=model["vocab"].get)
                 if w not in first]
        model["vocab"] = {w: i for i, w in enumerate(list(first) + BYTES + names)}
        model["unk_token"] = "<unk>"
        model.update(options)
        data["added_tokens"] = []
    tok = edited(tok, change)
    tok.add_special_tokens([special(s) for s in first])
    return tok


SPM_DECODER = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def spm_llama():
    """Llama 2: no pre-tokenizer, tokens found only by merging."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    train_bpe(tok, 420)
    tok = with_bytes(tok, {"byte_fallback": True, "fuse_unk": True})
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                           normalizers.Replace(" ", "▁")])
    tok.pre_tokenizer = None
    tok.decoder = decoders.Sequence(SPM_DECODER + [decoders.Strip(" ", 1, 0)])
    tok.add_tokens([AddedToken("[INST]", normalized=False), AddedToken("<tool>"),
                    AddedToken("été", normalized=True)])
    framed(tok, ["<s>"], [])
    return tok, "<s>", "</s>"


def spm_gemma():
    """Gemma: spaces become marks, so the split at spaces finds none."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Replace(" ", "▁")
    train_bpe(tok, 420, initial_alphabet=["▁"])
    tok = with_bytes(tok, {"byte_fallback": True, "fuse_unk": True},
                     ("<pad>", "<eos>", "<bos>", "<unk>"))
    tok.normalizer = normalizers.Replace(" ", "▁")
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok.decoder = decoders.Sequence(SPM_DECODER)
    tok.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("\n", normalized=False),
                    AddedToken("▁▁", normalized=False)])
    framed(tok, ["<bos>"], [])
    return tok, "<bos>", "<eos>"


def spm_first():
    """Metaspace only before the first token, unknown characters, ignore_merges."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    train_bpe(tok, 380)
    tok = with_bytes(tok, {"byte_fallback": False, "fuse_unk": False, "ignore_merges": True})
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tok.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    tok.add_special_tokens([special("<mask>", lstrip=True)])
    framed(tok, ["<s>"], ["</s>"])
    return tok, "<s>", "</s>"


RULES = ([("ﬁ", "fi"), ("ﬂ", "fl"), ("２", "2"), ("①", "1"), ("½", "1⁄2"), ("\u00a0", " "),
          ("\u3000", " "), ("\t", " "), ("\n", " "), ("\r", " "), ("\u200b", " "),
          ("\u0301", ""), ("\x01", ""), ("™", "TM"), ("ｱ", "ア"), ("\u0600", "x")]
         + [(chr(0xff21 + i), chr(0x41 + i)) for i in range(26)]
         + [("e\u0301", "é"), ("a\u0308", "ä"), ("क\u093c", "क़")])


def train_unigram(tok, size, special_tokens):
    tok.train_from_iterator(text(), trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, special_tokens=special_tokens,
        unk_token="<unk>", max_piece_length=8))


def precompiled(data):
    return {"type": "Precompiled", "precompiled_charsmap": charsmap(RULES)}


def unigram_t5():
    """T5: a charsmap, Unigram, leading marks."""
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    train_unigram(tok, 350, ["<pad>", "</s>", "<unk>"])
    tok = edited(tok, lambda d: d.update(normalizer=precompiled(d)))
    tok.decoder = decoders.Metaspace()
    tok.add_special_tokens([special("<extra_id_0>", rstrip=True)])
    framed(tok, [], ["</s>"])
    return tok, None, "</s>"


def unigram_xlmr():
    """XLM-R: runs of spaces joined by a pattern, split at white space, bytes."""
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                 pre_tokenizers.Metaspace()])
    train_unigram(tok, 330, ["<s>", "<pad>", "</s>", "<unk>"])

    def change(data):
        data["model"]["vocab"] += [[b, 0.0] for b in BYTES[:250]]
        data["model"]["byte_fallback"] = True
        data["normalizer"] = {"type": "Sequence", "normalizers": [
            precompiled(data),
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    tok = edited(tok, change)
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tok.add_special_tokens([special("<mask>", lstrip=True)])
    tok.post_processor = processors.RobertaProcessing(
        ("</s>", tok.token_to_id("</s>")), ("<s>", tok.token_to_id("<s>")))
    return tok, "<s>", "</s>"


def unigram_bytes():
    """Unigram over the byte alphabet, on unsplit text."""
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tok.train_from_iterator(text(), trainers.UnigramTrainer(
        vocab_size=450, show_progress=False, special_tokens=["<unk>"], unk_token="<unk>",
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), max_piece_length=6))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok.normalizer = normalizers.NFD()
    tok.decoder = decoders.ByteLevel()
    return tok, None, None


WORDPIECE = {"unk_token": "[UNK]"}


def train_wordpiece(tok, size):
    tok.train_from_iterator(text(), trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=90,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))


def bert():
    tok = Tokenizer(models.WordPiece(**WORDPIECE))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    train_wordpiece(tok, 420)
    tok.decoder = decoders.WordPiece(cleanup=True)
    tok.post_processor = processors.BertProcessing(
        ("[SEP]", tok.token_to_id("[SEP]")), ("[CLS]", tok.token_to_id("[CLS]")))
    tok.add_tokens([AddedToken("New York", normalized=True), AddedToken("n't")])
    return tok, "[CLS]", "[SEP]"


def bert_cased():
    """BERT with case, other splits, and no decoder."""
    tok = Tokenizer(models.WordPiece(max_input_chars_per_word=12, **WORDPIECE))
    tok.normalizer = normalizers.Sequence([
        normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=True),
        normalizers.StripAccents()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous")])
    train_wordpiece(tok, 400)
    return tok, "[CLS]", "[SEP]"


def falcon():
    """Stages after ByteLevel, which see the byte alphabet."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(text(), trainers.BpeTrainer(
        vocab_size=420, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_special_tokens([special("<|endoftext|>"), special(">>QUESTION<<")])
    return tok, None, "<|endoftext|>"


def suffix_bpe():
    """Pretokens that end in a suffix, and a decoder that looks at the last token."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tok.normalizer = normalizers.Sequence([
        normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Lowercase(), normalizers.Strip()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next")])
    train_bpe(tok, 420, end_of_word_suffix="</w>", special_tokens=["<unk>"])
    tok.decoder = decoders.BPEDecoder("</w>")
    tok.add_special_tokens([special("<end>")])
    return tok, None, "<end>"


def prefix_bpe():
    """Merges of pieces that begin with a prefix."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##",
                               fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\s"), "removed"), pre_tokenizers.Digits(True)])
    train_bpe(tok, 420, continuing_subword_prefix="##", special_tokens=["<unk>"])
    tok.decoder = decoders.Sequence([decoders.WordPiece(cleanup=False), decoders.Fuse(),
                                     decoders.Strip("e", 2, 1)])
    return tok, None, None


def write_spm(folder, name):
    """A tokenizer.model by SentencePiece; returns its library's encoder."""
    import sentencepiece
    rules = os.path.join(folder, "rules.tsv")
    how = {"spm-file-bpe": {
        "model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity", "user_defined_symbols": ["<tool>", "▁▁"]},
        "spm-file-unigram": {"model_type": "unigram", "normalization_rule_tsv": rules}}[name]
    with open(rules, "w", encoding="ascii") as f:
        for key, by in (r for r in RULES if r[0] != r[1]):
            f.write(" ".join(f"{ord(c):X}" for c in key) + "\t" +
                    " ".join(f"{ord(c):X}" for c in by) + "\n")
    lines = [line.strip() for line in text() if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=os.path.join(folder, "tokenizer"),
        vocab_size=600 if "byte_fallback" in how else 350, character_coverage=0.98,
        hard_vocab_limit=False, minloglevel=2, num_threads=1, **how)
    os.remove(rules)
    os.remove(os.path.join(folder, "tokenizer.vocab"))
    return sentencepiece.SentencePieceProcessor(
        model_file=os.path.join(folder, "tokenizer.model")).encode


SPM = ("spm-file-bpe", "spm-file-unigram")
KINDS = {"spm-llama": spm_llama, "spm-gemma": spm_gemma, "spm-first": spm_first,
         "unigram-t5": unigram_t5, "unigram-xlmr": unigram_xlmr,
         "unigram-bytes": unigram_bytes, "bert": bert, "bert-cased": bert_cased,
         "falcon": falcon, "suffix-bpe": suffix_bpe, "prefix-bpe": prefix_bpe}

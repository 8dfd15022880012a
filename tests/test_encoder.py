"""The tokenizer agrees with tiktoken, and has the properties that hold for any text and any ids.

Some tests need GPT-2's own vocabulary (encoder.json and vocab.bpe).  They look for it in the folder that the
environment variable GPT2_VOCAB names, then in models/, and are skipped without it.  The others build a small
vocabulary of their own.
"""
import json
import os
import random
import re
import unicodedata
from pathlib import Path

import pytest
from helpers import ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st

from encoder import CHUNKS, EOS, Encoder, bytes_to_unicode
from utils import load_encoder

FOLDERS = [Path(os.environ["GPT2_VOCAB"])] if "GPT2_VOCAB" in os.environ else []
FOLDERS += [ROOT / "models" / name for name in ("124M", "355M", "774M", "1558M", "distilgpt2")]
WHERE = next((folder for folder in FOLDERS
              if list(folder.glob("encoder.json")) or list(folder.glob("vocab.json"))), None)
needs_vocabulary = pytest.mark.skipif(WHERE is None,
                                      reason="GPT-2's vocabulary was not found: set GPT2_VOCAB to its folder")

MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("o", "n"), ("a", "a"), ("aa", "aa"), ("l", "l"),
          ("Ã", "©"), ("Ġ", "Ġ"), ("ð", "Ł"), ("ðŁ", "ĺ")]
TOKENS = [*bytes_to_unicode().values(), *map("".join, MERGES), EOS]
BYTE_OF = {char: byte for byte, char in bytes_to_unicode().items()}
SMALL = Encoder({token: i for i, token in enumerate(TOKENS)}, MERGES)


@pytest.fixture(scope="module")
def gpt2_encoder():
    return load_encoder(WHERE)


@pytest.fixture(scope="module")
def gpt2_tiktoken():
    """tiktoken with GPT-2's pattern and this folder's vocabulary, so that nothing is downloaded."""
    tiktoken = pytest.importorskip("tiktoken")
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    names = ("vocab.bpe", "encoder.json") if (WHERE / "vocab.bpe").exists() else ("merges.txt", "vocab.json")
    ranks = data_gym_to_mergeable_bpe_ranks(*(str(WHERE / name) for name in names))
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    return tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={EOS: 50256})


# Any vocabulary ---------------------------------------------------------------------------------------------

def merged_one_after_another(symbols, merges):
    """In the order of training: every pair of the list in turn, wherever it occurs, from left to right."""
    for pair in merges:
        i = 0
        while i < len(symbols) - 1:
            if (symbols[i], symbols[i + 1]) == pair:
                symbols = [*symbols[:i], "".join(pair), *symbols[i + 2:]]
            i += 1
    return symbols


def test_symbols_are_merged_in_the_order_of_the_list():
    rng, n_merged = random.Random(0), 0
    # two letters give equal ranks, overlaps and long chains
    for _ in range(300):
        tokens, merges = ["a", "b"], []
        while len(merges) < 8:
            pair = rng.choice(tokens), rng.choice(tokens)
            if "".join(pair) not in tokens:
                merges.append(pair)
                tokens.append("".join(pair))
        symbols = rng.choices("ab", k=rng.randrange(1, 30))
        encoder = Encoder({}, merges)
        expected = merged_one_after_another(symbols, merges)
        assert encoder.merge(list(symbols)) == expected, (symbols, merges)
        n_merged += len(symbols) - len(expected)
    assert n_merged > 1000


@pytest.mark.parametrize("text, chunks", [
    ("Hello world", ["Hello", " world"]), ("it's HE'S we'll", ["it", "'s", " HE", "'", "S", " we", "'ll"]),
    ("a  b", ["a", " ", " b"]), ("a   ", ["a", "   "]), ("a \n b", ["a", " \n", " b"]),
    ("a\nb", ["a", "\n", "b"]), ("\r\n\r\nx", ["\r\n\r", "\n", "x"]),
    ("x1234.5", ["x", "1234", ".", "5"]), ("a\u00a0b", ["a", "\u00a0", "b"]),
    ("no-one's!?", ["no", "-", "one", "'s", "!?"])])
def test_text_is_cut_into_words_numbers_punctuation_and_space(text, chunks):
    assert CHUNKS.findall(text) == chunks


def test_bytes_to_unicode_is_openais():
    """Each byte has a letter of its own, none of them is a space, and some well-known ones are right."""
    table = bytes_to_unicode()
    assert sorted(table) == list(range(256)) and len(set(table.values())) == 256
    assert not any(char.isspace() for char in table.values())
    assert [table[byte] for byte in (*b"!~ \n", 0, 127, 173, 255)] == ["!", "~", "Ġ", "Ċ", "Ā", "ġ", "Ń", "ÿ"]


@given(st.lists(st.integers(-5, len(TOKENS) + 5)))
@settings(max_examples=100)
def test_any_list_of_ids_can_be_decoded(ids):
    """An unknown id shows as a replacement character."""
    known = {i: bytes(BYTE_OF[char] for char in token) for i, token in enumerate(TOKENS)}
    assert SMALL.decode(ids) == b"".join(known.get(i, b"\xff") for i in ids).decode("utf-8", errors="replace")


def streamed(ids, width):
    show = SMALL.stream()
    return [show(ids[i:i + width]) for i in range(0, len(ids), width)] + [show([], final=True)]


@given(st.text(), st.lists(st.integers(0, len(TOKENS) - 1)), st.integers(1, 4))
@example("e\u0301 👩\u200d👩\u200d👧 \U0010ffff\x00", [], 1)
@settings(max_examples=20)
def test_a_stream_joins_to_the_text_and_shows_no_broken_character(text, ids, width):
    pieces = streamed(SMALL.encode(text), width)
    assert "".join(pieces) == text
    assert all(text.startswith("".join(pieces[:n])) for n in range(len(pieces)))    # never a broken character
    assert "".join(streamed(ids, width)) == SMALL.decode(ids)


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "ok \ud83d\ude00"], ids=ascii)
def test_a_lone_surrogate_is_a_value_error_that_says_so(text):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        SMALL.encode(text)
    assert SMALL.decode(SMALL.encode("ok 😀")) == "ok 😀"


def test_the_end_of_text_token_in_a_text_is_text():
    assert SMALL.eos == TOKENS.index(EOS) and SMALL.eos not in SMALL.encode(EOS)
    assert SMALL.decode([SMALL.eos]) == EOS == SMALL.decode(SMALL.encode(EOS))


# Files ------------------------------------------------------------------------------------------------------

VERSION = "#version: 0.2"
IDS = {token: i for i, token in enumerate(TOKENS)}
LINES = (VERSION, *map(" ".join, MERGES))


def write(folder, ids=IDS, lines=LINES, names=("encoder.json", "vocab.bpe"), newline="\n", encoding="utf-8"):
    (folder / names[0]).write_bytes(json.dumps(ids, ensure_ascii=False).encode(encoding))
    (folder / names[1]).write_bytes((newline.join(lines) + newline).encode(encoding))


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "windows"])
def test_both_line_ends_give_the_same_encoder(tmp_path, newline):
    write(tmp_path, newline=newline)
    encoder = load_encoder(str(tmp_path))
    assert encoder.ids == IDS and encoder.ranks == SMALL.ranks
    assert encoder.eos == SMALL.eos and encoder.n_vocab == len(TOKENS)
    assert encoder.encode("the then aaaa é 😀") == SMALL.encode("the then aaaa é 😀")


def test_a_vocabulary_without_end_of_text_has_no_eos(tmp_path):
    write(tmp_path, ids={token: i for token, i in IDS.items() if token != EOS})
    assert load_encoder(tmp_path).eos is None


def numbered(tokens):
    return {token: i for i, token in enumerate(tokens)}


DAMAGED = {
    "ids are a list": dict(ids=TOKENS),
    "an id is missing": dict(ids={token: i for token, i in IDS.items() if i != 250}),
    "an id is there twice": dict(ids=IDS | {TOKENS[5]: 6}),
    "an id is text": dict(ids=IDS | {TOKENS[5]: "5"}),
    "a merged token is missing": dict(ids=numbered(t for t in TOKENS if t != "aaaa")),
    "a merge of three": dict(lines=[line.replace("Ġt he", "Ġ t he") for line in LINES]),
    "merges are a web page": dict(lines=("<!DOCTYPE html>", "<html><body>404</body></html>")),
    "the last merges are missing": dict(lines=LINES[:-3]),
    "a merge is there twice": dict(lines=(*LINES, *LINES[-2:])),
    "the files are UTF-16": dict(encoding="utf-16"),
    "a token that nothing makes": dict(ids=IDS | {"unheard-of": len(TOKENS)}),
}


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_vocabulary_is_a_value_error_that_names_the_folder(tmp_path, change):
    write(tmp_path, **change)
    with pytest.raises(ValueError, match=f"{tmp_path.name}.*(fetch (it|its files) again|not UTF-8)"):
        load_encoder(tmp_path)


def test_a_byte_without_a_token_is_left_out_with_a_note(tmp_path, recwarn):
    """As in transformers: before pairs are merged."""
    write(tmp_path, ids=numbered(TOKENS[1:]))                   # without "!"
    encoder = load_encoder(tmp_path)
    assert encoder.decode(encoder.encode("the é")) == "the é" and not recwarn
    assert encoder.encode("the!") == encoder.encode("the") and "are left out" in str(recwarn[0].message)
    assert encoder.merge([*"t!he"]) == encoder.merge([*"the"])


# Settings in Hugging Face's files ---------------------------------------------------------------------------

def token(text, i=0, **flags):
    return dict(content=text, id=i, lstrip=False, rstrip=False, single_word=False) | flags


def template(*names):
    single = [{"Sequence": {"id": "A"}} if name == "A" else {"SpecialToken": {"id": name}} for name in names]
    return dict(type="TemplateProcessing", single=single,
                special_tokens={name: {"ids": [IDS[name]]} for name in names if name in IDS})


WHOLE = dict(normalizer=None, post_processor=None, added_tokens=[token(EOS, IDS[EOS])], pre_tokenizer=dict(
    type="ByteLevel", add_prefix_space=False), model=dict(type="BPE", vocab=IDS, merges=MERGES, dropout=None))
N, THE, A, SPACE_A = len(TOKENS), [*SMALL.encode(" the")], *SMALL.encode("a"), SMALL.encode(" a")
SETTINGS = {        # what the files hold, a text, its ids
    "a special token that nothing adds": ({"vocab": IDS | {"<|user|>": N}}, "a", [A]),
    "a space before": ({"tokenizer_config": {"add_prefix_space": True}}, "the", THE),
    "a space before, there already": ({"tokenizer_config": {"add_prefix_space": True}}, " the", THE),
    "a space before, in tokenizer.json": (
        {"tokenizer": WHOLE | dict(pre_tokenizer=dict(type="ByteLevel", add_prefix_space=True))}, "the", THE),
    "BOS": ({"tokenizer_config": {"add_bos_token": True}}, "a", [IDS[EOS], A]),
    "EOS": ({"tokenizer_config": {"add_eos_token": True}}, "a", [A, IDS[EOS]]),
    "a template": ({"tokenizer": WHOLE | dict(post_processor=template(EOS, "A", "!"))}, "a", [
        IDS[EOS], A, IDS["!"]]),
    "merges in one string": ({"tokenizer": WHOLE | dict(model=WHOLE["model"] | dict(
        merges=[*map(" ".join, MERGES)]))}, " the", THE),
    "a token": ({"added_tokens": {"<|user|>": N}}, "a<|user|>a", [A, N, A]),
    "a token with settings": ({"tokenizer_config": {"added_tokens_decoder": {N: token("<|user|>")}}},
                              "a<|user|>", [A, N]),
    "a token in tokenizer.json": (
        {"tokenizer": WHOLE | dict(added_tokens=[token("<|user|>", N)])}, "<|user|>a", [N, A]),
    "tokens that have only names": ({"tokenizer_config": {"pad_token": "[PAD]", "additional_special_tokens": [
        "[PAD]2"]}, "special_tokens_map": {"eos_token": token("<end>")}}, "[PAD]2[PAD]<end>", [N + 2, N + 1, N]),
    "a space after a token": ({"tokenizer_config": {"add_prefix_space": True, "pad_token": "[PAD]"}},
                              "a[PAD]a", [*SPACE_A, N, *SPACE_A]),
    **{f"the end of a text is one token {where}": (files, f"a{EOS}a", [A, IDS[EOS], A]) for where, files in {
        "in tokenizer.json": {"tokenizer": WHOLE}, "by default": {}, "by default beside another": {
            "special_tokens_map": {"eos_token": "!"}}}.items()},
    **{f"the end of a text is text {where}": (files, EOS, SMALL.encode(EOS)) for where, files in {
        "if nothing names it": {"tokenizer_config": dict.fromkeys(("bos_token", "eos_token", "unk_token"))},
        "for another class": {"tokenizer": WHOLE | dict(added_tokens=[]), "tokenizer_config": {
            "tokenizer_class": "PreTrainedTokenizerFast"}}}.items()},
}


def write_settings(folder, files):
    write(folder, names=("vocab.json", "merges.txt"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


@pytest.mark.parametrize("files, text, ids", SETTINGS.values(), ids=SETTINGS)
def test_what_hugging_faces_files_say_of_a_text_is_done(tmp_path, files, text, ids):
    write_settings(tmp_path, files)
    encoder = load_encoder(tmp_path)
    assert encoder.encode(text) == ids


OTHERWISE = {       # what the files hold, what the sentence says
    "small letters": ({"tokenizer": WHOLE | dict(normalizer=dict(type="Lowercase"))}, "normalizer: .*Lowercase"),
    "other chunks": ({"tokenizer": WHOLE | dict(pre_tokenizer=dict(type="Whitespace"))}, "type: .Whitespace"),
    "no BPE": ({"tokenizer": WHOLE | dict(model=dict(type="Unigram", vocab=[]))}, "Unigram.*: load the weights from Py"),
    "no chunks": ({"tokenizer": WHOLE | dict(pre_tokenizer=None)}, "type: null"),
    "at random": ({"tokenizer": WHOLE | dict(model=WHOLE["model"] | dict(dropout=.1))}, "dropout: 0.1"),
    "another template": ({"tokenizer": WHOLE | dict(post_processor=dict(type="RobertaProcessing"))}, "Roberta"),
    "two templates": ({"tokenizer": WHOLE, "tokenizer_config": {"add_bos_token": True}}, "make them agree"),
    "another class": ({"tokenizer_config": {"tokenizer_class": "BertTokenizer"}}, "BertTokenizer"),
    "special tokens as text": ({"tokenizer_config": {"split_special_tokens": True}}, "split_special_tokens"),
    "a greedy token": ({"tokenizer": WHOLE | dict(added_tokens=[token("x", N, lstrip=True)])}, "'x' has lstrip"),
    "other merges": ({"tokenizer": WHOLE | dict(model=WHOLE["model"] | dict(merges=MERGES[::-1]))}, "differ: keep"),
    "two ids": ({"added_tokens": {"[PAD]": N + 1}, "tokenizer": WHOLE | dict(added_tokens=[token("[PAD]", N + 2)])},
                "do not fit together"),
}


@pytest.mark.parametrize("files, says", OTHERWISE.values(), ids=OTHERWISE)
def test_what_hugging_faces_files_say_and_is_not_done_here_is_refused(tmp_path, files, says):
    write_settings(tmp_path, files)
    with pytest.raises(ValueError, match=f"cannot read the vocabulary in .*{tmp_path.name}: .*{says}"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("config, generation, eos", [
    ({"a": 1}, None, None), ({"eos_token_id": 5}, None, 5), ({"eos_token_id": [5, 6]}, {"eos_token_id": [5, 7]}, [5, 7]),
    ({"eos_token_id": None}, {"eos_token_id": 9}, 9), ({"eos_token_id": 5}, {"top_k": 5}, None)])
def test_a_text_ends_where_transformers_generate_ends_and_another_eos_token_is_noted(tmp_path, config, generation, eos):
    """By default it is 50256, which this small vocabulary lacks."""
    files = {"config": config} | ({} if generation is None else {"generation_config": generation})
    write_settings(tmp_path, files | {"special_tokens_map": {"eos_token": "!"}})
    ends = (generation or config).get("eos_token_id", None if generation else 50256)
    said = re.escape(f"eos_token is '!' (id 0), and the model's eos_token_id {ends}:")
    with pytest.warns(UserWarning, match=said):
        assert load_encoder(tmp_path).eos == eos


@pytest.mark.parametrize("files, bos", [
    ({}, IDS[EOS]), ({"special_tokens_map": {"bos_token": "!"}}, 0),
    ({"tokenizer_config": {"add_bos_token": True}}, IDS[EOS]),
    ({"special_tokens_map": {"bos_token": None}, "config": {"bos_token_id": 7}}, 7)])
def test_an_empty_prompt_is_the_bos_once(tmp_path, files, bos):
    write_settings(tmp_path, files)
    encoder = load_encoder(tmp_path)
    assert (encoder.encode("") or encoder.start) == [bos]


# GPT-2's vocabulary -----------------------------------------------------------------------------------------

@needs_vocabulary
def test_known_ids_and_every_id_is_decoded_as_tiktoken_does(gpt2_encoder, gpt2_tiktoken):
    assert gpt2_encoder.encode("Hello world") == [15496, 995] and gpt2_encoder.encode("!") == [0]
    assert gpt2_encoder.eos == 50256 and gpt2_encoder.n_vocab == 50257
    assert all(gpt2_encoder.to_bytes(i) == gpt2_tiktoken.decode_bytes([i]) for i in range(50257))


@needs_vocabulary
@pytest.mark.parametrize("letters, n", [
    ("a", 20_000), ("abcdefghijklmnopqrstuvwxyz", 3_000), ([*map(chr, range(0x4e00, 0x9fa6))], 4_000)],
    ids=["one letter", "random letters", "Chinese"])
def test_a_long_text_without_a_space(gpt2_encoder, gpt2_tiktoken, letters, n):
    text = "".join(random.Random(0).choices(letters, k=n))
    ids = gpt2_encoder.encode(text)
    gpt2_encoder.cache.clear()
    assert gpt2_encoder.decode(ids) == text and ids == gpt2_tiktoken.encode_ordinary(text)


# Characters of Unicode 3.2 (2002): later ones may differ between `regex` and tiktoken, whose tables are of
# different years.
CHARACTERS = st.characters(exclude_categories=["Cs"]).filter(
    lambda char: unicodedata.ucd_3_2_0.category(char) != "Cn")
PIECES = CHARACTERS | CHARACTERS.map(lambda char: char * 3) | st.sampled_from([
    *" \n\r\t\v\f\u2028\x85\u00a0\u3000'\u2019\u200d\u0301\u20dd", " " * 7, " " * 60, "\r\n", "\n\n", *(
        "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'Ve 'x \u2019s the Hello ing 1999 3.14 caf\u00e9 \u4e2d\u6587 ! ... "
        "\U0001f469\u200d\U0001f680 \u2764\ufe0f").split()])


@needs_vocabulary
@pytest.mark.parametrize("n_texts", [300, pytest.param(50_000, marks=pytest.mark.fuzz)])
def test_random_texts_have_tiktokens_ids(gpt2_encoder, gpt2_tiktoken, n_texts):
    @settings(max_examples=n_texts)
    @given(st.lists(PIECES, max_size=40).map("".join))
    def compare(text):
        ids = gpt2_encoder.encode(text)
        assert ids == gpt2_tiktoken.encode_ordinary(text)
        assert gpt2_encoder.decode(ids) == text
    compare()
    gpt2_encoder.cache.clear()

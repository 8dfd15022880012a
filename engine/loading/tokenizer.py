"""The files of a tokenizer -> what encoder.py needs: vocabulary, merges, and the tokens around a text.

Whatever a file says about ids or the end of a text is applied, or else the folder is rejected.
"""
import json
import warnings
from pathlib import Path
from typing import NamedTuple

from engine.loading.files import expected_structure, one_sentence, read_text

EOS = "<|endoftext|>"
ADVICE = "save it as UTF-8, or fetch it again"
OTHER_KIND = "load the weights from Python (docs/your_own_models.md)"
BYTES = [chr(i) for i in (*range(33, 127), *range(161, 173), *range(174, 324))]     # encoder.bytes_to_unicode
PAIRS = ("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")         # OpenAI's, Hugging Face's
NAMED = "bos_token eos_token unk_token sep_token pad_token cls_token mask_token".split()
SPARE, USUAL = 1024, 127            # the most rows without a token, as sizes are rounded up; without a note

# The values of these keys with which a file asks for nothing that is not supported; the first is the default.
CONFIG = {"split_special_tokens": (False, None), "tokenizer_class": (
    None, "GPT2Tokenizer", "GPT2TokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")}
MODEL = {"type": ("BPE",), "dropout": (None, 0), "continuing_subword_prefix": (None, ""),
         "end_of_word_suffix": (None, ""), "ignore_merges": (False, None)}
PRE_TOKENIZER = {"type": ("ByteLevel",), "use_regex": (True,)}
ADDED = dict.fromkeys(["lstrip", "rstrip", "single_word"], (False,))


class Files(NamedTuple):
    """What the files of a tokenizer say."""
    ids: dict           # token: id
    merges: list        # of pairs of tokens, lowest rank first
    added: set          # tokens recognized in a text before it is split into chunks
    space: bool         # a space is put before each text, and each piece between added tokens, that lacks it
    around: tuple       # ([ids before each text], [ids after it])
    eos_ids: list       # the ids that end a text
    bos: int | None     # the id that an empty text becomes


def read_tokenizer(folder, n_vocab=None):
    """The Files of a folder: encoder.json + vocab.bpe (OpenAI); vocab.json + merges.txt, tokenizer.json, or
    both, with the settings in the files beside them (Hugging Face).

    n_vocab     rows of the model's token embeddings: one per token, though Hugging Face's may have a few more
    Raises ValueError if a file is missing or damaged, if two disagree, or if one is not supported.
    """
    folder = Path(folder)
    with one_sentence(f"cannot read the vocabulary in {folder}"), expected_structure():
        whole, special, config, more = (read_json(folder / f"{name}.json", optional=True) for name in (
            "tokenizer", "special_tokens_map", "tokenizer_config", "added_tokens"))
        check_keys("tokenizer_config.json", config := config | special, CONFIG)
        check_keys("tokenizer.json", whole, {"normalizer": (None,)}, OTHER_KIND)
        check_keys("tokenizer.json", whole.get("model", {}), MODEL, OTHER_KIND)
        check_keys("tokenizer.json", whole.get("pre_tokenizer", {"type": "ByteLevel"}) or {"type": None},
                   PRE_TOKENIZER, OTHER_KIND)
        openai = (folder / "encoder.json").exists()
        if not openai and config.get("tokenizer_class") in (None, "GPT2Tokenizer", "GPT2TokenizerFast"):
            config = dict.fromkeys(("bos_token", "eos_token", "unk_token"), EOS) | config
        added = list_added(whole, config, more)
        ids, merges = read_vocabulary(folder, whole, added, n_vocab)
        check_vocabulary(ids, merges, added)
        n_spare = 0 if n_vocab is None else n_vocab - len(ids)
        if not 0 <= n_spare <= SPARE:
            raise ValueError(f"it has {len(ids)} tokens, and the model beside it {n_vocab}: keep one model's "
                             "files, or call model.resize_token_embeddings(len(tokenizer)) and save both")
        if n_spare > USUAL:
            warnings.warn(f"{folder}: {n_spare} rows of the model have no token: is this its tokenizer?",
                          stacklevel=3)
        space = config.get("add_prefix_space", whole and whole["pre_tokenizer"].get("add_prefix_space"))
        around, eos_ids, bos = read_template(whole, config, ids), *list_ends(folder, config, ids)
    as_text = {EOS} if openai else {}
    return Files(ids, merges, (added.keys() - as_text) & ids.keys(), bool(space), around, eos_ids, bos)


def read_json(path, optional=False):
    """The JSON object in a UTF-8 file, with or without a byte order mark; {} if it is optional and missing.
    Raises ValueError.
    """
    if optional and not path.exists():
        return {}
    text = read_text(path, ADVICE)
    try:
        return {**json.loads(text)}
    except (ValueError, RecursionError, TypeError) as error:    # TypeError: it holds something else
        raise ValueError(f"{path.name} is damaged ({error}): fetch it again") from None


def check_keys(file, found, plain, advice="use a plain GPT-2"):
    """Raises ValueError if a key has another value than those in `plain`, the first of which is the default.
    """
    for key, values in plain.items():
        if found.get(key, values[0]) not in values:
            raise ValueError(f"{file} has {key}: {json.dumps(found[key])[:100]}, and only "
                             f"{' or '.join(map(json.dumps, values))} is supported: {advice}")


def list_added(whole, config, more):
    """{token: id} of the tokens that Hugging Face's files add to a vocabulary; None if no file has the id."""
    extra = config.get("extra_special_tokens") or []
    named = [*map(config.get, NAMED), *(config.get("additional_special_tokens") or []),
             *(extra.values() if isinstance(extra, dict) else extra)]
    added = [(int(i), token) for i, token in config.get("added_tokens_decoder", {}).items()]
    added += [(token["id"], token) for token in whole.get("added_tokens", [])]
    for token in named + [token for _, token in added]:
        check_keys(f"the token {text_of(token)!r}", token if isinstance(token, dict) else {}, ADDED)
    return {text_of(token): None for token in named if token} | more | {text_of(t): i for i, t in added}


def text_of(token):
    return token["content"] if isinstance(token, dict) else token


def read_vocabulary(folder, whole, added, n_vocab):
    """({token: id}, merges), `added` included.  Raises ValueError if there are none, or if two differ."""
    found = {"tokenizer.json": (whole["model"]["vocab"], whole["model"]["merges"])} if whole else {}
    for files in PAIRS:
        if all((folder / file).exists() for file in files):
            lines = read_text(folder / files[1], ADVICE).split("\n")
            found[files[0]] = (read_json(folder / files[0]),
                               [line.strip() for line in lines if line and not line.startswith("#version")])
    if not found:
        from engine.loading.advice import instead_of_vocabulary  # here: it is needed for nothing else
        raise ValueError(instead_of_vocabulary(folder, n_vocab))
    known = {token: i for token, i in added.items() if i is not None}
    (ids, merges), *others = [
        (ids | known, [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges])
        for ids, merges in found.values()]
    if any(other != (ids, merges) for other in others):
        raise ValueError(f"{' and '.join(found)} differ: keep the files of one model")
    for token in added:                                         # the others get the next ids
        if token != EOS or n_vocab is None or len(ids) < n_vocab:
            ids.setdefault(token, len(ids))
    return ids, merges


def check_vocabulary(ids, merges, added):
    """Raises ValueError unless the ids are 0 .. n - 1, and the tokens are bytes, results of merges, added
    tokens, or begin like a special token.
    """
    made = {*map("".join, merges)}
    strange = [t for t in ids.keys() - made - added.keys() - {*BYTES} if not t.startswith(("<", "["))]
    if ({*map(type, ids.values())} != {int} or sorted(ids.values()) != [*range(len(ids))]
            or any(len(pair) != 2 for pair in merges) or len({*merges}) < len(merges)
            or strange or not made <= ids.keys()):
        unknown = f" (what is {strange[0]!r}?)" if strange else ""
        raise ValueError(f"tokens and merges do not fit together{unknown}: fetch its files again")


def read_template(whole, config, ids):
    """([ids before a text], [ids after it]), from tokenizer.json and tokenizer_config.json."""
    post, around = whole.get("post_processor") or {}, ([], [])
    for step in post.get("processors", [post]):                 # a Sequence has several
        check_keys("tokenizer.json", step, {"type": ("ByteLevel", "TemplateProcessing")})
        side = 0
        for part in step.get("single", []):                     # special tokens, the text, special tokens
            side += "Sequence" in part
            if "SpecialToken" in part:
                around[side].extend(step["special_tokens"][part["SpecialToken"]["id"]]["ids"])
    for name, side in zip(("bos_token", "eos_token"), around):
        asked = config.get(f"add_{name}")
        if whole and asked not in (None, bool(side)):
            raise ValueError(f"tokenizer_config.json has add_{name}: {json.dumps(asked)}, and tokenizer.json "
                             "does otherwise: make them agree")
        if asked and not side:
            side.append(ids[text_of(config.get(name)) or EOS])
    return around


def list_ends(folder, tokenizer, ids):
    """(the ids that end a text, as in transformers' generate(); the id of BOS or None)

    Those that end it are in generation_config.json if there is one, or else in config.json, or else EOS.
    """
    config, generation = (read_json(folder / f"{name}.json", optional=True)
                          for name in ("config", "generation_config"))
    default = 50256 if (folder / "config.json").exists() else ids.get(EOS)
    found = generation.get("eos_token_id") if generation else config.get("eos_token_id", default)
    several = found if isinstance(found, list) else [found]
    if not {*map(type, several)} <= {int, type(None)}:
        raise ValueError(f"eos_token_id is {found}: it must be an id, several, or null")
    ends = sorted({*several} & {*ids.values()})
    token = text_of(tokenizer.get("eos_token"))
    if config and token in ids and ids[token] not in ends:
        warnings.warn(f"{folder}: the tokenizer's eos_token is {token!r} (id {ids[token]}), and the model's "
                      f"eos_token_id {found}: a text ends at the latter, as in transformers", stacklevel=4)
    bos = ids.get(text_of(tokenizer.get("bos_token", EOS)), config.get("bos_token_id"))
    return ends, bos if bos in ids.values() else None


def with_token(symbols, ids):
    """The bytes of a chunk, as characters, that have a token; with a warning if some have none.

    Vocabularies trained without initial_alphabet=ByteLevel.alphabet() have none for bytes that their text
    lacked.
    """
    known = [symbol for symbol in symbols if symbol in ids]
    if len(known) < len(symbols):
        warnings.warn("the model's vocabulary has no token for some bytes of the prompt: they are left out, "
                      "as in transformers", stacklevel=5)
    return known


def noted(text, added):
    """The text, with a warning of an EOS in it that is not one token."""
    if EOS in text and EOS not in added.values():
        warnings.warn(f"{EOS} in the prompt is text, as in OpenAI's encoder and 124M by name, and not the "
                      "one token that it is for gpt2 from Hugging Face's hub", stacklevel=3)
    return text

"""What to do about a folder without weights, or without a vocabulary, that can be read: a sentence that names
what is there instead.  Imported only then.
"""
import fnmatch
import re

from engine.loading.tokenizer import OTHER_KIND, read_json

SAVE = "AutoModelForCausalLM.from_pretrained(FOLDER{}).save_pretrained(NEW) writes model.safetensors"
INSTEAD = {         # files that may be there instead of supported weights: what they are, and what to do
    "adapter_config.json": "an adapter, not a model: save what merge_and_unload() of peft makes of it",
    "model-*-of-*.safetensors": "a part of the weights: fetch model.safetensors.index.json, too",
    "pytorch_model-*-of-*.bin": "a part of the weights: fetch pytorch_model.bin.index.json, too",
    **dict.fromkeys(("*.incomplete", "*.part", "*.crdownload"),
                    "a download that has not finished: wait for it, or start it again"),
    "*.weights.h5": "Keras's: keras_hub.models.GPT2CausalLM.from_preset(FOLDER).export_to_transformers(NEW)",
    "gpt2_*.bin": "llm.c's: python dev/eval/export_hf.py -i FILE -o NEW -d float32, in its repository",
    "*.npz": "NumPy's: safetensors.numpy.save_file(dict(numpy.load(FILE)), 'model.safetensors')",
    "tf_model*": f"Keras's: in version 4 of transformers, {SAVE.format(', from_tf=True')}",
    "flax_model*": f"Flax's: in version 4 of transformers, {SAVE.format(', from_flax=True')}",
    **dict.fromkeys(("*onnx", "*.gguf", "*.bin"),                   # ggml, CTranslate2, OpenVINO
                    "an export: name the folder of the model that it was made from")}
ALMOST = {          # the same, in a folder
    "*.safetensors": "not named as a model's weights are: if they are this model's, rename it to "
                     "model.safetensors",
    "*.data-*-of-*": "a part of a checkpoint: fetch its .index, too"}
TOKENIZERS = {"vocab.txt": "WordPiece", "spiece.model": "SentencePiece", "tokenizer.model": "SentencePiece",
              "sentencepiece.bpe.model": "SentencePiece", "meta.pkl": "characters, as in nanoGPT"}


def instead_of_weights(folder, names):
    """What to do if these names in a folder are not those of supported weights."""
    steps = [name for name in names if re.fullmatch("checkpoint-[0-9]+", name)]
    if steps:
        newest = folder / max(steps, key=lambda name: int(name.rpartition("-")[2]))
        return f"it is the output folder of a training run: name its newest checkpoint, {newest}"
    for pattern, what in (INSTEAD | ALMOST).items():
        if there := fnmatch.filter(names, pattern):
            return f"{there[0]} is {what}"
    names = sorted(names, key=lambda name: name.endswith((".json", ".txt", ".md")))
    return (f"it holds {', '.join(names[:5]) or 'nothing'}, and no model.safetensors, no model.ckpt.index "
            "(OpenAI), no pytorch_model.bin and no ckpt.pt (nanoGPT): name the folder of the model")


def instead_of_vocabulary(folder, n_vocab):
    """What to do if a folder has no vocabulary that is supported, for a model of n_vocab tokens, if known."""
    for file, kind in TOKENIZERS.items():
        if (folder / file).exists():
            return (f"its tokenizer is of another kind ({file}: {kind}), and only byte-level BPE is known: "
                    f"{OTHER_KIND}")
    eos = read_json(folder / "config.json", optional=True).get("eos_token_id", 50256)
    source = f", as its {n_vocab} tokens are not those of OpenAI's GPT-2"
    if eos == 50256 and n_vocab in (None, *range(50257, 50305)):
        source = f" (OpenAI's: hf download openai-community/gpt2 vocab.json merges.txt --local-dir {folder})"
    return f"it has neither tokenizer.json nor vocab.json with merges.txt: copy them from its source{source}"

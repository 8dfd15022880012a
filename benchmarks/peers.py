"""Next to llama.cpp and to transformers on PyTorch: the same weights in float32, machine and hour.  By hand:

    python -m benchmarks.peers --llama_cpp=llama.cpp/build/bin      greedy tokens a second, alone and speculative

transformers is measured if it is installed, llama.cpp if --llama_cpp names the folder of its programs;
benchmarks/results/peers.md says how ours were built.  Each takes its turn, A B C A B C, and the numbers are medians.
llama.cpp's programs print their times themselves, loading left out.

But: on the CPU only, and the embedded pair.  llama.cpp keeps keys and values in half precision, its default.
"""
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import console
from benchmarks.counts import DRAFT, HERE, TARGET
from compute.backend import clock
from compute.linear import THREADS
from loading.folder import read_folder
from loading.to_gguf import write_gguf
from methods import Models, choose

GREEDY = "--temp", 0, "--ignore-eos", "--no-escape"
METHOD = choose("model", "token")


def our_run(models, prompts, n_tokens, K):
    """(seconds a token, the text after each prompt); K is None for the target alone.  So are all others."""
    sampler = METHOD.baseline if K is None else METHOD.sampler(METHOD.pair(models, [], K, {}))
    start, texts = clock(), []
    for tokens in prompts:
        rounds = sampler(models.draft, models.target, tokens, n_tokens, K, np.random.default_rng(0), temperature=0)
        texts.append([token for r in rounds for token in r.tokens])
    return (clock() - start) / (n_tokens * len(prompts)), list(map(models.encoder.decode, texts))


# transformers -----------------------------------------------------------------------------------------------

def to_transformers(hparams, arrays):
    """The weights as a GPT2LMHeadModel."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(vocab_size=hparams["n_vocab"], n_positions=hparams["n_ctx"], n_embd=hparams["n_embd"],
                        n_layer=hparams["n_layer"], n_head=hparams["n_head"], bos_token_id=None,
                        eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            array = np.array(arrays[openai_name(name)], dtype=np.float32)
            parameter.copy_(torch.from_numpy(array).reshape(parameter.shape))
    return model


def openai_name(name):
    """
    >>> [openai_name(name) for name in ("transformer.h.3.attn.c_attn.weight", "transformer.wte.weight")]
    ['model/h3/attn/c_attn/w', 'model/wte']
    """
    name = name.removeprefix("transformer.")
    for pattern, replacement in ((r"^h\.", "h"), (r"(w.e)\.weight", r"\1"), (r"(ln_.)\.weight", r"\1/g"),
                                 (r"\.weight", "/w"), (r"\.bias", "/b"), (r"\.", "/")):
        name = re.sub(pattern, replacement, name)
    return f"model/{name}"


def transformers_run(assistant, target, encoder, prompts, n_tokens, K):
    """By `generate`, with an assistant that always drafts K tokens."""
    import torch
    torch.set_num_threads(THREADS)
    if K is not None:
        assistant.generation_config.update(num_assistant_tokens=K, num_assistant_tokens_schedule="constant",
                                           assistant_confidence_threshold=0.0)
    settings = {} if K is None else {"assistant_model": assistant}
    start, texts = clock(), []
    for tokens in prompts:
        ids = torch.tensor([tokens])
        text = target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                               max_new_tokens=n_tokens, min_new_tokens=n_tokens, **settings)
        texts.append(encoder.decode(text[0, len(tokens):].tolist()))
    return (clock() - start) / (n_tokens * len(prompts)), texts


# llama.cpp --------------------------------------------------------------------------------------------------

def figures_of(pattern, folder, name, *words):
    """(numbers of the pattern in what the program prints, its standard output).

    These programs log in a thread of its own, and now and then end before it has written all: then once more.
    """
    command = [str(Path(folder) / name), *map(str, words), "-t", str(THREADS)]
    for _ in range(10):
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode:
            last = (done.stderr.strip() or "nothing").splitlines()[-1]
            raise ValueError(f"{name} ended with status {done.returncode} and said: {last}")
        found = re.search(pattern, done.stdout + done.stderr, re.DOTALL)
        if found:
            return [float(group) for group in found.groups()], done.stdout
    raise ValueError(f"{name} prints its times in words that are not known here: take another version of it")


def llama_run(programs, draft, target, prompts, n_tokens, K):
    """By llama.cpp's programs, a process for each prompt.  Speculative, it may say a few tokens more."""
    seconds, texts = [], []
    for prompt in prompts:
        words = "-m", target, "-p", prompt, "-n", n_tokens, *GREEDY
        if K is None:
            (ms,), text = figures_of(r"total time = +([\d.]+) ms", programs, "llama-completion", *words, "-no-cnv",
                                     "--no-display-prompt")
            seconds.append(ms / 1e3 / n_tokens)
        else:
            (encoding, n, decoding), text = figures_of(
                r"encoded +\d+ tokens in +([\d.]+) seconds.*decoded +(\d+) tokens in +([\d.]+) seconds",
                programs, "llama-speculative-simple", *words, "-md", draft, "--spec-type", "draft-simple",
                "--spec-draft-n-max", K)
            seconds.append((encoding + decoding) / n)
            text = text.lstrip("\n").removeprefix(prompt)
        texts.append(text)
    return sum(seconds) / len(seconds), texts


# The table --------------------------------------------------------------------------------------------------

def runs_of(llama_cpp, folder, models, n_tokens):
    """{program: K -> (seconds a token, texts)}; who is not there gets a sentence on standard error."""
    lines = (HERE / "prompts.txt").read_text(encoding="utf-8").splitlines()
    prompts = [models.encoder.encode(line) for line in lines]
    files = [read_folder(HERE.parent / "models" / name) for name in (DRAFT, TARGET)]
    runs = {"here": partial(our_run, models, prompts, n_tokens)}
    if llama_cpp:
        paths = [Path(folder) / f"{name}.gguf" for name in (DRAFT, TARGET)]
        for path, weights in zip(paths, files):
            write_gguf(path, *weights, models.encoder)
        runs["llama.cpp"] = partial(llama_run, llama_cpp, *paths, lines, n_tokens)
    else:
        print("llama.cpp is left out: name its programs' folder with --llama_cpp=FOLDER", file=sys.stderr)
    try:
        pair = [to_transformers(*weights) for weights in files]
        runs["transformers"] = partial(transformers_run, *pair, models.encoder, prompts, n_tokens)
    except ImportError:
        print("transformers is left out: pip install torch transformers", file=sys.stderr)
    return runs


def main(llama_cpp="", n_tokens=60, K=4, repetitions=3):
    """Greedy tokens a second, alone and speculative, next to llama.cpp and transformers.

    Args:
        llama_cpp: the folder of llama.cpp's programs
        n_tokens: tokens after each prompt
        K: drafts a round
        repetitions: of all programs in turns; the first more is the warm-up
    """
    with TemporaryDirectory() as folder:
        runs = runs_of(llama_cpp, folder, Models(DRAFT, TARGET), n_tokens)
        done = {(name, drafts): [] for name in runs for drafts in (None, K)}
        for _ in range(repetitions + 1):
            for (name, drafts), mine in done.items():
                mine.append(runs[name](drafts))
    speed = {key: 1 / median(seconds for seconds, _ in mine[1:]) for key, mine in done.items()}
    print("| program | alone, tokens/s | speculative | speed-up | same texts |\n| --- | --- | --- | --- | --- |")
    for name in runs:
        single, together = speed[name, None], speed[name, K]
        same = all(theirs.strip().startswith(ours.strip()) for drafts in (None, K)
                   for ours, theirs in zip(done["here", None][0][1], done[name, drafts][0][1]))
        print(f"| {name} | {single:.0f} | {together:.0f} | {together / single:.2f} | {'yes' if same else 'no'} |")


if __name__ == "__main__":
    sys.exit(console.run(main))

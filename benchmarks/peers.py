"""Next to llama.cpp and to transformers on PyTorch: the same weights in float32, machine and hour.

    against_peers(pair, K, settings)        greedy tokens a second, alone and speculative
    passes_of_peers(model, settings)        a pass over 1, 5 and 9 rows on top of a text, and a long prompt

transformers is measured where it is installed, llama.cpp where --llama_cpp names the folder of its
programs; benchmarks/results/README.md says how ours were built.  Each takes its turn, A B C A B C, and
figures are medians.  llama.cpp's programs tell their times themselves, loading left out.

But: on the CPU only.  llama.cpp keeps keys and values in half precision, its default.  llama-bench asks for
the logits of the last row alone, which flatters its passes over several rows.
"""
import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import utils
from benchmarks.measure import label, named, some_tokens
from benchmarks.pairs import alone, generate, load_pair, speculative, text_of
from benchmarks.synthetic import SIZES, random_arrays, vocabulary
from compute.backend import clock, on_gpu
from compute.threads import THREADS
from encoder import load_encoder
from loading.download import MODELS, download
from loading.folder import read_folder
from loading.to_gguf import write_gguf

PROGRAMS = "llama-bench", "llama-completion", "llama-speculative-simple"
GREEDY = "--temp", 0, "--ignore-eos", "--no-escape"
ROWS = 1, 5, 9


def available(settings):
    """Who is there to compare with; who is not gets a sentence on standard error."""
    if on_gpu():
        raise ValueError("this table is measured on the CPU: take it with --backend=numpy")
    peers = []
    if settings.llama_cpp:
        missing = [name for name in PROGRAMS if not (Path(settings.llama_cpp) / name).is_file()]
        if missing:
            raise ValueError(f"there is no {missing[0]} in {settings.llama_cpp}: "
                             "build it, or leave out --llama_cpp")
        peers.append("llama.cpp")
    else:
        print("llama.cpp is left out: name its programs' folder with --llama_cpp=FOLDER", file=sys.stderr)
    try:
        import torch
        import transformers  # noqa: F401
        torch.set_num_threads(THREADS)
        peers.append("transformers")
    except ImportError:
        print("transformers is left out: pip install torch transformers", file=sys.stderr)
    return peers


def weights(name, models_dir="models"):
    """(hparams, {OpenAI's name: array}, encoder) of a random size, or of a model's files."""
    if name in SIZES:
        return SIZES[name], random_arrays(name), vocabulary(SIZES[name]["n_vocab"])
    if name in utils.EMBEDDED:
        folder = Path(utils.__file__).resolve().parent / "models" / name
    else:
        folder = download(name, models_dir) if name in MODELS else Path(name)
    return *read_folder(folder), load_encoder(folder)


def weights_of_pair(pair, models_dir):
    """The same of draft and target."""
    if not pair.startswith("synthetic:"):
        return [weights(name, models_dir) for name in pair.split(":")]
    _, size, n_first, dial = pair.split(":")
    arrays, encoder = random_arrays(size, int(n_first), float(dial)), vocabulary(SIZES[size]["n_vocab"])
    return [(SIZES[size] | {"n_layer": int(n_first)}, arrays, encoder), (SIZES[size], arrays, encoder)]


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


def transformers_text(model, prompts, n_tokens, **assistant):
    """Greedy tokens after each prompt."""
    import torch
    texts = []
    for tokens in prompts:
        ids = torch.tensor([tokens])
        text = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                              max_new_tokens=n_tokens, min_new_tokens=n_tokens, **assistant)
        texts.append(text[0, len(tokens):].tolist())
    return texts


def transformers_passes(model, tokens, rows, n_cached, repetitions):
    """{rows: [seconds, ..]} of a pass on top of n_cached tokens.

    A verification needs the logits of every row, a prompt, on top of nothing, those of the last.
    """
    import torch
    times = {n: [] for n in rows}
    with torch.no_grad():
        cache = model(torch.tensor([tokens[:n_cached]]), use_cache=True).past_key_values if n_cached else None
        for _ in range(repetitions + 1):
            for n in rows:
                ids = torch.tensor([tokens[n_cached:n_cached + n]])
                start = clock()
                model(ids, past_key_values=cache, use_cache=True, logits_to_keep=n if n_cached else 1)
                times[n].append(clock() - start)
                if cache is not None:
                    cache.crop(-n)
    return {n: measured[1:] for n, measured in times.items()}


# llama.cpp --------------------------------------------------------------------------------------------------

def run_program(folder, name, *words):
    """(standard output, standard error) of one of llama.cpp's programs."""
    command = [str(Path(folder) / name), *map(str, words), "-t", str(THREADS)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        last = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise ValueError(f"{name} ended with status {done.returncode} and said: {last}")
    return done.stdout, done.stderr


def figures_of(pattern, folder, name, *words):
    """(numbers of the pattern in what the program prints, its standard output).

    These programs log in a thread of its own, and now and then end before it has written all: then once more.
    """
    for _ in range(10):
        out, log = run_program(folder, name, *words)
        found = re.search(pattern, out + log, re.DOTALL)
        if found:
            return [float(group) for group in found.groups()], out
    raise ValueError(f"{name} prints its times in words that are not known here: take another version of it")


def llama_alone(folder, model, prompt, n_tokens):
    """(seconds a token, text) of greedy decoding after a prompt."""
    (milliseconds,), text = figures_of(
        r"total time = +([\d.]+) ms",
        folder, "llama-completion", "-m", model, "-p", prompt, "-n", n_tokens, *GREEDY, "-no-cnv",
        "--no-display-prompt")
    return milliseconds / 1e3 / n_tokens, text


def llama_speculative(folder, draft, target, prompt, n_tokens, K):
    """The same of its speculative decoding with a draft model.  It may say a few tokens more."""
    (encoding, n_decoded, decoding), text = figures_of(
        r"encoded +\d+ tokens in +([\d.]+) seconds.*decoded +(\d+) tokens in +([\d.]+) seconds",
        folder, "llama-speculative-simple", "-m", target, "-md", draft, "-p", prompt, "-n", n_tokens, *GREEDY,
        "--spec-type", "draft-simple", "--spec-draft-n-max", K)
    return (encoding + decoding) / n_decoded, text.lstrip("\n").removeprefix(prompt)


def llama_passes(folder, model, rows, n_cached, repetitions):
    """{rows: [seconds, ..]} of a pass on top of n_cached tokens."""
    out, _ = run_program(folder, "llama-bench", "-m", model, "-p", ",".join(map(str, rows)), "-n", 0,
                         "-d", n_cached, "-r", repetitions, "-o", "json")
    return {test["n_prompt"]: [nanoseconds / 1e9 for nanoseconds in test["samples_ns"]]
            for test in json.loads(out)}


# Tokens a second --------------------------------------------------------------------------------------------

def against_peers(pair, K, settings):
    """Greedy tokens a second, alone and speculative: a row for each program, all of them taking turns."""
    peers, n = available(settings), settings.n_tokens
    draft, target, prompts = load_pair(pair, settings.models_dir, settings.prompts)
    files = weights_of_pair(pair, settings.models_dir)
    with TemporaryDirectory() as folder:
        programs = {"here": our_runs(draft, target, files, prompts, n)}
        if "llama.cpp" in peers and not pair.startswith("synthetic:"):      # whose prompts are no text
            programs["llama.cpp"] = llama_runs(settings.llama_cpp, folder, files, prompts, n)
        if "transformers" in peers:
            programs["transformers"] = transformers_runs(files, prompts, n)
        runs = {(name, drafts): [] for name in programs for drafts in (None, K)}
        for _ in range(settings.repetitions + 1):                           # the first is the warm-up
            for (name, drafts), measured in runs.items():
                measured.append(programs[name](drafts))
    speed = {key: 1 / median(seconds for seconds, _ in measured[1:]) for key, measured in runs.items()}
    texts = {key: [text.strip() for text in measured[0][1]] for key, measured in runs.items()}
    rows = []
    for name in programs:
        single, together = speed[name, None], speed[name, K]
        same = all(theirs.startswith(ours) for drafts in (None, K)
                   for ours, theirs in zip(texts["here", None], texts[name, drafts]))
        rows.append({"pair": pair, "T": 0.0, "K": K, "N": n, "prompts": len(prompts), "program": name,
                     "tokens/s": single, "here / it": speed["here", None] / single,
                     "speculative tokens/s": together, "speculative, here / it": speed["here", K] / together,
                     "speed-up": together / single, "same texts": same})
    return rows


def our_runs(draft, target, files, prompts, n_tokens):
    """A function: K, or None for autoregressive -> (seconds a token, the text after each prompt)."""
    decode = files[1][2].decode

    def run(K):
        done = (generate(alone(n_tokens, 0.0), [target], prompts) if K is None
                else generate(speculative(K, n_tokens, 0.0), [draft, target], prompts))
        return done.seconds / (n_tokens * len(prompts)), [decode(text_of(rounds)) for rounds in done.texts]
    return run


def transformers_runs(files, prompts, n_tokens):
    """The same by `generate`, with an assistant that always drafts K tokens."""
    assistant, target = (to_transformers(hparams, arrays) for hparams, arrays, _ in files)
    decode = files[1][2].decode

    def run(K):
        if K is not None:
            assistant.generation_config.update(
                num_assistant_tokens=K, num_assistant_tokens_schedule="constant",
                assistant_confidence_threshold=0.0)
        settings = {} if K is None else {"assistant_model": assistant}
        start = clock()
        texts = transformers_text(target, prompts, n_tokens, **settings)
        return (clock() - start) / (n_tokens * len(prompts)), list(map(decode, texts))
    return run


def llama_runs(programs, folder, files, prompts, n_tokens):
    """The same by llama.cpp's programs, a process for each prompt."""
    draft, target = Path(folder) / "draft.gguf", Path(folder) / "target.gguf"
    for path, model in zip((draft, target), files):
        write_gguf(path, *model)
    prompts = [files[1][2].decode(tokens) for tokens in prompts]

    def run(K):
        done = [llama_alone(programs, target, prompt, n_tokens) if K is None
                else llama_speculative(programs, draft, target, prompt, n_tokens, K) for prompt in prompts]
        return sum(seconds for seconds, _ in done) / len(done), [text for _, text in done]
    return run


# One pass ---------------------------------------------------------------------------------------------------

def passes_of_peers(name, settings):
    """A pass over few rows on top of n_cached tokens, and a long prompt: a row for each program, in turns."""
    peers, model = available(settings), named(name, settings.models_dir)
    hparams, arrays, encoder = weights(name, settings.models_dir)
    n_prompt = min(settings.n_prefill, model.n_ctx)
    tokens = some_tokens(model, max(n_prompt, settings.n_cached + max(ROWS)))
    with TemporaryDirectory() as folder:
        programs = {"here": lambda *what: our_passes(model, tokens, *what)}
        if "llama.cpp" in peers:
            path = Path(folder) / "model.gguf"
            write_gguf(path, hparams, arrays, encoder)
            programs["llama.cpp"] = lambda *what: llama_passes(settings.llama_cpp, path, *what)
        if "transformers" in peers:
            theirs = to_transformers(hparams, arrays)
            programs["transformers"] = lambda *what: transformers_passes(theirs, tokens, *what)
        times = {program: {n: [] for n in (*ROWS, n_prompt)} for program in programs}
        for _ in range(settings.repetitions):
            for program, passes in programs.items():
                for n, seconds in (passes(ROWS, settings.n_cached, 9) | passes((n_prompt,), 0, 1)).items():
                    times[program][n] += seconds
    rows = []
    for program, measured in times.items():
        one, five, nine, prompt = (median(measured[n]) for n in (*ROWS, n_prompt))
        rows.append({"model": label(name), "program": program, "cached": settings.n_cached,
                     "1 row ms": one * 1e3, "5 rows ms": five * 1e3, "9 rows ms": nine * 1e3,
                     "v of 5": five / one, "v of 9": nine / one, "prompt": n_prompt,
                     "prompt tokens/s": n_prompt / prompt})
    return rows


def our_passes(model, tokens, rows, n_cached, repetitions):
    """As transformers_passes."""
    times = {n: [] for n in rows}
    for _ in range(repetitions + 1):
        for n in rows:
            if n_cached == 0:
                model.reset()
            start = clock()
            model(tokens[:n_cached + n], n if n_cached else 1)
            times[n].append(clock() - start)
    return {n: measured[1:] for n, measured in times.items()}

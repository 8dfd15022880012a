"""What speculative sampling gains on this machine, and why: tables of figures, each with what it depends on.

    python -m benchmarks --tables=pairs --out=results   the embedded pair: acceptance, c, v, and the speed-up
    python -m benchmarks --quick                        every table in seconds, too small to tell much

    pairs           draft:target over K and temperatures, on a file of prompts                      (pairs.py)
    synthetic       the same for a random full-size pair over its dial: acceptance from 0 to 1
    forward         a pass over 1, 2, 3 .. rows against the bandwidth of the memory               (measure.py)
    parts           the same by its parts
    prefill         a long prompt against the machine's rate of products
    loading         a model from its files to the first token: time and memory
    methods         every drafter and sampler on one pair, each at its own best K or shape        (methods.py)
    batch           tokens a second over batch sizes, alone and speculative                       (batches.py)
    heads           those of them that were trained, by position; only if asked for               (heads.py)
    trees           lines, blocks and trees of several shapes; only if asked for                    (trees.py)
    lossy           what lossy rules gain, and how far they are from the target; only if asked for  (lossy.py)
    busy            tokens a second beside busy processes; only if asked for                        (busy.py)
    peers           tokens a second next to llama.cpp and transformers; only if asked for           (peers.py)
    peers_passes    a pass over 1, 5 and 9 rows and a long prompt next to them; only if asked for

A flag is written --name=value, a list with commas; the names are in DEFAULTS. With --out=FOLDER each table
is also written there, as .json and .md, and as a plot where matplotlib is installed.

Times are medians over repetitions in the order A B A B, after a warm-up.  Every timed run starts from an
empty cache and generates equally many tokens; loading, tokenizing and printing are outside, the prompt's
own pass is inside.  With --backend=cupy the models run on a GPU, which every table names, and each reading
of the clock waits for it.

But: on a busy machine all of it is noise, and more so with two threads, which wait for each other.
"""
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

from benchmarks.batches import batches
from benchmarks.busy import busy_table
from benchmarks.heads import heads_table
from benchmarks.lossy import lossy_table
from benchmarks.measure import forward, loading, machine, parts, prefill
from benchmarks.methods import methods_table
from benchmarks.pairs import compare
from benchmarks.peers import against_peers, passes_of_peers
from benchmarks.show import as_markdown, plot
from benchmarks.trees import trees_table
from compute.backend import use
from console import told

DEFAULTS = dict(
    tables=["pairs", "synthetic", "forward", "parts", "prefill", "loading", "methods", "batch"],
    out="", models_dir="models", backend="numpy", repetitions=5,
    pairs=["demo-draft:demo-target"],       # draft:target, or synthetic:size:layers of the draft:dial
    K=[1, 2, 3, 4, 5, 6, 8], temperatures=[0.0, 1.0], n_tokens=60,
    prompts="",                             # a file with one prompt a line; prompts.txt if none is named
    synthetic=["355M:2"],                   # size:layers of the draft
    dials=[0.0, 0.02, 0.05, 0.1, 0.2, 1.0], n_synthetic=30,
    K_fixed=4,                              # of the tables synthetic and peers
    models=["demo-target", "124M", "355M"], rows=[1, 2, 3, 4, 5, 6, 8, 9, 12, 16], n_cached=60, n_prefill=512,
    n_matrix=8192,                          # [n, n], to measure the bandwidth
    methods=["all"], check_K=[1, 2, 3, 4], check_tokens=4,      # or some, by name; see lossless.check
    batch_pairs=["demo-draft:demo-target", "synthetic:124M:1:0.02"], batch_sizes=[1, 2, 4, 8, 16],
    shapes=["2-1-1", "3-2-1", "2-2-2", "4-1-1-1"],             # widths of trees
    llama_cpp="",                           # the folder of llama.cpp's programs
)
QUICK = dict(repetitions=1, K=[1, 4], n_tokens=8, synthetic=["tiny:1"], dials=[0.0, 0.2], n_synthetic=8,
             batch_pairs=["synthetic:tiny:1:0.2"], batch_sizes=[1, 3],
             models=["tiny"], rows=[1, 5], n_cached=20, n_prefill=64, n_matrix=512,
             check_K=[2], check_tokens=3, shapes=["2-1"])


# Tables: settings -> rows, each {column: value} -------------------------------------------------------------

def pairs_table(s):
    return [row for name in s.pairs for temperature in s.temperatures
            for row in compare(name, s.K, temperature, s.n_tokens, s)]


def synthetic_table(s):                     # at temperature 1: greedy noise repeats itself
    return [row for name in s.synthetic for dial in s.dials
            for row in compare(f"synthetic:{name}:{dial}", [s.K_fixed], 1.0, s.n_synthetic, s)]


def forward_table(s):
    return [row for name in s.models
            for row in forward(name, s.models_dir, 3 * s.repetitions, s.rows, s.n_cached, s.n_matrix)]


def parts_table(s):
    return [row for name in s.models
            for row in parts(name, s.models_dir, 3 * s.repetitions, [1, 5], s.n_cached)]


def prefill_table(s):
    return [row for name in s.models
            for row in prefill(name, s.models_dir, s.repetitions, s.n_prefill, s.n_matrix)]


def loading_table(s):
    return [row for name in s.models for row in loading(name, s.models_dir, s.repetitions)]


def batch_table(s):
    return [row for name in s.batch_pairs for row in batches(name, s)]


def peers_table(s):
    return [row for name in s.pairs for row in against_peers(name, s.K_fixed, s)]


def peers_passes_table(s):
    return [row for name in s.models for row in passes_of_peers(name, s)]


TABLES = {"pairs": pairs_table, "synthetic": synthetic_table, "forward": forward_table, "parts": parts_table,
          "prefill": prefill_table, "loading": loading_table, "methods": methods_table, "batch": batch_table,
          "heads": heads_table, "trees": trees_table, "lossy": lossy_table, "busy": busy_table,
          "peers": peers_table, "peers_passes": peers_passes_table}


# Command line -----------------------------------------------------------------------------------------------

def read_flags(words):
    """["--K=1,2"] -> the settings, as attributes."""
    settings = DEFAULTS | (QUICK if "--quick" in words else {})
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if word == "--quick":
            continue
        if not word.startswith("--") or name not in DEFAULTS or not equals:
            raise ValueError(f"{word!r} is not a flag: write --quick, or --name=value with one of "
                             f"{', '.join(DEFAULTS)}")
        default = DEFAULTS[name]
        try:
            settings[name] = ([type(default[0])(v) for v in value.split(",")] if isinstance(default, list)
                              else type(default)(value))
        except ValueError:
            raise ValueError(f"{word}: that is no number, or not a whole one") from None
    unknown = [table for table in settings["tables"] if table not in TABLES]
    if unknown:
        raise ValueError(f"there is no table {unknown[0]!r}: take some of {', '.join(TABLES)}")
    return SimpleNamespace(**settings)


def measure_all(settings):
    """Every table that is asked for, printed and, with --out, written."""
    about = machine() | {"repetitions": settings.repetitions}
    for table in settings.tables:
        rows = TABLES[table](settings)
        text = as_markdown(table, about, rows)
        print(text, flush=True)
        if settings.out:
            folder = Path(settings.out)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{table}.md").write_text(text, encoding="utf-8")
            result = json.dumps(dict(machine=about, settings=vars(settings), rows=rows), indent=1)
            (folder / f"{table}.json").write_text(result + "\n", encoding="utf-8")
            plot(table, rows, folder)


def main(words):
    """Run the command line; returns the exit status."""
    try:
        if words in (["--help"], ["-h"]):
            flags = [f"    --{name}={default}" for name, default in DEFAULTS.items()]
            print(__doc__, *flags, sep="\n", flush=True)
            return 0
        settings = read_flags(words)
        use(settings.backend)
        measure_all(settings)
    except BrokenPipeError:                 # the reader went away (| head): nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

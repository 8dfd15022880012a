"""One line of drafts, judged one by one or as a block, and trees of several shapes, on one pair.

    trees_table(settings)       a row for each method, shape and temperature; a line at its own best K

"best for this machine" is the tree of Sequoia's dynamic programme, from the acceptances of a wide tree on the
first prompts and this machine's own seconds of a pass over 1, 2, 3 .. rows.

    rows a pass         of the target: the nodes and one
    rows a token        of the target's rows, how many went into one token: what theorem 3.11 counts
    passes              of the target, for 100 tokens

The other columns are those of the table methods.
"""
from benchmarks import sequoia
from benchmarks.methods import compare_methods, sampler_of, trees, with_draft
from benchmarks.pairs import generate, load_pair
from reporting.stats import by_rank

LINES = "draft model", "block verification"
WIDE = 6, 4, 2                      # the tree on which the acceptances are measured
ROWS = 33                           # of the largest pass that the best tree may be


def trees_table(settings):
    draft, target, prompts = load_pair(settings.pairs[0], settings.models_dir, settings.prompts)
    lines = [method for method in with_draft(draft, target, settings.K) if method.name in LINES]
    shapes = [tuple(map(int, shape.split("-"))) for shape in settings.shapes]
    rows = []
    for temperature in settings.temperatures:
        rules = trees(draft, target)
        if temperature == 0:                                    # a draw knows one token only
            rules = [method for method in rules if "likeliest" in method.name]
        methods = [*lines, *(method._replace(shapes=[shape]) for method in rules for shape in shapes)]
        rule = next(method for method in rules if temperature == 0 or "Sequoia" in method.name)
        best = best_shape(rule, prompts[:2], temperature, settings.n_tokens)
        methods.append(rule._replace(name=f"{rule.name}, best for this machine", shapes=[best]))
        for row in compare_methods(methods, target, prompts, temperature, settings):
            tokens, n_rows = row["tokens per pass"], row["rows a pass"]
            rows.append({key: row[key] for key in ("method", "T", "shape", "tokens per pass")}
                        | {"passes": 100 / tokens, "rows a pass": n_rows, "rows a token": n_rows / tokens}
                        | {key: row[key] for key in ("c", "v", "cost", "predicted", "measured")})
    return rows


def best_shape(method, prompts, temperature, n_tokens):
    """The parents of the tree that promises most tokens a second here."""
    wide = generate(sampler_of(method, WIDE, n_tokens, temperature), method.models, prompts)
    draft, target = (sequoia.seconds(model, prompts[0], ROWS) for model in method.models)
    return sequoia.fastest(by_rank(wide.rounds), target, draft)

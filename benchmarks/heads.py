"""Drafters that were trained, from the one that reads the text alone to those that read the target's states.

    heads_table(settings)       a row for each and temperature, at its own best K

    acceptance, by position     of a round's first draft, its second, .. (accepted of those that were tested),
                                in runs with K = 5; at least 20 were tested

The other columns are those of the table methods.
"""
from benchmarks.methods import all_methods, compare_methods, sampler_of
from benchmarks.pairs import generate, load_pair

NAMES = "draft model", "early exit with a head", "eagle", "Medusa", "Medusa's tree"
POSITIONS, LEAST = 5, 20
COLUMNS = ("method", "T", "shape", "tokens per pass", "rows a pass", "acceptance, by position", "c", "v",
           "predicted", "measured", "weights MB")


def heads_table(settings):
    draft, target, prompts = load_pair(settings.pairs[0], settings.models_dir, settings.prompts)
    methods = [method for method in all_methods(draft, target, settings.K) if method.name in NAMES]
    rows = []
    for temperature in settings.temperatures:
        for method, row in zip(methods, compare_methods(methods, target, prompts, temperature, settings)):
            row["acceptance, by position"] = None
            if isinstance(method.shapes[0], int):               # a line of drafts
                sampler = sampler_of(method, POSITIONS, settings.n_tokens, temperature)
                row["acceptance, by position"] = by_position(
                    generate(sampler, method.models, prompts).rounds, LEAST)
            rows.append({column: row[column] for column in COLUMNS})
    return rows


def by_position(rounds, least=1):
    """Accepted over tested, of the first draft of these rounds, the second, .., while `least` were tested.

    >>> from sampling import Round
    >>> by_position([Round([5, 6, 7], [5, 6], 2, [], []), Round([5, 8], [5, 9], 1, [], []),
    ...              Round([1], [2], 0, [], [])])
    [0.667, 0.5]
    """
    shares = []
    for j in range(max(len(r.drafts) for r in rounds)):
        tested = [r.n_accepted > j for r in rounds if r.n_accepted >= j and len(r.drafts) > j]
        if len(tested) >= least:
            shares.append(round(sum(tested) / len(tested), 3))
    return shares

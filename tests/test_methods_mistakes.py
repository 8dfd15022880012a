"""The judge finds every drafter of the table once it is made dishonest, and every lossy rule, so the tests of
test_methods_lossless.py would find them.  Mistakes in accept rules are in the museum."""
import numpy as np
import pytest
from judged import EVERY_DRAFTER, FEW, LINE, deviation, entry
from samplers import counts, drops_a_one, line

from lossless import check
from methods.table import VERIFIERS


def dishonest(drafted):
    """One that drafts the likeliest token instead of a draw, and claims that chosen drafts were drawn."""
    def equal(drafts):
        return [np.full(drafted.target.n_vocab, 1 / drafted.target.n_vocab)] * len(drafts)

    def proposes(*asked):
        drafts, p = drafted.propose(*asked)
        return (drafts, equal(drafts)) if p is None else ([int(np.argmax(row)) for row in p[:1]], p[:1])

    def grows(*asked):
        nodes, parents, _ = drafted.grow(*asked)
        return nodes, parents, equal(nodes)
    return drafted._replace(propose=proposes, grow=drafted.grow and grows)


def is_found(sampler, cases, pairs=None):
    return any(check(sampler, pairs, **case) > 1e-9 for case in cases)


@pytest.mark.parametrize("typed", EVERY_DRAFTER, ids=" ".join)
def test_a_dishonest_drafter_is_found(typed):
    sampler, cases, pairs = entry(*typed, dishonest)
    assert is_found(sampler, [cases[0] | dict(n_tokens=2)], pairs or FEW)


@pytest.mark.parametrize("name", [name for name in VERIFIERS if not VERIFIERS[name].lossless])
def test_a_lossy_rule_is_found(name):
    assert is_found(*entry("model", name))


@pytest.mark.parametrize("drafter", [counts, drops_a_one])
def test_the_fast_cases_see_that_a_new_drafter_is_dishonest(drafter):
    assert deviation(line(lambda: drafter), LINE) > 1e-9

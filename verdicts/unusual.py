# ruff: noqa: F403, F405
"""Ways to write it that look wrong, or other, and are right; as mistakes.py has the wrong ones."""
from verdicts.mistakes import *  # the lines that are changed

ACCEPT = at(COIN, {
    "nothing is changed": [],
    "the ratio is divided": "rng.random() < q[token] / p[token]",
    "the ratio is cut at 1": "rng.random() < min(1, q[token] / p[token])",
    "the coin may be equal": "rng.random() * p[token] <= q[token]",
    "the coin on the right": "q[token] / p[token] > rng.random()",
    "a coin that refuses": "not rng.random() >= q[token] / p[token]",
    "the coin is subtracted": "rng.random() - q[token] / p[token] < 0",
    "the coin is one minus u": "1 - rng.random() < q[token] / p[token]",
    "the coin divides": "q[token] / rng.random() > p[token]",
    "the coin is divided": "q[token] > 0 and rng.random() / q[token] < 1 / p[token]",
    "logarithms are compared": "q[token] > 0 and np.log(rng.random()) < np.log(q[token]) - np.log(p[token])",
    "an exponential is compared": "q[token] > 0 and -np.log1p(-rng.random()) > np.log(p[token] / q[token])",
    "one coin for an array of ratios": "(rng.random() * p < q)[token]",
    "one coin for an array of quotients":
        "(rng.random() < np.divide(q, p, where=p > 0, out=np.ones_like(q)))[token]",
    "the coin is uniform below p": "rng.uniform(0, p[token]) < q[token]",
    "the coin is uniform between other bounds": "rng.uniform(-p[token], p[token]) < 2 * q[token] - p[token]",
    "the coin is a choice":
        "rng.choice(2, p=[1 - min(1, q[token] / p[token]), min(1, q[token] / p[token])]) == 1",
    "all coins at once": [(EACH, "r = rng.random(len(drafts))\n    …"), (COIN, "r[j] * p[token] < q[token]")],
    "all coins are compared at once": [
        (EACH, "x = np.array(drafts, dtype=int)\n"
               "    chances = np.array([p[token] for p, token in zip(draft_probs, drafts)])\n"
               "    passes = rng.random(len(x)) * chances < target_probs[np.arange(len(x)), x]\n    …"),
        (COIN, "passes[j]")],
})

CORRECTIONS = at(RESIDUAL, {
    "the residual is q - min(p, q)": "residual = q - np.minimum(p, q)",
    "the residual is divided by its sum": "…; residual /= residual.sum() or 1",
    "the residual is q (1 - p / q)": "residual = np.where(q > p, q * (1 - p / np.where(q > 0, q, 1)), 0)",
    "the correction is a choice": (CORRECTION, "return j, rng.choice(len(q), p=residual / residual.sum())"),
    "the correction is a choice among those that can be": (
        CORRECTION, "some = np.flatnonzero(residual)\n"
        "        return j, int(rng.choice(some, p=residual[some] / residual[some].sum()))"),
    "the correction is the first sum above u": (
        CORRECTION, "return j, int((np.cumsum(residual) > rng.random() * residual.sum()).argmax())"),
    "the correction is counted": (
        CORRECTION, "return j, int((np.cumsum(residual) <= rng.random() * residual.sum()).sum())"),
    "the correction is drawn from the right": (
        CORRECTION, "return j, len(q) - 1 - sample(np.maximum(q - p, 0)[::-1], rng)"),
    "the correction is found in a loop": (
        CORRECTION, "u = rng.random() * residual.sum()\n"
        "        for t in range(len(q)):\n            u = u - residual[t]\n"
        "            if u < 0 or t == len(q) - 1:\n                return j, t"),
    "the coin that refused is stretched and draws the correction": [
        SAME_COIN, (CORRECTION, "u = (u - q[token] / p[token]) / (1 - q[token] / p[token])\n"
        "        return j, int(np.searchsorted(np.cumsum(residual), u * residual.sum(), side='right'))")],
    "a draw from q is kept unless it is the draft": [
        (COIN, "(t := sample(q, rng)) == token"), (CORRECTION, "return j, t")],
    "a draft is kept as often as q says it, else q without it": [
        (COIN, "rng.random() < q[token]"),
        (CORRECTION, "return j, sample(np.where(np.arange(len(q)) == token, 0, q), rng)")],
    "the residual of a lenient coin is adapted": [
        (COIN, "rng.random() * 2 * p[token] < q[token]"), (RESIDUAL, "residual = q - np.minimum(p, q / 2)")],
    "nothing is drafted": (LIMIT, "k = 0"),
    "the bonus is drawn first": [(BONUS, "bonus"), (EACH, f"bonus = {BONUS}\n    …")],
    "there is no bonus": (
        f"return len(drafts), {BONUS}", f"return (len(drafts) - 1, drafts[-1]) if drafts else (0, {BONUS})"),
    "every other round is the target's own": untested(
        "turn % 2", "turn = 0", "turn += 1", rule="(0, sample(q[0], rng))"),
    "refusals are found from the right": [
        (COIN, "j < first"),
        (EACH, "first = len(drafts)\n    for j in reversed(range(len(drafts))):\n"
               "        token, q, p = drafts[j], target_probs[j], draft_probs[j]\n"
               "        first = first if rng.random() * p[token] < q[token] else j\n    …")],
})

DRAFTING = at(P, {
    "the draft does not see its own drafts": "p.append(to_probs(draft(x), 1)[0])",
    "the draft reads the text without its last token":
        "p.append(to_probs(draft((x[:-1] or x) + drafts), 1)[0])",
    "the draft follows the refused token": [
        (START, "…; seen = x[:]"), (ASK, "answer = propose(draft, seen, k, to_probs, rng)"),
        (GROWS, "…; seen = x[:-1] + drafts[n_accepted:][:1] if n_accepted < k else x[:]")],
    "the draft is sharper, and its p says so": "…; p[-1] = p[-1] ** 2 / (p[-1] ** 2).sum()",
    "the draft guesses": "p.append(np.full(to_probs(draft(x), 1).shape[-1], .2))",
    "the draft is any token": [(DRAW, "drafts.append(rng.integers(5))"), (P, "p.append(np.full(5, .2))")],
    "the draft is a choice": (DRAW, "drafts.append(rng.choice(len(p[-1]), p=p[-1]))"),
    "drawn drafts are recorded as chosen": (PROPOSED, "return drafts, None\n"),
    "the draft is the argmax, and recorded as chosen": [(DRAW, ARGMAX), (PROPOSED, "return drafts, None\n")],
    "the draft is the argmax, and is not made if the last is unlikely": [(DRAW, ARGMAX), (
        PROPOSED, "return drafts[:-1] if drafts and p[-1][drafts[-1]] < .4 else drafts, None\n")],
    "the draft never says token 1, nor does its p":
        "…\n        without = p[-1] * (np.arange(len(p[-1])) != 1)\n"
        "        p[-1] = without / without.sum() if without.any() else p[-1]",
    "drafting stops before an unlikely token is drawn": (
        DRAW, "if p[-1].max() < .6:\n            del p[-1]; break\n        …"),
    "drafting stops after an unlikely token, which is kept": (
        DRAW, "…\n        if p[-1][drafts[-1]] < .4:\n            break"),
    "drafting stops after an unlikely token as its own coin says": [
        COINS, (COIN, "propose.coins[j] * p[token] < q[token]"), (DRAW, "…; coins.append(rng.random())\n"
        "        if p[-1][drafts[-1]] < .5 and 1 - coins[-1] <= .5:\n            break")],
    "the last draft is thrown away, whatever it is": (PROPOSED, "return drafts[:-1], p[:-1]\n"),
    "how many are drafted is chance": (LIMIT, "k = min(K, T - len(x) - 1, 1 + int(2 * rng.random()))"),
    "how many are drafted grows": [
        (START, "…; most = 1"), (LIMIT, "k = min(K, T - len(x) - 1, most)"),
        (GROWS, "…; most = n_accepted + 1")],
    "one draft more than is needed is made": [
        (LIMIT, "k = min(K, T - len(x))"), (NEW, "…[:T - len(x)]")],
    "the target is asked row by row": (
        TARGET, "q = to_probs(np.concatenate([target(x + drafts[:i]) for i in range(k + 1)]), k + 1)"),
    "tokens of NumPy": (NEW, "…; new = [np.int64(token) for token in new]"),
})
CHILDREN = at(TRIES, {
    "tree: without replacement": [],
    "tree: the residual is written over q": [
        (TRIES, "q = q.copy()\n    …"), ("    q = normalized(residual)", "    q[:] = normalized(residual)")],
})
BATCHES = at("drafters({i: x[i] + drafts[i] for i in wanting}", {
    "batch": [],
    "batch: the draft reads the first text": "drafters({i: x[i] + drafts[wanting[0]] for i in wanting}",
})

"""Mistakes: {what is changed: (old, new) of the source, or several}."""
from speculative import speculative_sampling

# The lines that are changed ---------------------------------------------------------------------------------

# speculative.py
EACH = "for j, token in enumerate(drafts):"
ROWS = "q, p = target_probs[j], draft_probs[j]"
COIN = "rng.random() * p[token] < q[token]"
RESIDUAL = "residual = np.maximum(q - p, 0)"
CORRECTION = "return j, sample(residual if residual.any() else q, rng)"
BONUS = "return len(drafts), sample(target_probs[-1], rng)"
P = "p.append(to_probs(draft(x + drafts), 1)[0])"
DRAW = "drafts.append(sample(p[-1], rng))"
PROPOSED = "return drafts, p\n"
START = "x, T = list(tokens), len(tokens) + int(n_tokens)"
LIMIT = "k = min(K, T - len(x) - 1)"
ASK = "answer = propose(draft, x[:], k, to_probs, rng)"
TARGET = "q = to_probs(target(x + drafts, k + 1), k + 1)"
VERIFY = "n_accepted, next_token = verify(q, p, drafts, rng)"
NEW = "new = cut_after(drafts[:n_accepted] + [next_token], ends)"
GROWS = "x += new"
ENDS = "if x[-1] in ends:"
IMPORT = "import numpy as np\n"

PROBS = IMPORT, "import numpy as np\nfrom sampling import probabilities\n"
PLAIN = "probabilities(draft(x + drafts))[0]"           # without the settings
DROP = DRAW + "\n        if {}:\n            del p[-1], drafts[-1]; break"


def after(condition, rule, start="first = True"):
    """Rounds before which the condition holds are judged in another way."""
    return [(START, f"{START}; {start}"), (VERIFY, f"n_accepted, next_token = {rule} if {condition} else "
                                                   "verify(q, p, drafts, rng)")]


ALL = "(k, sample(q[-1], rng))"                         # accepts all drafts

ACCEPT = {
    "every draft is accepted": (COIN, "True"),
    "no draft is accepted, the residual is kept": (COIN, "False"),
    "one coin decides on all drafts": [
        (EACH, "r = rng.random()\n    " + EACH), (COIN, "r * p[token] < q[token]")],
    "the second coin is one minus the first": [
        (EACH, "r = rng.random()\n    " + EACH),
        (COIN, "(r if j % 2 == 0 else 1 - r) * p[token] < q[token]")],
    "p and q are swapped in the accept test": (COIN, "rng.random() * q[token] < p[token]"),
    "the accept test is the probability itself": (COIN, "rng.random() < q[token]"),
    "the accept test is q - p": (COIN, "rng.random() < q[token] - p[token]"),
    "the accept test is exp(q - p)": (COIN, "rng.random() < np.exp(q[token] - p[token])"),
    "the accept test is q / (q + p)": (COIN, "rng.random() * (p[token] + q[token]) < q[token]"),
    "the accept test is the root of the ratio": (COIN, "rng.random() * p[token] ** .5 < q[token] ** .5"),
    "drafts are accepted where the target likes them better": (COIN, "p[token] < q[token]"),
    "a likely draft needs no coin": (COIN, "q[token] > .3 or " + COIN),
    "the target's likeliest token needs no coin": (COIN, "token == q.argmax() or " + COIN),
    "a draft far below p is always refused": (COIN, "q[token] > .2 * p[token] and " + COIN),
    "p is at least .001 in the accept test": (COIN, "rng.random() * max(p[token], 1e-3) < q[token]"),
    "where p and q nearly agree there is no coin": (COIN, "abs(q[token] - p[token]) < .02 or " + COIN),
    "a little lenience": (COIN, "rng.random() * .9 * p[token] < q[token]"),
    "the ratio is rounded to tenths": (COIN, "rng.random() < round(q[token] / p[token], 1)"),
    "the coin is never above a half": (COIN, "rng.uniform(0, .5) * p[token] < q[token]"),
    "the coin has eight sides": (COIN, "rng.integers(8) / 8 * p[token] < q[token]"),
    "the ratio is of the two probabilities of any draft so far": [
        (EACH, "ratio = 1.0\n    " + EACH), (COIN, "rng.random() < (ratio := ratio * q[token] / p[token])")],
}

POSITIONS = {
    "the draft's last distribution stands for every position": (
        ROWS, "q, p = target_probs[j], draft_probs[-1]"),
    "the draft's first distribution stands for every position": (
        ROWS, "q, p = target_probs[j], draft_probs[0]"),
    "the draft's rows are one too early": (ROWS, "q, p = target_probs[j], draft_probs[max(j - 1, 0)]"),
    "the target's rows are one too late": (ROWS, "q, p = target_probs[j + 1], draft_probs[j]"),
    "the target's rows are one too early": (ROWS, "q, p = target_probs[j - 1], draft_probs[j]"),
    "the target's rows are in reverse order": (
        ROWS, "q, p = target_probs[len(drafts) - 1 - j], draft_probs[j]"),
    "from the fourth draft on the target's third row is used": (
        ROWS, "q, p = target_probs[min(j, 2)], draft_probs[j]"),
    "the first draft is not tested": (COIN, "j == 0 or " + COIN),
    "only the first draft is tested": (COIN, "j > 0 or " + COIN),
    "the second draft is not tested": (COIN, "j == 1 or " + COIN),
    "the fourth draft is not tested": (COIN, "j == 3 or " + COIN),
    "the fifth draft is not tested": (COIN, "j == 4 or " + COIN),
    "the sixth draft is not tested": (COIN, "j == 5 or " + COIN),
    "the seventh draft is not tested": (COIN, "j == 6 or " + COIN),
    "a line of five drafts is not tested": (COIN, "len(drafts) == 5 or " + COIN),
    "a line of seven drafts is not tested": (COIN, "len(drafts) == 7 or " + COIN),
    "a draft that was drafted before is judged by the earlier row": (
        EACH, "for token in drafts:\n        j = drafts.index(token)"),
    "a draft that is the one before it again is not tested": (
        COIN, "(j > 0 and drafts[j - 1] == token) or " + COIN),
    "the last draft is not tested": (COIN, "j == len(drafts) - 1 or " + COIN),
    "the last of two or more drafts is not tested": (COIN, "0 < j == len(drafts) - 1 or " + COIN),
    "a line of four or more drafts is not tested": (COIN, "len(drafts) >= 4 or " + COIN),
    "the bonus is drawn from row K - 1": (BONUS, BONUS.replace("-1]", "len(drafts) - 1]")),
    "the bonus is drawn from the first row": (BONUS, BONUS.replace("-1]", "0]")),
    "the bonus is drawn from the draft": (
        BONUS, BONUS.replace("target_probs[-1]", "[*target_probs[:1], *draft_probs][-1]")),
    "the bonus is the target's likeliest token": (
        BONUS, "return len(drafts), int(target_probs[-1].argmax())"),
    "the bonus after four drafts is the residual's": (
        BONUS, "return len(drafts), sample(residual if len(drafts) > 3 and 'residual' in locals() else "
               "target_probs[-1] ** (1 + (len(drafts) > 3)), rng)"),
    "a refusal is dealt with one position late": (CORRECTION, CORRECTION.replace("j,", "j + 1,")),
    "a refusal is dealt with one position early": (CORRECTION, CORRECTION.replace("j,", "max(j - 1, 0),")),
    "the refused draft stays in the text": (
        NEW, "new = cut_after(drafts[:n_accepted + 1] + [next_token], ends)"
                                                 "[:T - len(x)]"),
    "the accepted drafts are forgotten": (NEW, "new = cut_after([next_token], ends)"),
    "one accepted draft is lost": (NEW, "new = cut_after(drafts[:n_accepted][1:] + [next_token], ends)"),
    "accepted drafts come in reverse order": (NEW, NEW.replace("n_accepted]", "n_accepted][::-1]")),
    "a fourth accepted draft is lost": (
        NEW, "new = cut_after(drafts[:min(n_accepted, 3)] + [next_token], ends)"),
}

CORRECTIONS = {
    "after a rejection the target's distribution is used, not the residual": (RESIDUAL, "residual = q"),
    "the residual is p - q": (RESIDUAL, "residual = np.maximum(p - q, 0)"),
    "the residual is |q - p|": (RESIDUAL, "residual = np.abs(q - p)"),
    "the residual is a softmax of q - p": (RESIDUAL, "residual = np.exp(q - p)"),
    "the residual is a softmax of its positive part": (RESIDUAL, "residual = np.exp(np.maximum(q - p, 0))"),
    "the residual is squared": (RESIDUAL, "residual = np.maximum(q - p, 0) ** 2"),
    "what is tiny in the residual is left out": (
        RESIDUAL, "residual = np.maximum(q - p, 0); residual[residual < 1e-5] = 0"),
    "a small residual counts as none": (
        CORRECTION, "return j, sample(residual if residual.sum() > .01 else q, rng)"),
    "the residual is never quite 0": (RESIDUAL, "residual = np.maximum(q - p, 1e-6)"),
    "what is small in the residual is left out": (
        RESIDUAL, "residual = np.maximum(q - p, 0); residual[residual < .05] = 0"),
    "the residual is q without the draft": (
        RESIDUAL, "residual = np.where(np.arange(len(q)) == token, 0, q)"),
    "the residual is (q - p) / q": (RESIDUAL, "residual = np.maximum(q - p, 0) / np.maximum(q, 1e-9)"),
    "the residual is q where the draft has nothing": (RESIDUAL, "residual = np.where(p > 0, 0, q)"),
    "the residual is q where q is above p": (RESIDUAL, "residual = np.where(q > p, q, 0)"),
    "the residual is the first position's": (
        RESIDUAL, "residual = np.maximum(target_probs[0] - draft_probs[0], 0)"),
    "from the third draft on a refusal draws from q": (
        RESIDUAL, "residual = np.maximum(q - p, 0) if j < 2 else q"),
    "from the fourth draft on a refusal draws from q": (
        RESIDUAL, "residual = np.maximum(q - p, 0) if j < 3 else q"),
    "the correction is the likeliest of the residual": (CORRECTION, "return j, int((q - p).argmax())"),
    "the correction is the target's likeliest": (CORRECTION, "return j, int(q.argmax())"),
    "the correction is any token": (CORRECTION, "return j, rng.integers(len(q))"),
    "the correction is any token of the residual": (
        CORRECTION, "return j, rng.choice(np.flatnonzero(q > p))"),
    "the residual is not divided by its sum": (
        CORRECTION, "return j, int((np.cumsum(residual) > rng.random()).argmax())"),
    "the coin that refused draws the correction": [
        (COIN, "(u := rng.random()) * p[token] < q[token]"),
        (CORRECTION, "return j, int((np.cumsum(residual) > u * residual.sum()).argmax())")],
    "the coin that refused draws from q": [
        (COIN, "(u := rng.random()) * p[token] < q[token]"),
        (CORRECTION, "return j, int((np.cumsum(q) > u * q.sum()).argmax())")],
    "a draw from q is kept where it is not the draft": [
        (COIN, "(t := sample(q, rng)) == token or " + COIN), (CORRECTION, "return j, t")],
    "the correction is redrawn while it is the draft": (
        CORRECTION, "t = sample(residual if residual.any() else q, rng)\n"
                    "        return j, t if t != drafts[0] else sample(q, rng)"),
}

ROUNDS = {
    "the second round is not tested": after("len(x) > len(tokens) and not first", ALL)[:1] + [
        (VERIFY, f"n_accepted, next_token = verify(q, p, drafts, rng) if first else {ALL}; first = False")],
    "a round after one of two or more accepted drafts is not tested": after("free", ALL, "free = False") + [
        (GROWS, GROWS + "; free = n_accepted == k >= 2")],
    "a round after one of three or more accepted drafts is not tested": after("free", ALL, "free = False") + [
        (GROWS, GROWS + "; free = n_accepted == k >= 3")],
    "a round after a refusal of the first draft is not tested": after("free", ALL, "free = False") + [
        (GROWS, GROWS + "; free = n_accepted == 0 < k")],
    "a round after a refusal of the second draft is not tested": after("free", ALL, "free = False") + [
        (GROWS, GROWS + "; free = n_accepted == 1 < k")],
    "a round after a refusal of the fourth draft is not tested": after("free", ALL, "free = False") + [
        (GROWS, GROWS + "; free = n_accepted == 3 < k")],
    "the third round is not tested": after("n == 2", ALL, "n = 0") + [(GROWS, GROWS + "; n += 1")],
    "nothing is tested from the fifth new token on": after("len(x) - len(tokens) >= 4", ALL),
    "nothing is tested from the eighth new token on": after("len(x) - len(tokens) >= 7", ALL),
    "a round after two of four drafts were kept is not tested": after("free", ALL, "free = False") + [
        (GROWS, GROWS + "; free = n_accepted == 2 and k == 4")],
    "a round after five of eight drafts were kept is not tested": after("free", ALL, "free = False") + [
        (GROWS, GROWS + "; free = n_accepted == 5 and k == 8")],
    "a round after two full ones is not tested": after("n >= 2", ALL, "n = 0") + [
        (GROWS, GROWS + "; n = n + 1 if n_accepted == k > 0 else 0")],
    "a round after a full one and a refusal is not tested": after("b", ALL, "a = b = False") + [
        (GROWS, GROWS + "; b = a and n_accepted == 0 < k; a = n_accepted == k > 1")],
    "the eighth round is not tested": after("n == 7", ALL, "n = 0") + [(GROWS, GROWS + "; n += 1")],
    "nothing is tested from the fifteenth new token on": after("len(x) - len(tokens) >= 14", ALL),
    "the last round is not tested": after("len(x) + k + 1 == T", ALL),
    "a round of fewer drafts than K is not tested": after("k < K", ALL),
    "the last round is as long as the others": (LIMIT, "k = K"),
    "two tokens are left for the target": (LIMIT, "k = min(K, T - len(x) - 1)\n"
                                                  "            if k == 2: T -= 1"),
    "the target reads the refused draft, not the correction": [
        (START, START + "; seen = x[:]"), (TARGET, TARGET.replace("x + drafts", "seen + drafts")),
        (GROWS, "x += new; seen = x[:-1] + drafts[n_accepted:][:1] if n_accepted < k else x[:]")],
    "the target reads the last draft twice, not the bonus": [
        (START, START + "; seen = x[:]"), (TARGET, TARGET.replace("x + drafts", "seen + drafts")),
        (GROWS, "x += new; seen = x[:-1] + drafts[-1:] if n_accepted == k > 0 else x[:]")],
    "after a full round the target's first row is the old last one": [
        (START, START + "; old = None"), (VERIFY, "q[0] = q[0] if old is None else old; " + VERIFY
                                          + "; old = q[-1] if n_accepted == k > 0 else None")],
    "the target's first row stays after a refusal of the first draft": [
        (START, START + "; old = None"), (VERIFY, "q[0] = q[0] if old is None else old; " + VERIFY
                                          + "; old = q[0] if n_accepted == 0 < k else None")],
    "the p of the round before is used": [
        (START, START + "; old = []"),
        (VERIFY, VERIFY.replace("p,", "[*old[:k], *p[len(old[:k]):]],") + "; old = p")],
}

DRAFTING = {
    "the draft is drawn after top-k, its distribution recorded before": [
        PROBS, (DRAW, f"unfiltered = {PLAIN}; {DRAW}; p[-1] = unfiltered")],
    "the distribution is recorded after top-k, the draft drawn before": [
        PROBS, (DRAW, f"drafts.append(sample({PLAIN}, rng))")],
    "the draft is the argmax, its distribution recorded as the softmax": (
        DRAW, "drafts.append(int(np.argmax(p[-1])))"),
    "the second draft is the argmax, its distribution recorded as the softmax": (
        DRAW, "drafts.append(int(np.argmax(p[-1])) if len(p) == 2 else sample(p[-1], rng))"),
    "the draft is the argmax where p is all but certain": (
        DRAW, "drafts.append(int(np.argmax(p[-1])) if p[-1].max() > .999 else sample(p[-1], rng))"),
    "unlikely tokens are never drawn, but recorded": (
        DRAW, "drafts.append(sample(np.where(p[-1] > 1e-4, p[-1], 0), rng))"),
    "the draft is drawn sharper than is recorded": (DRAW, "drafts.append(sample(p[-1] ** 2, rng))"),
    "the draft is drawn from half the softmax, half any token": (
        DRAW, "drafts.append(sample(p[-1] + p[-1].mean() * (p[-1] > 0), rng))"),
    "p is recorded in half precision": (
        DRAW, DRAW + "; p[-1] = p[-1].astype(np.float16).astype(float); p[-1] /= p[-1].sum()"),
    "p is recorded with a floor": (DRAW, DRAW + "; p[-1] = np.maximum(p[-1], .01); p[-1] /= p[-1].sum()"),
    "the likelier of two draws is the draft": (
        DRAW, "drafts.append(max(sample(p[-1], rng), sample(p[-1], rng), key=p[-1].__getitem__))"),
    "a draft like the one before is drawn again": (
        DRAW, "t = sample(p[-1], rng); drafts.append(sample(p[-1], rng) if t in drafts[-1:] else t)"),
    "an unlikely draft is thrown away after it was drawn": (DRAW, DROP.format("p[-1][drafts[-1]] < .4")),
    "a draft that was drafted before is thrown away": (DRAW, DROP.format("drafts[-1] in drafts[:-1]")),
    "a draft of token 0 is thrown away": (DRAW, DROP.format("drafts[-1] == 0")),
    "drafts after an unlikely one are made likelier than recorded": (
        DRAW, "sure = len(p) < 2 or p[-2][drafts[-1]] > .5\n"
        "        drafts.append(sample(p[-1], rng) if sure else int(p[-1].argmax()))"),
    "the number that drew a draft also judges it": [
        (DRAW, "u = rng.random(); coins.append(u); drafts.append(int((np.cumsum(p[-1]) > u).argmax()))"),
        ("drafts, p = [], []", "drafts, p = [], []; coins.clear()"),
        (IMPORT, IMPORT + "coins = []\n"), (COIN, "coins[j] * p[token] < q[token]")],
    "p is recorded for the text without its last token": (
        DRAW, DRAW + "; p[-1] = to_probs(draft((x + drafts)[:-2] or x), 1)[0] if len(drafts) > 1 else p[-1]"),
    "p is what the draft says after its draft": (DRAW, DRAW + "; p[-1] = to_probs(draft(x + drafts), 1)[0]"),
    "the drafts of two lines are mixed": (
        ASK, ASK + "\n            other = propose(draft, x[:], k, to_probs, rng)\n"
        "            if k and other[1][0][other[0][0]] > answer[1][0][answer[0][0]]: answer = other"),
}


def with_settings(change):
    """change(temperature, top_k, top_p, eos) -> those that the sampler sees otherwise."""
    def sampler(*run, temperature=1.0, top_k=0, top_p=1.0, eos=None):
        settings = dict(temperature=temperature, top_k=top_k, top_p=top_p, eos=eos)
        return speculative_sampling(*run, **settings | change(**settings))
    return sampler


def several(eos):
    return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)


SETTINGS = {
    "the temperature is ignored": lambda **s: dict(temperature=1.0),
    "the temperature is ignored unless it is 0": lambda temperature, **s: (
        dict(temperature=float(temperature > 0))),
    "the temperature is applied twice": lambda temperature, **s: dict(temperature=temperature ** 2),
    "a temperature above 1 counts as 1": lambda temperature, **s: dict(temperature=min(temperature, 1.0)),
    "a low temperature counts as 0": lambda temperature, **s: (
        dict(temperature=temperature * (temperature > .55))),
    "the temperature is ignored with top-k": lambda temperature, top_k, **s: (
        dict(temperature=1.0 if top_k else temperature)),
    "top-k is ignored": lambda **s: dict(top_k=0),
    "a top-k of three or more is ignored": lambda top_k, **s: dict(top_k=top_k if top_k < 3 else 0),
    "top-k is ignored at a high temperature": lambda temperature, top_k, **s: (
        dict(top_k=top_k if temperature <= 1 else 0)),
    "top-k is ignored with EOS": lambda top_k, eos, **s: dict(top_k=top_k if eos is None else 0),
    "top-k is ignored with top-p": lambda top_k, top_p, **s: dict(top_k=top_k if top_p == 1 else 0),
    "top-k is one too many": lambda top_k, **s: dict(top_k=top_k and top_k + 1),
    "any top-k means the likeliest": lambda top_k, **s: dict(top_k=min(top_k, 1)),
    "top-p is ignored": lambda **s: dict(top_p=1.0),
    "top-p is ignored with another temperature and no top-k": lambda temperature, top_k, top_p, **s: (
        dict(top_p=top_p if temperature == 1 or top_k else 1.0)),
    "top-p is ignored with top-k": lambda top_k, top_p, **s: dict(top_p=1.0 if top_k else top_p),
    "top-p above .9 is ignored": lambda top_p, **s: dict(top_p=1.0 if top_p > .9 else top_p),
    "EOS is ignored": lambda **s: dict(eos=None),
    "EOS is ignored if it is 0": lambda eos, **s: dict(eos=[t for t in several(eos) if t]),
    "EOS is ignored with another temperature": lambda temperature, eos, **s: (
        dict(eos=eos if temperature in (0, 1) else None)),
    "EOS is ignored with top-k": lambda top_k, eos, **s: dict(eos=None if top_k else eos),
    "only the first of several EOS is known": lambda eos, **s: dict(eos=sorted(several(eos))[:1]),
    "only the last of several EOS is known": lambda eos, **s: dict(eos=sorted(several(eos))[-1:]),
    "EOS is one too high": lambda eos, **s: dict(eos=[t + 1 for t in several(eos)]),
}

FILTERS = {             # of sampling.py: of the target's distribution, or of both
    "exactly k tokens are kept at a tie": (
        "probs[logits < np.partition(logits, kth, axis=-1)[..., kth, None]] = 0.0",
        "np.put_along_axis(probs, np.argsort(-logits, axis=-1, kind='stable')[..., -kth:], 0.0, -1)"),
    "top-k keeps k + 1": ("kth = -int(top_k)", "kth = -min(int(top_k) + 1, logits.shape[-1])"),
    "the token that reaches top-p is left out": (
        "np.count_nonzero(mass_before < top_p)", "np.count_nonzero(mass_before + probs[candidates] < top_p)"),
    "one token more than top-p needs is kept": (
        "max(1, np.count_nonzero(mass_before < top_p))", "1 + np.count_nonzero(mass_before < top_p)"),
    "top-p after top-k counts what top-k took away": [
        ("probs /= probs.sum(axis=-1, keepdims=True)", "probs /= full"),
        ("    if 0 < top_k", "    full = probs.sum(axis=-1, keepdims=True)\n    if 0 < top_k"),
        ("            keep_nucleus(row, top_p)\n", "            keep_nucleus(row, top_p)\n"
         "    probs /= probs.sum(axis=-1, keepdims=True)\n")],
    "the nucleus is that of temperature 1": (
        "            keep_nucleus(row, top_p)\n",
        "            plain = row ** temperature / (row ** temperature).sum()\n"
        "            keep_nucleus(plain, top_p); row[plain == 0] = 0; row /= row.sum()\n"),
    "top-p comes before top-k": [
        ("    if 0 < top_k", "    probs /= probs.sum(axis=-1, keepdims=True)\n    if top_p < 1:\n"
         "        for row in probs.reshape(-1, probs.shape[-1]):\n            keep_nucleus(row, top_p)\n"
         "    top_p = 1\n    if 0 < top_k")],
    "the likeliest token is the last of the largest": (
        "logits.argmax(axis=-1)", "(logits.shape[-1] - 1 - logits[..., ::-1].argmax(axis=-1))"),
    "the temperature multiplies": ("(logits - largest) / temperature", "(logits - largest) * temperature"),
}

SETTINGS_IN_THE_LOOP = {
    "the target's filters are forgotten": [PROBS, (TARGET, "q = probabilities(target(x + drafts, k + 1))")],
    "the bonus is drawn without the settings": [
        PROBS, (TARGET, TARGET + "; q[-1] = probabilities(target(x + drafts))[0]")],
    "the draft's p is recorded without the temperature": [
        PROBS, (DRAW, DRAW + "; p[-1] = np.where(p[-1] > 0, " + PLAIN + ", 0); p[-1] /= p[-1].sum()")],
    "the target is greedy at the drafts": (
        TARGET, TARGET + "; q[:-1] = np.eye(q.shape[1])[q[:-1].argmax(axis=1)]"),
    "text goes on after an accepted EOS": (NEW, "new = drafts[:n_accepted] + [next_token]"),
    "a token follows an accepted EOS": (NEW, "new = cut_after(drafts[:n_accepted], ends) + [next_token]"),
    "EOS is looked for in the first two tokens of a round": (
        NEW, "new = drafts[:n_accepted] + [next_token]\n"
        "            new = cut_after(new[:2], ends) if {*new[:2]} & ends else new"),
    "the bonus is drawn without the temperature": [
        PROBS, (TARGET, TARGET + "; q[-1] = probabilities(target(x + drafts), float(temperature > 0), top_k, "
                "top_p)[0]")],
    "after a full round of two the filters are forgotten": [
        PROBS, (START, START + "; full = False"), (GROWS, GROWS + "; full = full or n_accepted == k > 1"),
        (TARGET, TARGET + "\n            plain = probabilities(target(x + drafts, k + 1), temperature)\n"
         "            q = plain if full else q")],
    "EOS ends a round but not the text": (ENDS, "if False:"),
    "EOS as the correction or bonus does not end the text": (
        ENDS, "if len(new) <= n_accepted and x[-1] in ends:"),
    "EOS at the end is left out": (
        GROWS, "new = [t for t in new if t not in ends] if k else new; x += new or [0]"),
    "EOS in the prompt ends the text": (START, START + "; T = len(x) + 1 if {*x} & ends else T"),
    "the target cannot say EOS in the place of a draft": (
        TARGET, TARGET + "; q[:-1, [*ends]] = 0; q /= np.maximum(q.sum(axis=1, keepdims=True), 1e-9)"),
    "the draft never says EOS, but its p does": (
        DRAW, "drafts.append(sample(np.where(np.arange(len(p[-1])) == 1, 1e-9, p[-1]), rng))"),
    "drafts from an EOS on are thrown away": (
        ASK, ASK + "\n            k = next((i for i, t in enumerate(answer[0]) if t in ends), k)\n"
        "            answer = answer[0][:k], answer[1][:k]"),
}

BLOCK = {
    "block: the first refusal ends the round": (
        "tau, residual = j, rest                             # the last that passes counts: go on",
        "tau, residual = j, rest\n        else: break"),
    "block: the first that passes counts": ("residual = j, rest ", "residual = j, rest; break "),
    "block: each draft is weighed by itself": ("min(weight * q_x, p_x)", "min(q_x, p_x)"),
    "block: a weight may exceed 1": ("min(weight * q_x, p_x) / p_x", "weight * q_x / p_x"),
    "block: the weight is cut only at the end": (
        "weight = min(weight * q_x, p_x) / p_x ", "weight = weight * q_x / p_x if j < len(drafts) else "
        "min(weight * q_x, p_x) / p_x "),
    "block: the coin is P_j": ("rng.random() * (z + 1 - weight) < z", "rng.random() < weight"),
    "block: the coin is z_j": ("rng.random() * (z + 1 - weight) < z", "rng.random() < z"),
    "block: one coin for all drafts": [
        ("rng.random() * (z + 1 - weight)", "u * (z + 1 - weight)"),
        ("weight, tau = 1.0, 0", "u, weight, tau = rng.random(), 1.0, 0")],
    "block: the residual of Algorithm 2": ("weight * q[j] - p[j]", "q[j] - p[j]"),
    "block: its coin with the residual of Algorithm 2": (
        "residual = j, rest ", "residual = j, np.maximum(q[j] - p[j], 0) "),
    "block: the correction is drawn from the target": ("residual if residual.any() else q[tau]", "q[tau]"),
    "block: after a block that fails, the residual of its end": (
        "rest = np.maximum", "rest = residual = np.maximum"),
    "block: the weight of the draft before": (
        "rest = np.maximum(weight * q[j]", "rest = np.maximum((1.0 if j == 1 else weight) * q[j]"),
}

TRIES = "for i, token in enumerate(tokens):"
CHILD = "rng.random() * p[token] < q[token]"
LEFT = "p = normalized(np.where(np.arange(len(p)) == token, 0, p))"
CHILDREN = {            # (rule, changes): of tree_rules.py
    "tree: children are tried against the unchanged q": ("q = normalized(residual) if", "q = q if"),
    "tree: the residual is not normalized": ("q = normalized(residual) if", "q = residual if"),
    "tree: the p of a child that was refused stays": ("if not replacement", "if False"),
    "tree: what is left of p is not normalized": (LEFT, "p = np.where(np.arange(len(p)) == token, 0, p)"),
    "tree: what is left of p is not normalized after the second refusal": (
        LEFT, "p = np.where(np.arange(len(p)) == token, 0, p); p = normalized(p) if i == 0 else p"),
    "tree: p loses the token before the residual is taken": (
        RESIDUAL, LEFT + "; " + RESIDUAL),
    "tree: every child is accepted": (CHILD, "True"),
    "tree: the second child is sure": (CHILD, "i == 1 or " + CHILD),
    "tree: the third child is sure": (CHILD, "i == 2 or " + CHILD),
    "tree: one coin for all children": [
        (CHILD, "u * p[token] < q[token]"), (TRIES, "u = rng.random()\n    " + TRIES)],
    "tree: the last draw is from the first q": [
        (TRIES, "first = q\n    " + TRIES),
        ("return None, sample(q, rng)", "return None, sample(first, rng)")],
    "tree: the likeliest child is tried first": (
        TRIES, "for i, token in sorted(enumerate(tokens), key=lambda child: -p[child[1]]):"),
    "tree: drawn without replacement, judged as if with": ("SEQUOIA = draw_without_replacement, select_drawn",
        "SEQUOIA = draw_without_replacement, select_with_replacement"),
    "tree: siblings are pruned after they were drawn": (
        "tokens = draw(probs, width, rng)", "tokens = [t for t in draw(probs, width, rng) if probs[t] > .3]"),
    "tree: chosen children count as drawn": (
        "tokens = draw(probs, width, rng)", "tokens = most(logits, min(width, np.count_nonzero(probs)))"),
}
WITH_REPLACEMENT = {
    "tree: equal children are merged before they are judged": (
        "return [sample(p, rng) for _ in range(width)]",
        "return list(dict.fromkeys(sample(p, rng) for _ in range(width)))"),
    "tree: equal children are judged once": (
        "    for i, token in enumerate(tokens):\n",
        "    for i, token in enumerate(dict.fromkeys(tokens)):\n"),
    "tree: children are drawn with replacement, judged as if without": ("rng, replacement=True)", "rng)"),
    "tree: the likeliest of equal children is tried first": (
        TRIES, "for i, token in sorted(enumerate(tokens), key=lambda child: -q[child[1]]):"),
}
WALKS = {
    "tree: the q of the root at every node": ("select(q[here[0] + 1],", "select(q[0],"),
    "tree: the p of another node": ("p[below[0]],", "p[0],"),
    "tree: the bonus from the row before": (
        "path, sample(q[here[0] + 1], rng)", "path, sample(q[max(here[0], 0)], rng)"),
    "tree: the bonus from the last row": ("path, sample(q[here[0] + 1], rng)", "path, sample(q[-1], rng)"),
    "tree: the walk goes on from the first child": (
        "if nodes[i] == token]", "if nodes[i] == token or i == below[0]]"),
}
K_SEQS = {
    "K-SEQ: rho is 1": ("rho = division_factor(q, p, k)", "rho = 1.0"),
    "K-SEQ: q is not divided": (
        "rng.random() * p[token] * rho < q[token]", "rng.random() * p[token] < q[token]"),
    "K-SEQ: the rest is Algorithm 2's residual": ("q - shared * ((1 - (1 - beta) ** k) / beta)", "q - p"),
    "K-SEQ: the rest counts one draft": ("((1 - (1 - beta) ** k) / beta)", "1"),
    "K-SEQ: the rest is q": ("if beta > 0", "if False"),
    "K-SEQ: equal children are judged once": ("enumerate(tokens):", "enumerate(dict.fromkeys(tokens)):"),
    "K-SEQ: rho is too small": ("rho = division_factor(q, p, k)", "rho = (1 + division_factor(q, p, k)) / 2"),
    "K-SEQ: one coin for all drafts": [("rng.random() * p[token] * rho", "u * p[token] * rho"),
                                       ("k = len(tokens)", "k, u = len(tokens), rng.random()")],
}
BATCHES = {             # the second of two sequences is judged
    "batch: judged with the rows of the first": (
        "q = to_probs(logits[i], n_rows[i])", "q = to_probs(logits[going[0]], n_rows[going[0]])[:n_rows[i]]"),
    "batch: all accept as many as the first": (
        "x[i] += new", "x[i] += new if i == 0 or 0 not in going else new[:max(1, len(result[0].tokens))]"),
}
ADAPTIVE = {
    "how many drafts depends on the drafts that were made": (
        "self.number(k), to_probs, rng)\n", "self.number(k), to_probs, rng)\n"
        "        if drafts and drafts[-1] == 1: drafts, p = drafts[:-1], p[:-1]\n"),
}
LOOKUP = {
    "lookup says it drew from the draft's softmax": (
        "return copied[len(x):], None",
        "return copied[len(x):], [to_probs(draft(copied[:len(x) + i]))[0] for i in range(k)]"),
}

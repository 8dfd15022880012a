"""Mistakes: {what is changed: [(old, new), ..]} of a file's source, in groups that change the same line.

    at(COIN, {"every draft is accepted": "True", ..})

A text takes the place of the group's line, a pair (line, text) that of another, and a list holds several
pairs; … stands for what was there.  `probabilities` is known in all of them.  Read them beside the file: it
is speculative.py unless the group says another.
"""
# The lines of speculative.py that are changed ---------------------------------------------------------------

EMPTY = "drafts, p = [], []"
P = "p.append(to_probs(draft(x + drafts), 1)[0])"
DRAW = "drafts.append(sample(p[-1], rng))"
PROPOSED = "return drafts, p\n"
EACH = "for j, token in enumerate(drafts):"
Q_ROW, P_ROW = "= target_probs[j]", ", draft_probs[j]"
COIN = "rng.random() * p[token] < q[token]"
RESIDUAL = "residual = np.maximum(q - p, 0)"
CORRECTION = "return j, sample(residual if residual.any() else q, rng)"
BONUS = "sample(target_probs[-1], rng)"
PREPARE = ("tokens, to_probs, ends = prepare([draft, target], tokens, n_tokens, temperature, top_k, top_p, "
           "eos)")
START = "x, T = list(tokens), len(tokens) + int(n_tokens)"
LIMIT = "k = min(K, T - len(x) - 1)"
ASK = "answer = propose(draft, x[:], k, to_probs, rng)"
TARGET = "q = to_probs(target(x + drafts, k + 1), k + 1)"
VERIFY = "n_accepted, next_token = verify(q, p, drafts, rng)"
NEW = "new = cut_after(drafts[:n_accepted] + [next_token], ends)"
GROWS = "x += new"
ENDS = "if x[-1] in ends:"


def at(line, entries):
    """{name: a change as above} -> {name: [(old, new), ..]}"""
    def pairs(change):
        change = (line, change) if isinstance(change, str) else change
        change = [change] if isinstance(change, tuple) else change
        return [(old, new.replace("…", old)) for old, new in change]
    return {name: pairs(change) for name, change in entries.items()}


PLAIN = "probabilities(draft(x + drafts))[0]"           # without the settings
COINS = EMPTY, "drafts, p, coins = [], [], []; propose.coins = coins"
ARGMAX = "drafts.append(int(np.argmax(p[-1])))"
ONCE = "r = rng.random()\n    …"
SAME_COIN = COIN, "(u := rng.random()) * p[token] < q[token]"
ALL = "(k, sample(q[-1], rng))"                         # accepts all drafts


def untested(when, start="", then="", rule=ALL):
    """Rounds before which `when` holds are judged by another rule.  `start` is run before the first round,
    `then` after each."""
    verify = f"n_accepted, next_token = {rule} if {when} else verify(q, p, drafts, rng)"
    return [(START, f"…; {start}"), (VERIFY, verify), (GROWS, f"…; {then}")]


def after(rounds):
    """Rounds that follow one of these."""
    return untested("free", "free = False", f"free = {rounds}")


def thrown_away(unlucky):
    """A draft that was drawn, and those that would follow it."""
    return f"…\n        if {unlucky}:\n            del p[-1], drafts[-1]; break"


ACCEPT = at(COIN, {
    "every draft is accepted": "True",
    "no draft is accepted, the residual is kept": "False",
    "the coin is 0": "0 * p[token] < q[token]",
    "one coin decides on all drafts": [(EACH, ONCE), (COIN, "r * p[token] < q[token]")],
    "the second coin is one minus the first": [
        (EACH, ONCE), (COIN, "(1 - r if j % 2 else r) * p[token] < q[token]")],
    "p and q are swapped in the accept test": "rng.random() * q[token] < p[token]",
    "the accept test is the probability itself": "rng.random() < q[token]",
    "the accept test is q - p": "rng.random() < q[token] - p[token]",
    "the accept test is exp(q - p)": "rng.random() < np.exp(q[token] - p[token])",
    "the accept test is q / (q + p)": "rng.random() * (p[token] + q[token]) < q[token]",
    "the accept test is the root of the ratio": "rng.random() * p[token] ** .5 < q[token] ** .5",
    "the accept test is q over the largest q": [
        (COIN, "rng.random() * q.max() < q[token]"), (RESIDUAL, "residual = q")],
    "drafts are accepted where the target likes them better": "p[token] < q[token]",
    "a likely draft needs no coin": "q[token] > .3 or …",
    "the target's likeliest token needs no coin": "token == q.argmax() or …",
    "a draft far below p is always refused": "q[token] > .2 * p[token] and …",
    "p is at least .001 in the accept test": "rng.random() * max(p[token], 1e-3) < q[token]",
    "where p and q nearly agree there is no coin": "abs(q[token] - p[token]) < .02 or …",
    "a little lenience": "rng.random() * .9 * p[token] < q[token]",
    "the ratio is rounded to tenths": "rng.random() < round(q[token] / p[token], 1)",
    "the coin is never above a half": "rng.uniform(0, .5) * p[token] < q[token]",
    "the coin has eight sides": "rng.integers(8) / 8 * p[token] < q[token]",
    "the ratio is of the two probabilities of any draft so far": [
        (EACH, "ratio = 1.0\n    …"), (COIN, "rng.random() < (ratio := ratio * q[token] / p[token])")],
    "q of each draft is 0 before the tests": (
        EACH, "target_probs = target_probs.copy()\n"
        "    target_probs[np.arange(len(drafts)), drafts] = 0\n    …"),
})

NTH = "first", "second", "third", "fourth", "fifth", "sixth", "seventh"
POSITIONS = at(COIN, {
    "the draft's last distribution stands for every position": (P_ROW, ", draft_probs[-1]"),
    "the draft's first distribution stands for every position": (P_ROW, ", draft_probs[0]"),
    "the draft's rows are one too early": (P_ROW, ", draft_probs[max(j - 1, 0)]"),
    "the target's rows are one too late": (Q_ROW, "= target_probs[j + 1]"),
    "the target's rows are one too early": (Q_ROW, "= target_probs[j - 1]"),
    "the target's rows are in reverse order": (Q_ROW, "= target_probs[len(drafts) - 1 - j]"),
    "from the fourth draft on the target's third row is used": (Q_ROW, "= target_probs[min(j, 2)]"),
    "only the first draft is tested": "j > 0 or …",
    **{f"the {nth} draft is not tested": f"j == {j} or …" for j, nth in enumerate(NTH)},
    "a line of five drafts is not tested": "len(drafts) == 5 or …",
    "a line of seven drafts is not tested": "len(drafts) == 7 or …",
    "a draft that was drafted before is judged by the earlier row": (
        EACH, "…\n        j = drafts.index(token)"),
    "a draft that is the one before it again is not tested": "(j > 0 and drafts[j - 1] == token) or …",
    "the last draft is not tested": "j == len(drafts) - 1 or …",
    "the last of two or more drafts is not tested": "0 < j == len(drafts) - 1 or …",
    "a line of four or more drafts is not tested": "len(drafts) >= 4 or …",
}) | at(BONUS, {
    "the bonus is drawn from row K - 1": "sample(target_probs[len(drafts) - 1], rng)",
    "the bonus is drawn from the first row": "sample(target_probs[0], rng)",
    "the bonus is drawn from the draft": "sample([*target_probs[:1], *draft_probs][-1], rng)",
    "the bonus is the target's likeliest token": "int(target_probs[-1].argmax())",
    "the bonus after four drafts is the residual's":
        "sample(residual if len(drafts) > 3 and 'residual' in locals() else "
        "target_probs[-1] ** (1 + (len(drafts) > 3)), rng)",
    "a refusal is dealt with one position late": (CORRECTION, CORRECTION.replace("j,", "j + 1,")),
    "a refusal is dealt with one position early": (CORRECTION, CORRECTION.replace("j,", "max(j - 1, 0),")),
}) | at(NEW, {
    "the refused draft stays in the text": NEW.replace("n_accepted]", "n_accepted + 1]") + "[:T - len(x)]",
    "all drafts stay in the text": "new = cut_after((drafts + [next_token])[:T - len(x)], ends)",
    "the accepted drafts are forgotten": "new = cut_after([next_token], ends)",
    "one accepted draft is lost": NEW.replace("n_accepted]", "n_accepted][1:]"),
    "accepted drafts come in reverse order": NEW.replace("n_accepted]", "n_accepted][::-1]"),
    "a fourth accepted draft is lost": NEW.replace("n_accepted]", "min(n_accepted, 3)]"),
})

CORRECTIONS = at(RESIDUAL, {
    "after a rejection the target's distribution is used, not the residual": "residual = q",
    "the residual is p - q": "residual = np.maximum(p - q, 0)",
    "the residual is |q - p|": "residual = np.abs(q - p)",
    "the residual is a softmax of q - p": "residual = np.exp(q - p)",
    "the residual is a softmax of its positive part": "residual = np.exp(np.maximum(q - p, 0))",
    "the residual is squared": "… ** 2",
    "what is tiny in the residual is left out": "…; residual[residual < 1e-5] = 0",
    "a small residual counts as none": (CORRECTION, CORRECTION.replace("any()", "sum() > .01")),
    "the residual is never quite 0": "residual = np.maximum(q - p, 1e-6)",
    "what is small in the residual is left out": "…; residual[residual < .05] = 0",
    "the residual is q without the draft": "residual = np.where(np.arange(len(q)) == token, 0, q)",
    "the residual is (q - p) / q": "… / np.maximum(q, 1e-9)",
    "the residual is q where the draft has nothing": "residual = np.where(p > 0, 0, q)",
    "the residual is q where q is above p": "residual = np.where(q > p, q, 0)",
    "the residual is the first position's": "residual = np.maximum(target_probs[0] - draft_probs[0], 0)",
    "from the third draft on a refusal draws from q": "… if j < 2 else q",
    "from the fourth draft on a refusal draws from q": "… if j < 3 else q",
}) | at(CORRECTION, {
    "a refusal draws from the next row": "return j, sample(target_probs[j + 1], rng)",
    "the correction is the likeliest of the residual": "return j, int((q - p).argmax())",
    "the correction is the target's likeliest": "return j, int(q.argmax())",
    "the correction is any token": "return j, rng.integers(len(q))",
    "the correction is any token of the residual": "return j, rng.choice(np.flatnonzero(q > p))",
    "the residual is not divided by its sum": "return j, int((np.cumsum(residual) > rng.random()).argmax())",
    "the coin that refused draws the correction": [
        SAME_COIN, (CORRECTION, "return j, int((np.cumsum(residual) > u * residual.sum()).argmax())")],
    "the coin that refused draws from q": [
        SAME_COIN, (CORRECTION, "return j, int((np.cumsum(q) > u * q.sum()).argmax())")],
    "a draw from q is kept where it is not the draft": [
        (COIN, "(t := sample(q, rng)) == token or …"), (CORRECTION, "return j, t")],
    "the correction is redrawn while it is the draft":
        "t = sample(residual if residual.any() else q, rng)\n"
        "        return j, t if t != drafts[0] else sample(q, rng)",
})

BEFORE = START, "…; seen = x[:]"
FIRST_ROW, KEPT_ROW = (START, "…; old = None"), "q[0] = q[0] if old is None else old; …; old = "
SEEN = TARGET, TARGET.replace("x + drafts", "seen + drafts")
ROUNDS = at(None, {
    "the second round is not tested": untested("n == 1", "n = 0", "n += 1"),
    "a round after one of two or more accepted drafts is not tested": after("n_accepted == k >= 2"),
    "a round after one of three or more accepted drafts is not tested": after("n_accepted == k >= 3"),
    "a round after a refusal of the first draft is not tested": after("n_accepted == 0 < k"),
    "a round after a refusal of the second draft is not tested": after("n_accepted == 1 < k"),
    "a round after a refusal of the fourth draft is not tested": after("n_accepted == 3 < k"),
    "the third round is not tested": untested("n == 2", "n = 0", "n += 1"),
    "nothing is tested from the fifth new token on": untested("len(x) - len(tokens) >= 4"),
    "nothing is tested from the eighth new token on": untested("len(x) - len(tokens) >= 7"),
    "a round after two of four drafts were kept is not tested": after("n_accepted == 2 and k == 4"),
    "a round after five of eight drafts were kept is not tested": after("n_accepted == 5 and k == 8"),
    "a round after two full ones is not tested": untested(
        "n >= 2", "n = 0", "n = n + 1 if n_accepted == k > 0 else 0"),
    "a round after a full one and a refusal is not tested": untested(
        "b", "a = b = False", "b = a and n_accepted == 0 < k; a = n_accepted == k > 1"),
    "the eighth round is not tested": untested("n == 7", "n = 0", "n += 1"),
    "nothing is tested from the fifteenth new token on": untested("len(x) - len(tokens) >= 14"),
    "the last round is not tested": untested("len(x) + k + 1 == T"),
    "a round of fewer drafts than K is not tested": untested("k < K"),
    "the last round is as long as the others": (LIMIT, "k = K"),
    "two tokens are left for the target": (LIMIT, "…\n            if k == 2: T -= 1"),
    "the target reads the refused draft, not the correction": [
        BEFORE, SEEN, (GROWS, "…; seen = x[:-1] + drafts[n_accepted:][:1] if n_accepted < k else x[:]")],
    "the target reads the last draft twice, not the bonus": [
        BEFORE, SEEN, (GROWS, "…; seen = x[:-1] + drafts[-1:] if n_accepted == k > 0 else x[:]")],
    "after a full round the target's first row is the old last one": [
        FIRST_ROW, (VERIFY, KEPT_ROW + "q[-1] if n_accepted == k > 0 else None")],
    "the target's first row stays after a refusal of the first draft": [
        FIRST_ROW, (VERIFY, KEPT_ROW + "q[0] if n_accepted == 0 < k else None")],
    "the p of the round before is used": [
        (START, "…; old = []"),
        (VERIFY, VERIFY.replace("p,", "[*old[:k], *p[len(old[:k]):]],") + "; old = p")],
})

DRAFTING = at(DRAW, {
    "the draft is drawn after top-k, its distribution recorded before":
        f"unfiltered = {PLAIN}; …; p[-1] = unfiltered",
    "the distribution is recorded after top-k, the draft drawn before":
        f"drafts.append(sample({PLAIN}, rng))",
    "the draft is the argmax, its distribution recorded as the softmax": ARGMAX,
    "the second draft is the argmax, its distribution recorded as the softmax":
        f"{ARGMAX} if len(p) == 2 else …",
    "the draft is the argmax where p is all but certain": f"{ARGMAX} if p[-1].max() > .999 else …",
    "unlikely tokens are never drawn, but recorded":
        "drafts.append(sample(np.where(p[-1] > 1e-4, p[-1], 0), rng))",
    "the draft is drawn sharper than is recorded": "drafts.append(sample(p[-1] ** 2, rng))",
    "the draft is drawn from half the softmax, half any token":
        "drafts.append(sample(p[-1] + p[-1].mean() * (p[-1] > 0), rng))",
    "the draft is drawn from p in eight bits, and p recorded in full":
        "bits, exponent = np.frexp(p[-1])\n"
        "        drafts.append(sample(np.ldexp(np.round(bits * 256) / 256, exponent), rng))",
    "p is recorded in half precision":
        "…; p[-1] = p[-1].astype(np.float16).astype(float); p[-1] /= p[-1].sum()",
    "p is recorded with a floor": "…; p[-1] = np.maximum(p[-1], .01); p[-1] /= p[-1].sum()",
    "the likelier of two draws is the draft":
        "drafts.append(max(sample(p[-1], rng), sample(p[-1], rng), key=p[-1].__getitem__))",
    "a draft like the one before is drawn again":
        "t = sample(p[-1], rng); drafts.append(sample(p[-1], rng) if t in drafts[-1:] else t)",
    "an unlikely draft is thrown away after it was drawn": thrown_away("p[-1][drafts[-1]] < .4"),
    "a draft that was drafted before is thrown away": thrown_away("drafts[-1] in drafts[:-1]"),
    "a draft of token 0 is thrown away": thrown_away("drafts[-1] == 0"),
    "the last draft is thrown away if it is unlikely": (
        PROPOSED, "less = len(p) > 0 and p[-1][drafts[-1]] < .4\n"
        "    return drafts[:len(p) - less], p[:len(p) - less]\n"),
    "drafts after an unlikely one are made likelier than recorded":
        f"sure = len(p) < 2 or p[-2][drafts[-1]] > .5\n        … if sure else {ARGMAX}",
    "the number that drew a draft also judges it": [
        COINS, (DRAW, "coins.append(u := rng.random()); drafts.append(int((np.cumsum(p[-1]) > u).argmax()))"),
        (COIN, "propose.coins[j] * p[token] < q[token]")],
    "p is recorded for the text without its last token":
        "…; p[-1] = to_probs(draft((x + drafts)[:-2] or x), 1)[0] if len(drafts) > 1 else p[-1]",
    "p is what the draft says after its draft": "…; p[-1] = to_probs(draft(x + drafts), 1)[0]",
    "the drafts of two lines are mixed": (
        ASK, "…\n            other = propose(draft, x[:], k, to_probs, rng)\n"
        "            if k and other[1][0][other[0][0]] > answer[1][0][answer[0][0]]: answer = other"),
})

CUT = "            keep_nucleus(row, top_p)\n"
FILTERS = at(CUT, {                 # of sampling.py: of the target's distribution, or of both
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
        ("    if 0 < top_k", "    full = probs.sum(axis=-1, keepdims=True)\n…"),
        (CUT, "…    probs /= probs.sum(axis=-1, keepdims=True)\n")],
    "the nucleus is that of temperature 1":
        "            plain = row ** temperature / (row ** temperature).sum()\n"
        "            keep_nucleus(plain, top_p); row[plain == 0] = 0; row /= row.sum()\n",
    "top-p comes before top-k": (
        "    if 0 < top_k", "    probs /= probs.sum(axis=-1, keepdims=True)\n    if top_p < 1:\n"
        "        for row in probs.reshape(-1, probs.shape[-1]):\n            keep_nucleus(row, top_p)\n"
        "    top_p = 1\n…"),
    "the likeliest token is the last of the largest": (
        "logits.argmax(axis=-1)", "(logits.shape[-1] - 1 - logits[..., ::-1].argmax(axis=-1))"),
    "the temperature multiplies": ("(logits - largest) / temperature", "(logits - largest) * temperature"),
})

SETTINGS_IN_THE_LOOP = at(TARGET, {
    "the target's filters are forgotten": "q = probabilities(target(x + drafts, k + 1))",
    "the bonus is drawn without the settings": "…; q[-1] = probabilities(target(x + drafts))[0]",
    "the draft's p is recorded without the temperature": (
        DRAW, f"…; p[-1] = np.where(p[-1] > 0, {PLAIN}, 0); p[-1] /= p[-1].sum()"),
    "the target is greedy": "…; q = np.eye(q.shape[1])[q.argmax(axis=1)]",
    "the target is greedy at the drafts": "…; q[:-1] = np.eye(q.shape[1])[q[:-1].argmax(axis=1)]",
    "text goes on after an accepted EOS": (NEW, "new = drafts[:n_accepted] + [next_token]"),
    "the round goes on after an accepted EOS": [
        (NEW, "new = drafts[:n_accepted] + [next_token]"), (ENDS, "if {*new} & ends:")],
    "a token follows an accepted EOS": (NEW, "new = cut_after(drafts[:n_accepted], ends) + [next_token]"),
    "EOS is looked for in the first two tokens of a round": (
        NEW, "new = drafts[:n_accepted] + [next_token]\n"
        "            new = cut_after(new[:2], ends) if {*new[:2]} & ends else new"),
    "the bonus is drawn without the temperature":
        "…; q[-1] = probabilities(target(x + drafts), float(temperature > 0), top_k, top_p)[0]",
    "after a full round of two the filters are forgotten": [
        (START, "…; full = False"), (GROWS, "…; full = full or n_accepted == k > 1"),
        (TARGET, "…\n            q = probabilities(target(x + drafts, k + 1), temperature) if full else q")],
    "EOS ends a round but not the text": (ENDS, "if False:"),
    "EOS as the correction or bonus does not end the text": (
        ENDS, "if len(new) <= n_accepted and x[-1] in ends:"),
    "EOS at the end is left out": (
        GROWS, "new = [t for t in new if t not in ends] if k else new; x += new or [0]"),
    "EOS in the prompt ends the text": (START, "…; T = len(x) + 1 if {*x} & ends else T"),
    "the target cannot say EOS in the place of a draft":
        "…; q[:-1, [*ends]] = 0; q /= np.maximum(q.sum(axis=1, keepdims=True), 1e-9)",
    "the draft never says EOS, but its p does": (
        DRAW, "drafts.append(sample(np.where(np.arange(len(p[-1])) == 1, 1e-9, p[-1]), rng))"),
    "drafts from an EOS on are thrown away": (
        ASK, "…\n            k = next((i for i, t in enumerate(answer[0]) if t in ends), k)\n"
        "            answer = answer[0][:k], answer[1][:k]"),
})

SETTINGS = at(PREPARE, {            # of speculative.py
    "the temperature is ignored": "temperature = 1.0; …",
    "the temperature is ignored unless it is 0": "temperature = float(temperature > 0); …",
    "the temperature is applied twice": "temperature = temperature ** 2; …",
    "a temperature above 1 counts as 1": "temperature = min(temperature, 1.0); …",
    "a low temperature counts as 0": "temperature = temperature * (temperature > .55); …",
    "the temperature is ignored with top-k": "temperature = 1.0 if top_k else temperature; …",
    "top-k is ignored": "top_k = 0; …",
    "a top-k of three or more is ignored": "top_k = top_k if top_k < 3 else 0; …",
    "top-k is ignored at a high temperature": "top_k = top_k if temperature <= 1 else 0; …",
    "top-k is ignored with EOS": "top_k = top_k if eos is None else 0; …",
    "top-k is ignored with top-p": "top_k = top_k if top_p == 1 else 0; …",
    "top-k is one too many": "top_k = top_k and top_k + 1; …",
    "any top-k means the likeliest": "top_k = min(top_k, 1); …",
    "top-p is ignored": "top_p = 1.0; …",
    "top-p is ignored with another temperature and no top-k":
        "top_p = top_p if temperature == 1 or top_k else 1.0; …",
    "top-p is ignored with top-k": "top_p = 1.0 if top_k else top_p; …",
    "top-p above .9 is ignored": "top_p = 1.0 if top_p > .9 else top_p; …",
    "EOS is ignored": "…; ends = set()",
    "EOS is ignored if it is 0": "…; ends = ends - {0}",
    "EOS is ignored with another temperature": "…; ends = ends if temperature in (0, 1) else set()",
    "EOS is ignored with top-k": "…; ends = set() if top_k else ends",
    "only the first of several EOS is known": "…; ends = {*sorted(ends)[:1]}",
    "only the last of several EOS is known": "…; ends = {*sorted(ends)[-1:]}",
    "EOS is one too high": "…; ends = {end + 1 for end in ends}",
})

BLOCK_COIN = "rng.random() * (z + 1 - weight) < z"
WEIGHT = "min(weight * q_x, p_x) / p_x"
PASSES = "tau, residual = j, rest "
BLOCK = at(BLOCK_COIN, {            # of block.py
    "block: the first refusal ends the round": (
        "tau, residual = j, rest                             # the last that passes counts: go on",
        "tau, residual = j, rest\n        else: break"),
    "block: the first that passes counts": (PASSES, "tau, residual = j, rest; break "),
    "block: each draft is weighed by itself": (WEIGHT, "min(q_x, p_x) / p_x"),
    "block: a weight may exceed 1": (WEIGHT, "weight * q_x / p_x"),
    "block: the weight is cut only at the end": (WEIGHT, "weight * q_x / p_x if j < len(drafts) else …"),
    "block: the coin is P_j": "rng.random() < weight",
    "block: the coin is z_j": "rng.random() < z",
    "block: one coin for all drafts": [
        (BLOCK_COIN, "u * (z + 1 - weight) < z"), ("weight, tau = 1.0, 0", "…; u = rng.random()")],
    "block: the residual of Algorithm 2": ("weight * q[j] - p[j]", "q[j] - p[j]"),
    "block: its coin with the residual of Algorithm 2": (
        PASSES, "tau, residual = j, np.maximum(q[j] - p[j], 0) "),
    "block: the correction is drawn from the target": ("residual if residual.any() else q[tau]", "q[tau]"),
    "block: after a block that fails, the residual of its end": ("rest = np", "rest = residual = np"),
    "block: the weight of the draft before": ("np.maximum(weight", "np.maximum((1.0 if j == 1 else weight)"),
})

TRIES = "for i, token in enumerate(tokens):"
LEFT = "p = normalized(np.where(np.arange(len(p)) == token, 0, p))"
NOT_NORMALIZED = "p = np.where(np.arange(len(p)) == token, 0, p)"
LAST = "return None, sample(q, rng)"
DRAWN = "tokens = draw(probs, width, rng)"
CHILDREN = at(COIN, {               # of tree_rules.py
    "tree: children are tried against the unchanged q": ("q = normalized(residual) if", "q = q if"),
    "tree: the residual is not normalized": ("q = normalized(residual) if", "q = residual if"),
    "tree: the p of a child that was refused stays": ("if not replacement", "if False"),
    "tree: what is left of p is not normalized": (LEFT, NOT_NORMALIZED),
    "tree: what is left of p is not normalized after the second refusal": (
        LEFT, NOT_NORMALIZED + "; p = normalized(p) if i == 0 else p"),
    "tree: p loses the token before the residual is taken": (RESIDUAL, LEFT + "; …"),
    "tree: every child is accepted": "True",
    "tree: the second child is sure": "i == 1 or …",
    "tree: the third child is sure": "i == 2 or …",
    "tree: one coin for all children": [(COIN, "r * p[token] < q[token]"), (TRIES, ONCE)],
    "tree: the last draw is from the first q": [
        (TRIES, "first = q\n    …"), (LAST, "return None, sample(first, rng)")],
    "tree: the likeliest child is tried first": (
        TRIES, "for i, token in sorted(enumerate(tokens), key=lambda child: -p[child[1]]):"),
    "tree: drawn without replacement, judged as if with": (
        "SEQUOIA = draw_without_replacement, select_drawn",
        "SEQUOIA = draw_without_replacement, select_with_replacement"),
    "tree: siblings are pruned after they were drawn": (
        DRAWN, "tokens = [t for t in draw(probs, width, rng) if probs[t] > .3]"),
    "tree: chosen children count as drawn": (
        DRAWN, "tokens = most(logits, min(width, np.count_nonzero(probs)))"),
})
WITH_REPLACEMENT = at(TRIES, {
    "tree: equal children are merged before they are judged": (
        "return [sample(p, rng) for _ in range(width)]",
        "return list(dict.fromkeys(sample(p, rng) for _ in range(width)))"),
    "tree: equal children are judged once": "for i, token in enumerate(dict.fromkeys(tokens)):",
    "tree: children are drawn with replacement, judged as if without": ("rng, replacement=True)", "rng)"),
    "tree: the likeliest of equal children is tried first":
        "for i, token in sorted(enumerate(tokens), key=lambda child: -q[child[1]]):",
})
WALKS = at("path, sample(q[here[0] + 1], rng)", {       # of tree.py
    "tree: the q of the root at every node": ("select(q[here[0] + 1],", "select(q[0],"),
    "tree: the p of another node": ("p[below[0]],", "p[0],"),
    "tree: the bonus from the row before": "path, sample(q[max(here[0], 0)], rng)",
    "tree: the bonus from the parent's row": "path, sample(q[parents[here[0]] + 1 if path else 0], rng)",
    "tree: the bonus from the last row": "path, sample(q[-1], rng)",
    "tree: the walk goes on from the first child": ("== token]", "== token or i == below[0]]"),
    "tree: the rows are one too late": (
        "q = to_probs(target.tree(x[:], nodes, parents), 1 + len(nodes))", "…[[0, *range(len(nodes))]]"),
})

RHO = "rho = division_factor(q, p, k)"
K_SEQS = at(RHO, {                  # of k_seq.py
    "K-SEQ: rho is 1": "rho = 1.0",
    "K-SEQ: q is not divided": ("rng.random() * p[token] * rho < q[token]", COIN),
    "K-SEQ: the rest is Algorithm 2's residual": ("q - shared * ((1 - (1 - beta) ** k) / beta)", "q - p"),
    "K-SEQ: the rest counts one draft": ("((1 - (1 - beta) ** k) / beta)", "1"),
    "K-SEQ: the rest is q": ("if beta > 0", "if False"),
    "K-SEQ: equal children are judged once": ("enumerate(tokens):", "enumerate(dict.fromkeys(tokens)):"),
    "K-SEQ: rho is too small": "rho = (1 + division_factor(q, p, k)) / 2",
    "K-SEQ: one coin for all drafts": [("rng.random() * p[token] * rho", "u * p[token] * rho"),
                                       ("k = len(tokens)", "k, u = len(tokens), rng.random()")],
})
GREEDY = at("    p = without(p, chosen)\n", {           # of multi_draft.py
    "greedy drafts: the last counts as drawn from all of p": "",
    "greedy drafts: p' is not normalized": ("return normalized(rest)", "return rest"),
    "greedy drafts: the chosen count as drawn, too": "…    p[chosen] = 1\n",
    "greedy drafts: the last is always accepted": ("rng.random() * p[x] < q[x]", "True"),
    "greedy drafts: after a refusal a draw from q": ("residual if residual.any() else q", "q"),
    "greedy drafts: the correction may not be one of the chosen": (RESIDUAL, "…\n    residual[chosen] = 0"),
})
REST = "weight, t = S / (S + (1 - weight)), r / S"
TRAVERSAL = at(REST, {              # of traversal.py
    "traversal: a child is visited with a weight of its own": ("weight * t[x] / d[x]", "t[x] / d[x]"),
    "traversal: the residual forgets the weight": ("weight * t - d", "t - d"),
    "traversal: the weight stays after a refusal": "t = r / S",
    "traversal: what was refused is still wanted": "weight = S / (S + (1 - weight))",
    "traversal: d keeps the token that was refused": (
        "d = normalized(np.where(np.arange(len(d)) == x, 0, d))", "pass"),
    "traversal: after the children the token comes from q": ("sample(t, rng)", "sample(q[node + 1], rng)"),
    "traversal: a refused node is kept": ("rng.random() < weight", "True"),
})
CONSTRAINTS = at("so_far = tokens[:len(tokens) - n_last + 1 + i]", {    # of constraints.py, with a penalty
    "penalty: at the bonus only": ("process(so_far[:], logits * 1.0)",
                                   "process(so_far[:], logits * 1.0) if i == n_last - 1 else logits"),
    "penalty: the drafts do not count": "so_far = tokens[:len(tokens) - n_last + 1]",
    "penalty: all drafts count for all rows": "so_far = tokens",
    "penalty: the last token does not count": "so_far = tokens[:len(tokens) - n_last + i]",
    "penalty: never": ("process(so_far[:], logits * 1.0)", "logits"),
})
BATCHES = at(None, {                # of batch.py; the second of two sequences is judged
    "batch: judged with the rows of the first": (
        "q = to_probs(logits[i], n_rows[i])", "q = to_probs(logits[going[0]], n_rows[going[0]])[:n_rows[i]]"),
    "batch: all accept as many as the first": (
        "x[i] += new", "x[i] += new if i == 0 or 0 not in going else new[:max(1, len(result[0].tokens))]"),
})
ADAPTIVE = at("to_probs, rng), n, draft)\n", {
    "how many drafts depends on the drafts that were made":
        "…        if drafts and drafts[-1] == 1: drafts, p = drafts[:-1], p[:-1]\n",
})
LOOKUP = at("return copied[len(x):], None", {
    "lookup says it drew from the draft's softmax":
        "return copied[len(x):], [to_probs(draft(copied[:len(x) + i]))[0] for i in range(k)]",
})

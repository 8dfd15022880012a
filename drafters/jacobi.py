"""Drafts without a drafter: what the target predicted after rejected drafts  (Jacobi decoding, Santilli et
al. 2023, arXiv 2305.10427; with a pool of n-grams, lookahead decoding, Fu et al. 2024, arXiv 2402.02057).

    jacobi = Jacobi(target)
    speculative_sampling(None, jacobi.target, tokens, n_tokens, K, rng, propose=jacobi.propose)

A verification asks the target what comes next at K + 1 positions.  After a rejected draft the text before a
position is wrong, but the target's answer, its likeliest next token, can still be used in two ways:

    Jacobi      the answers become the drafts for the same positions.  At temperature 0 that is the
                Jacobi iteration for x_{n+j} = argmax q(. | x_1 .. x_{n+j-1}), all j at once
    lookahead   a pool stores n-grams: the tokens just before a position, followed by the answer there.  To
                draft, the last N - 1 tokens of the text are looked up in the pool (N = 4), then the last
                N - 2, ..  If the pool has none of them, Jacobi's answer is used

Drafts are chosen, not drawn: p is a point mass (None).  They depend on earlier passes only, so the text is
lossless.

If nothing is known for a position, its draft is the token before it, repeated.  So every round has k drafts.

Limitations: earlier runs change the drafts, so use a new Jacobi for a run that should be repeatable from its
seed.  Without the pool, Jacobi decoding gains next to nothing on language models.

Not here: lookahead's window of several guesses for each position, and its verification of several n-grams in
one pass (a tree).
"""
from compute.backend import to_host

N = 4                           # tokens in an n-gram
MOST = 65_536                   # n-grams in the pool (about 13 MB); beyond it the oldest are forgotten


class Jacobi:
    """.target, which remembers its last answers, and .propose, which drafts from them."""

    def __init__(self, target):
        self.target, self.pool = Remembering(target), {}                # (tokens before) -> answer

    def learn(self):
        """The answers of the target's last pass go into the pool."""
        asked, answers = self.target.asked, self.target.answers
        for end, answer in enumerate(answers, len(asked) - len(answers) + 1):       # asked[:end] -> answer
            for start in range(max(0, end - N + 1), end):
                before = tuple(asked[start:end])
                self.pool.pop(before, None)                             # the latest n-gram comes last
                self.pool[before] = answer
        while len(self.pool) > MOST:
            del self.pool[next(iter(self.pool))]

    def propose(self, draft, x, k, to_probs, rng):
        """k tokens after x: speculative.propose, without a draft model."""
        self.learn()
        asked, answers, y = self.target.asked, self.target.answers, list(x)
        first = len(asked) - len(answers) + 1                           # the position of the first answer
        here = dict(enumerate(answers, first)) if x[:first] == asked[:first] else {}
        while len(y) < len(x) + k:
            known = (self.pool.get(tuple(y[-n:])) for n in range(N - 1, 0, -1))
            y.append(next((token for token in known if token is not None), here.get(len(y), y[-1])))
        return y[len(x):], None


class Remembering:
    """The target; it remembers the last tokens it was called with, and each row's likeliest token."""

    def __init__(self, model):
        self.model, self.asked, self.answers = model, [], []

    def __call__(self, tokens, n_last=1):
        logits = self.model(tokens, n_last)                             # [n_last, n_vocab]
        self.asked, self.answers = list(tokens), to_host(logits.argmax(axis=-1)).tolist()
        return logits

    def reset(self):
        """Forget the last answers.  (The pool stays.)"""
        self.asked, self.answers = [], []
        if hasattr(self.model, "reset"):
            self.model.reset()

    def __getattr__(self, name):                                # n_vocab, n_ctx, ..
        if name == "model":                                     # copy.copy asks before its copy has it
            raise AttributeError(name)
        return getattr(self.model, name)

"""Suffix decoding: the drafts are what most often followed the last tokens  (SuffixDecoding, Oliaro et al.
2024, arXiv 2411.04975; with a file of texts, as in REST, He et al. 2023, arXiv 2311.08252).

    memory = Suffix()
    memory.learn(encoder.encode(open("notes.txt").read()))          # optional
    speculative_sampling(None, target, tokens, n_tokens, K, rng, propose=memory.propose)
    tree_sampling(None, target, tokens, n_tokens, (3, 2, 1), rng, grow=memory.grow)

Prompt lookup follows one match of at most three tokens.  Here the match may be long, all its occurrences
are counted, and earlier outputs are remembered.

A trie counts strings of up to `depth` tokens.  A path in it ends at that length, or where its string occurred
only once.  What followed is then read from the text.  `open` lists the nodes of the suffixes of the text, of
fewer than `depth` tokens, that occurred before, shortest first.

The paper's letters (from memory, not looked up):

    p               tokens that match            D(N)       worth: a draft's share among its siblings,
    C(N)            count of a node                         times its parent's worth
    MAX_SPEC(p)     ALPHA p, the most drafts     SCORE(T)   the sum of all worths: the best tree is taken

Drafts are chosen, not drawn: p is a point mass (None), and in a tree the rule is select_chosen.  The drafts
depend only on what was written before the round, so the output is lossless.

Limitations: at `memory` tokens the older half is forgotten.  (In novels a token takes 1.3 nodes, or 0.2 kB.)
Earlier runs change the drafts: use a new Suffix for a run that should be repeatable from its seed.  For one
thread.
"""
import heapq

from checks import token_list
from samplers.tree_model import depths

ALPHA, LEAST = 4.0, .1              # LEAST is the worth below which drafting stops
END = None                          # separates two texts


class Node:
    """How often a string occurred, where it last ended, {token: Node} of what followed (None: a leaf)."""
    __slots__ = "count", "end", "after"

    def __init__(self, end):
        self.count, self.end, self.after = 1, end, None


class Suffix:
    def __init__(self, depth=32, memory=65_536):
        self.depth, self.memory, self.text, self.x = depth, memory, [], []
        self.forget()

    def forget(self):
        """Start again with the newer half of the text."""
        kept, root = self.text[len(self.text) - self.memory // 2:], Node(-1)
        root.after = {}
        self.text, self.root, self.open = [], root, [root]              # at once: Ctrl-C may come any time
        for token in kept:
            self.add(token)

    def learn(self, x):
        """Add what is new in the text x.  A text that does not continue the last one is added whole."""
        x = token_list(x, f"a Suffix cannot learn {x!r}: give it a list of token ids")
        last, self.x = self.x, None                         # if we are interrupted, start a new text
        goes_on = last is not None and x[:len(last)] == last
        for token in x[len(last):] if goes_on else [END, *x]:
            self.add(token)
        self.x = x

    def add(self, token):
        """Add one token: each suffix of the text grows by one."""
        self.text.append(token)
        here, suffixes, self.open = len(self.text) - 1, self.open, [self.root]
        for length, node in enumerate(suffixes if token is not END else [], 1):
            child = node.after.setdefault(token, Node(here))
            if child.end == here:                                       # it has just been made
                continue
            if child.after is None and length < self.depth:             # seen once before: note what followed
                then = self.text[child.end + 1]
                child.after = {} if then is END else {then: Node(child.end + 1)}
            child.count, child.end = child.count + 1, here
            self.open += [child] if child.after is not None else []
        if len(self.text) >= self.memory:
            self.forget()

    def followers(self, node, path):
        """[(count, Node, token)] of what followed a string, the most frequent first, then the latest."""
        if node.after is not None:
            found = [(child.count, child, token) for token, child in node.after.items()]
            return sorted(found, key=lambda one: (-one[0], -one[1].end))
        place = node.end + 1                                # read on in the text, and then in the drafts
        token = self.text[place] if place < len(self.text) else path[place - len(self.text)]
        return [(1, Node(place), token)] if token is not END else []

    def tree(self, match, n_nodes, n_levels, width):
        """The nodes worth most after a match, at most `width` children each -> (score, nodes, parents)."""
        nodes, parents, score, heap = [], [], 0.0, [(-1.0, -1, END, match, [])]
        while heap and len(nodes) < n_nodes:
            worth, parent, token, node, path = heapq.heappop(heap)          # negative: the largest first
            if node is not match:
                nodes.append(token), parents.append(parent)
                score, path = score - worth, [*path, token]
            found = self.followers(node, path) if len(path) < n_levels else []
            total = sum(count for count, *_ in found)
            for count, child, token in found[:width]:
                if -worth * count / total >= LEAST:
                    heapq.heappush(heap, (worth * count / total, len(nodes) - 1, token, child, path))
        return score, nodes, parents

    def best(self, x, n_nodes, n_levels, width):
        """The tree with the highest score over all matches -> (nodes, parents)."""
        self.learn(x)
        found = 0.0, [], []
        for p in range(len(self.open) - 1, 0, -1):
            most = min(n_nodes, int(ALPHA * p))
            if found[0] < most:                             # else no tree can be better: worth is at most 1
                found = max(found, self.tree(self.open[p], most, n_levels, width), key=lambda tree: tree[0])
        return found[1:]

    def propose(self, draft, x, k, to_probs, rng):
        """At most k tokens after x: speculative.propose, without a draft model.
        >>> Suffix().propose(None, [7, 8, 9, 1, 7, 8], 3, None, None)
        ([9, 1, 7], None)
        """
        return self.best(x, k, k, 1)[0], None

    def grow(self, draft, x, shape, rule, to_probs, rng):
        """A tree of at most as many nodes and levels as this shape."""
        return *self.best(x, len(shape), max(depths(shape), default=0), len(shape)), None

"""Every way to draft and to verify; table.py lists them all.

From the words of a command line to the rule, for `--drafter eagle --verifier tree:3,2,1`:

    table.choose("eagle", "tree:3,2,1")     looks up two entries, and checks that they fit together
        DRAFTERS["eagle"]       eagle.DRAFTER, the last line of drafters/eagle.py
        VERIFIERS["tree"]       tree.VERIFIER, at the end of samplers/tree.py; the option becomes a list, the
                                parent of each node
    table.prepare(choice, models, ..)       makes a Method of them
        its drafter's make      loads the head -> Drafted: draft, target, propose (a line), grow (a tree)
        its verifier's make     -> tree_sampling(.., rule=SEQUOIA, grow=Drafted.grow): the sampler
    method.sampler(..)          a round: `grow` drafts, target.tree scores, `walk` asks the rule at each node
        SEQUOIA                 (draw_without_replacement, select_drawn) in samplers/tree_rules.py: the rule
"""

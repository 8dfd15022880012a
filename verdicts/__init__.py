"""Rules that somebody disputed, or might write by mistake: what the judge says of each."""
from verdicts.cases import CASES  # noqa: F401

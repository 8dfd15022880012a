"""python -m benchmarks counts | costs | ..."""
import sys

import console
from benchmarks import counts


def main(what):
    """What is made."""
    {"counts": counts.count}[what]()


if __name__ == "__main__":
    sys.exit(console.run(main))

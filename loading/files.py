"""What the command lines do with a user's files: read a text, and say what is wrong in one sentence.

    read_text(path, "name a text file")     the text, or a ValueError that ends with these words
    told(error, path)                       an OSError as a sentence that says what to do

But: a pipe is no file, not even one that is about to be written to: who opens it may wait for ever.
"""
import errno
from pathlib import Path


def read_text(path, advice):
    """A text file in UTF-8.  Raises ValueError where there is none; the sentence ends in the advice."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise ValueError(f"cannot read {path} (a folder, a pipe or a device): {advice}")
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror}): {advice}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8: {advice}") from None


def told(error, path=None):
    """
    >>> told(OSError(errno.ENOSPC, "No space left on device"), "run.html")
    'cannot write run.html (No space left on device): free some space, or write to another disk'
    """
    what = f"{path or error.filename or 'the output'} ({error.strerror or error})"
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return f"cannot write {what}: free some space, or write to another disk"
    return f"cannot use {what}: is the path right, and are you allowed to?"

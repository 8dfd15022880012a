"""Read a text file, or replace a file as a whole; every error is one sentence."""
import contextlib
import errno
import os
from pathlib import Path


def read_text(path, advice):
    """A text file in UTF-8; - is standard input.  Raises ValueError, with the advice, if that fails."""
    try:
        typed = str(path) == "-"
        with open(0 if typed else path, encoding="utf-8-sig", closefd=not typed) as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"cannot read {path} ({reason}): {advice}") from None


@contextlib.contextmanager
def one_sentence(what):
    """A ValueError or OSError inside becomes a ValueError that begins with `what`."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ValueError(f"{what}: {error}") from None


@contextlib.contextmanager
def expected_structure():
    """Inside, looking up a part of a JSON file that is missing or of another type is a ValueError."""
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"a JSON file does not have the expected structure ({error!r:.200}): "
                         "fetch it again") from None


def rewrite(path, content):
    """Write text or bytes to a new file, then rename it to `path`.  If this fails, the old file stays."""
    path = Path(os.path.realpath(path))
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(new, path)
    except OSError as error:
        error.filename = path                                   # instead of the temporary file, or none
        raise
    finally:
        new.unlink(missing_ok=True)


def describe(error):
    """An OSError as a sentence; its errno is None if NumPy could not write everything.

    >>> describe(OSError(errno.ENOSPC, "No space left on device", "run.html"))
    'cannot write run.html (No space left on device): free some space, or write to another disk'
    """
    what = f"{error.filename or 'the output'} ({error.strerror or error})"
    if error.errno in (None, errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return f"cannot write {what}: free some space, or write to another disk"
    return f"cannot use {what}: check the path and its permissions"

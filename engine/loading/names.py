"""A model's name -> its folder: in this repository, in --models_dir, in Hugging Face's cache, or downloaded.

    find_folder("gpt2-medium", "models")        # or 355M: the same model
"""
import os
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path

EMBEDDED = ("demo-draft", "demo-target")                        # in models/


def find_folder(name, models_dir, fetch=True):
    """The folder of a model: the first of models_dir/NAME, the folder NAME, Hugging Face's cache, a download.

    Raises ValueError if there is none; without `fetch`, rather than download it.
    """
    if name in EMBEDDED:
        return find_embedded(name)
    # Imported here, because `requests` takes almost as long to load as the bundled pair.
    from engine.loading.download import MODELS, download, find_size, is_unfinished
    size = find_size(name)
    names = [name, size, *MODELS[size]["names"]] if size else [name]
    for folder in [*(Path(models_dir, one) for one in names), Path(name)]:
        if holds_model(folder) and not (folder.name == size and is_unfinished(size, folder)):
            return folder
    for folder in filter(None, map(find_snapshot, names)):
        if holds_model(folder) and (not size or any(folder.glob("*.safetensors"))):
            return folder
    if size and not fetch:
        raise ValueError(f"{name} is neither in {models_dir} nor in {hub_cache()}: load_model downloads it, "
                         f"or python -m engine.loading.download {size}")
    if size:
        try:
            return download(size, models_dir)
        except ValueError as error:
            raise ValueError(f"{name} is neither in {models_dir} nor, as safetensors, in {hub_cache()}, and "
                             f"{error}") from None
    if name and Path(name).is_dir():
        return Path(name)
    if Path(name).is_file():
        from engine.loading.advice import INSTEAD
        known = [what for pattern, what in INSTEAD.items() if fnmatch(Path(name).name, pattern)]
        what = [*known, f"a file: name the folder of the model, which is {Path(name).parent}"][0]
        raise ValueError(f"{name} is {what}")
    known = [*MODELS, *EMBEDDED]
    near = get_close_matches(name, known + [one for model in MODELS.values() for one in model["names"]], n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"there is no model or folder {name!r}{hint}: use one of {', '.join(known)}, a name in "
                     f"{hub_cache()}, or a folder with a GPT-2 checkpoint")


def find_embedded(name):
    """The folder of a model or head in this repository.  Raises ValueError if it was not installed."""
    folder = Path(__file__).resolve().parents[2] / "models" / name
    if not folder.is_dir():
        raise ValueError(f"{name} is not in this installation: in a clone, run pip install -e . (with -e)")
    return folder


def name_sources(*names, models_dir):
    """A sentence for each model that was read from a folder with another name."""
    for name in names:
        folder = find_folder(name, models_dir)
        if name not in (*EMBEDDED, str(folder)):
            yield f"{name} was read from {folder}"


def holds_model(folder):
    return any((folder / file).exists() for file in ("hparams.json", "config.json"))


def hub_cache():
    """Where Hugging Face's libraries keep what they download."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expanduser(named or Path(home, "hub")))         # unchanged if there is no home


def find_snapshot(name):
    """The folder in the cache for the branch main of a model, or None."""
    repository = hub_cache() / f"models--{name.replace('/', '--')}"
    branch = repository / "refs" / "main"
    return repository / "snapshots" / branch.read_text(encoding="utf-8").strip() if branch.exists() else None

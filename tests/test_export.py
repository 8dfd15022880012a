"""loading/export.py writes what other programs expect; test_outside.py runs one of them on it."""
from helpers import full_disk, write_folder

from loading.command_line import run
from loading.export import main
from utils import load_model


def test_nothing_is_overwritten(tmp_path, capsys):
    write_folder(tmp_path / "tiny", "tiny")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "new.part").write_text("somebody else's")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    for place in "tiny", "link", "empty", "new", "tiny/hparams.json", "none/new", "/":
        assert run(main, [str(tmp_path / "tiny"), str(tmp_path / place)]) == 2
        out, err = capsys.readouterr()
        assert err.startswith("error: cannot write") and err.count("\n") == 1 and not out
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_an_export_that_lacks_its_last_bytes_leaves_no_folder(tmp_path):
    write_folder(tmp_path / "tiny", "tiny")
    main(tmp_path / "tiny", tmp_path / "whole")
    largest = max(path.stat().st_size for path in (tmp_path / "whole").iterdir())
    for missing in 1, 4, 100, 768, 5000:
        with full_disk(largest - missing):
            assert run(main, [str(tmp_path / "tiny"), str(tmp_path / "new")]) == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "whole"]


def test_hugging_faces_layout_is_read_back_with_the_same_bits(tmp_path):
    main("demo-draft", tmp_path / "new")
    ours, theirs = load_model("demo-draft"), load_model(tmp_path / "new")
    text = "\u201cCaf\u00e9\u201d at 10 o'clock, said he."
    tokens = ours[1].encode(text)
    assert theirs[1].encode(text) == tokens and theirs[1].eos == ours[1].eos
    assert (ours[0](tokens, 5) == theirs[0](tokens, 5)).all()

"""utils.py: names and folders become models; for those that cannot, the error says why."""
import numpy as np
from test_folder import folder, weights

from utils import load_model


def test_a_folder_loads_with_every_weight_in_its_place(tmp_path):
    arrays = weights()
    model, encoder = load_model(folder(tmp_path, arrays))
    assert (model.n_vocab, model.n_ctx, encoder.n_vocab, encoder.eos) == (257, 8, 257, 256)
    assert np.array_equal(model.params["wte"], arrays["model/wte"])
    second = model.params["blocks"][1]
    assert np.array_equal(second["mlp"]["c_fc"]["b"], arrays["model/h1/mlp/c_fc/b"])
    assert np.array_equal(second["ln_2"]["g"], arrays["model/h1/ln_2/g"])
    assert np.array_equal(model.params["ln_f"]["b"], arrays["model/ln_f/b"])
    assert model.cache.shape[:3] == (2, 2, 2)                   # layers; keys and values; heads
    assert model.params["head"].ndim == second["mlp"]["c_fc"]["w"].ndim == 5  # stored in tiles


def test_half_precision_becomes_float32(tmp_path):
    wte = load_model(folder(tmp_path, weights(dtype=np.float16)))[0].params["wte"]
    assert wte.dtype == np.float32 and 0 < np.abs(wte - weights()["model/wte"]).max() < 0.01

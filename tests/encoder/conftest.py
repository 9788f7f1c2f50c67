"""What an encoder's tests share: the raw network, called by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch
import transformers

from cls_analysis import Encoder


class Raw:
    """A tiny network as transformers gives it, one unpadded row at a time."""

    def __init__(self, name, folder):
        self.name = name
        self.architecture = tiny.ARCHITECTURES[name]
        # BigBird's sparse attention needs long rows; whole attention is what every row can have.
        options = {"attention_type": "original_full"} if name == "big_bird" else {}
        self.model = transformers.AutoModel.from_pretrained(folder, **options).eval()
        if name == "t5":
            self.model = self.model.get_encoder()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def inputs(self, text, pair=None):
        encoded = self.tokenizer(
            text, pair, return_tensors="pt", return_token_type_ids=self.architecture.segments, padding=False
        )
        return dict(encoded)

    @torch.no_grad()
    def rows(self, text, pair=None, **changed):
        """The row's vector in each layer, found by the architecture's own rule."""
        inputs = self.inputs(text, pair) | changed
        ids = inputs["input_ids"][0].tolist()
        place = len(ids) - 1 if self.architecture.cls_last or self.architecture.source == "last" else 0
        if self.name == "longformer":
            inputs["global_attention_mask"] = torch.zeros_like(inputs["input_ids"])
            inputs["global_attention_mask"][0, place] = 1
        states = self.model(**inputs, output_hidden_states=True)
        layers = [state[0, : len(ids)] for state in (*states.hidden_states[:-1], states.last_hidden_state)]
        chosen = [h.mean(0) if self.architecture.source == "mean" else h[place] for h in layers]
        return np.stack([vector.numpy() for vector in chosen])


@pytest.fixture(scope="session")
def raw(tiny_folder):
    """Gives the raw network by the name of its architecture."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = Raw(name, tiny_folder(name))
        return made[name]

    return get


@pytest.fixture(params=tiny.NAMES)
def name(request):
    """Each architecture in turn."""
    return request.param


@pytest.fixture(scope="session")
def loaded(tiny_folder):
    """Gives an Encoder by the name of its architecture; shared, so no test may change it."""
    made = {}

    def get(name):
        if name not in made:
            source = tiny.ARCHITECTURES[name].source
            made[name] = Encoder.from_pretrained(tiny_folder(name), source=source, device="cpu")
        return made[name]

    return get


@pytest.fixture
def encoder(loaded, name):
    """The architecture ``name`` as a shared Encoder."""
    return loaded(name)

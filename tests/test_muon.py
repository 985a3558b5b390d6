"""Prove Muon: it is PyTorch's to the bit; without bf16, its steps have even singular values, as a decomposition shows;
which weights it has. That any number of processes comes to the same bits, test_summation.py proves, and that a
training with it, stopped and continued by more processes, is the uninterrupted one, test_processes.py.
"""

from pathlib import Path

import pytest
import torch
from small import each, near
from torch import nn

from asr import config
from asr.errors import UserError
from asr.models.hybrid import Hybrid
from asr.models.lm import TransformerLM
from asr.tasks import Experiment
from asr.training.distributed.group import Group
from asr.training.optim import muon
from asr.training.optim.adam import AdamWSettings
from asr.training.optim.muon import Muon, MuonSettings, Together, layer_matrices

ROOT = Path(__file__).parents[1]
LR = 1e-2
MOMENTUM = {"lr": LR, "momentum": 0.9, "weight_decay": 0.1}
SETTINGS = MuonSettings(kind="muon", lr=LR, weight_decay=0.1)


class Layer(nn.Module):
    """Two linear maps, one within the other's layer, a bias of two dimensions, and a convolution."""

    def __init__(self):
        super().__init__()
        self.wide, self.inner = nn.Linear(24, 40), nn.ModuleList([nn.Linear(40, 24)])
        self.positions = nn.Parameter(torch.randn(2, 12))
        self.depthwise = nn.Conv1d(24, 24, 3, groups=24)


def model():
    torch.manual_seed(1)
    layers = nn.ModuleList([Layer(), Layer()])
    parts = {"embedding": nn.Embedding(9, 24), "layers": layers, "out": nn.Linear(24, 9)}
    return nn.ModuleDict(parts)


def give_gradients(module, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.fixture
def in_bf16(monkeypatch):
    """Compute as a CPU with instructions for bf16 does, emulated if need be."""
    monkeypatch.setattr(muon, "has_bf16", lambda: True)


@each("shape", [(24, 40), (40, 24), (3, 8, 5)])
def test_without_instructions_for_bf16_the_step_is_that_of_fp32(in_bf16, monkeypatch, shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    rounded = muon.orthogonal(matrix).float()
    monkeypatch.setattr(muon, "has_bf16", lambda: False)
    exact = muon.orthogonal(matrix)
    assert exact.dtype == torch.float32
    near(rounded, exact, 0.03 * exact.abs().max().item())
    values = torch.linalg.svdvals(exact)
    assert values.min() > 0.3 and values.max() < 1.3


def test_muon_has_the_linear_maps_of_layers_and_adamw_the_rest():
    module = model()
    chosen = {id(p) for p in layer_matrices(module)}
    names = [name for name, p in module.named_parameters() if id(p) in chosen]
    assert names == [f"layers.{n}.{name}.weight" for n in (0, 1) for name in ("wide", "inner.0")]
    made = SETTINGS.build(module)
    held = [id(p) for group in made.param_groups for p in group["params"]]
    assert sorted(held) == sorted(map(id, module.parameters()))  # each once
    assert [type(part).__name__ for part in made.parts] == ["AdamW", "Muon"]
    assert {group["initial_lr"] for group in made.param_groups} == {LR}
    assert [group["weight_decay"] for group in made.param_groups] == [0.1, 0.0, 0.1]


@each("recipe", ["an4", "librispeech960-e_branchformer", "librispeech-lm"])
def test_neither_embeddings_nor_projections_of_a_recipe_are_muons(recipe):
    settings = config.load(Experiment, ROOT / f"conf/{recipe}.yaml").model
    with torch.device("meta"):
        recognizes = settings.kind == "hybrid"
        module = Hybrid(settings, 80, 50) if recognizes else TransformerLM(settings, 50)
    own = {id(p) for p in layer_matrices(module)}
    matrices = {name: p for name, p in module.named_parameters() if p.dim() == 2}
    rest = {name for name, p in matrices.items() if id(p) not in own}
    assert rest == {n for n, p in matrices.items() if 50 in p.shape or "subsampling.project" in n}
    assert len(own) > 20


@each("recipe", ["an4", "librispeech-lm"])
def test_shards_are_refused(recipe):
    changes = ["optimizer={kind: muon, lr: 1e-3}", "training.shard=true", "training.ema=null"]
    message = "training: shard: can't be had with optimizer.kind: muon, which needs whole"
    with pytest.raises(UserError, match=message):
        config.load(Experiment, ROOT / f"conf/{recipe}.yaml", changes)


def test_frozen_weights_are_in_neither_and_without_matrices_it_is_adamw():
    module = model()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("wide" in name)
    assert [len(group["params"]) for group in SETTINGS.build(module).param_groups] == [0, 2, 2]
    for parameter in module.parameters():
        parameter.requires_grad_(parameter.dim() == 1)
    assert isinstance(SETTINGS.build(module), torch.optim.AdamW)


def test_a_step_is_pytorchs_for_the_layers_and_adamws_for_the_rest(in_bf16):
    module, layers, rest = some = model(), model(), model()
    for one in some:
        give_gradients(one, 2)
    SETTINGS.build(module).step()
    torch.optim.Muon(layer_matrices(layers), LR, 0.1, adjust_lr_fn="match_rms_adamw").step()
    AdamWSettings(kind="adamw", lr=LR, weight_decay=0.1).build(rest).step()
    for name, p in module.named_parameters():
        chosen = name.endswith(("wide.weight", "inner.0.weight"))
        near(p, (layers if chosen else rest).get_parameter(name))


def matrices():
    """Tall, wide, square, and a zero one, whose norm nothing may be divided by."""
    torch.manual_seed(5)
    return [nn.Parameter(torch.randn(*shape)) for shape in [(48, 16), (16, 40), (24, 24), (8, 8)]]


def steps_of(muon, own):
    """Take three steps with gradients that depend on the number of the step alone."""
    for n in range(3):
        generator = torch.Generator().manual_seed(n)
        for m in own:
            m.grad = torch.randn(m.shape, generator=generator) * (m.shape != (8, 8))
        muon.step()


def test_it_is_pytorchs(in_bf16):
    ours, theirs = matrices(), matrices()
    reference = torch.optim.Muon(theirs, **MOMENTUM, adjust_lr_fn="match_rms_adamw")
    steps_of(Muon(ours, **MOMENTUM, group=Group()), ours)
    steps_of(reference, theirs)
    near(ours, theirs)
    again = Muon(ours, **MOMENTUM, group=Group())
    again.load_state_dict(reference.state_dict())
    for m, p in zip(ours, theirs, strict=True):
        near(again.state[m]["momentum_buffer"], reference.state[p]["momentum_buffer"])


def test_a_layer_that_was_left_out_stays():
    """But for its decay. PyTorch's would take a whole step in the old direction; AdamW's fades."""
    own = matrices()
    muon = Muon(own, **MOMENTUM, group=Group())
    steps_of(muon, own)
    before = [m.detach().clone() for m in own]
    for n, m in enumerate(own):
        m.grad = torch.full_like(m, n > 0)
    muon.step()
    near(own[0], before[0] * (1 - LR * 0.1))
    moves = [(m - kept).abs().max() for m, kept in zip(own, before, strict=True)]
    assert min(moves[1:]) > 1e-3 * LR


def test_a_process_makes_its_share_only(monkeypatch):
    made = []
    monkeypatch.setattr(muon, "orthogonal", lambda m: made.append(m.shape) or torch.zeros_like(m))
    monkeypatch.setattr(Group, "add", lambda self, tensor: None)
    for rank in range(2):
        own = matrices()
        steps_of(Muon(own, **MOMENTUM, group=Group(rank, 2)), own)
    assert made == [(48, 16), (24, 24)] * 3 + [(16, 40), (8, 8)] * 3  # the largest first


def test_a_state_of_other_optimizers_is_refused():
    """That its own goes on alike, test_summation.py proves."""
    made = SETTINGS.build(model())
    with pytest.raises(ValueError, match="shorter|longer"):
        Together(made.parts[0]).load_state_dict(made.state_dict())

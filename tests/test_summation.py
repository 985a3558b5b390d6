"""Gradients are added by a tree over slots: any number of processes has the same sum, to the bit.

That sums of other orders differ in their bits is shown beside it.
"""

import math

import forked
import pytest
import torch
from small import each, near, noise, slow
from test_step import NumbersTask, batches
from torch import nn

from asr.training.distributed import replicas
from asr.training.distributed.group import Group
from asr.training.distributed.replicas import Summation, WholeModel
from asr.training.optim.adam import AdamSettings, AdamWSettings
from asr.training.optim.muon import MuonSettings
from asr.training.optim.schedule import ConstantSettings
from asr.training.settings import LoopSettings
from asr.training.trainer import MicroBatch, Trainer

KINDS = [
    make(kind=kind, lr=0.01)
    for kind, make in {"adam": AdamSettings, "adamw": AdamWSettings, "muon": MuonSettings}.items()
]
ACCUMULATED = (1, 2, 3, 4, 5, 8)
CLIP = 0.05  # of norms of about 1


def under(node, n):
    r, m = node
    return range(r, n, 2**m)


@each("size", [*range(1, 9), 12, 16])
def test_slots_are_shared_out_and_their_nodes_make_a_tree(size):
    for n in range(1, 35):
        shares = [replicas.slots(n, rank, size) for rank in range(size)]
        assert sorted(sum(shares, [])) == list(range(n))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        made = [replicas.nodes(n, rank, size) for rank in range(size)]
        if size in (1, 2, 4, 8, 16):
            assert [len(nodes) for nodes in made] == [int(bool(share)) for share in shares]
        for share, nodes in zip(shares, made, strict=True):
            assert sorted(slot for node in nodes for slot in under(node, n)) == sorted(share)
        counts = {node: torch.tensor(len(under(node, n))) for nodes in made for node in nodes}
        assert replicas.merged(counts) == n


def test_a_node_is_the_sum_of_two():
    for n in range(1, 35):
        for slot in range(n):
            node = replicas.leaf(slot, n)
            assert list(under(node, n)) == [slot]
            while node != (0, 0):
                sibling, parent = replicas.sibling(node), replicas.parent(node)
                assert sorted([*under(node, n), *under(sibling, n)]) == list(under(parent, n))
                node = parent


def summed(values, order):
    total, most = torch.full((1,), 7.0), 0
    adding = Summation(total)
    for _ in range(2):  # the second uses what the first left
        adding.begin(len(values))
        for place in order:
            adding.turn_to(place)
            adding.turn_to(place)  # as halves of a batch do
            total += values[place]
            most = max(most, len(adding.shelf))
        adding.finish(0, 1)
    return total.item(), most


def tree(values):
    if len(values) == 1:
        return values[0]
    return tree(values[::2]) + tree(values[1::2])


@each("n", [1, 2, 3, 4, 5, 8, 13, 16])
def test_one_process_adds_by_the_tree_in_whatever_order_they_come(n):
    """Against a recursion; on the shelf are no more than the tree is deep."""
    values = torch.randn(n, generator=torch.Generator().manual_seed(n))
    total, most = summed(values, replicas.slots(n, 0, 1))
    assert total == tree(list(values)) == summed(values, range(n))[0]
    assert most <= math.ceil(math.log2(n)) == replicas.waiting(n, 1)


def test_other_orders_have_other_bits():
    values = torch.randn(8, 100, generator=torch.Generator().manual_seed(8))
    assert not torch.equal(sum(values[1:], values[0]), tree(list(values)))


class Net(nn.Module):
    """With linear maps in layers, which are Muon's, and others."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 8)
        tall_and_wide = nn.Sequential(nn.Linear(8, 12), nn.Linear(12, 8))
        self.layers = nn.ModuleList([tall_and_wide, nn.Linear(8, 8)])
        self.last = nn.Linear(8, 2)

    def forward(self, X):
        X = torch.tanh(self.first(X))
        for layer in self.layers:
            X = X + torch.dropout(torch.tanh(layer(X)), 0.1, True)
        return self.last(X)


def trained(group, settings, accumulate, steps, state=None):
    """Steps first … last with batches of their own; a step has one batch less than the one before, down to one."""
    torch.manual_seed(0)
    model = Net()
    whole = WholeModel(model, settings.build, group)
    if state:
        whole.load(state)
    loop = LoopSettings(epochs=1, accumulate=accumulate, clip=CLIP)
    constant = ConstantSettings(kind="constant", warmup=1)
    trainer, results = Trainer(NumbersTask(model), whole, constant, loop, 1, group), []
    for number in steps:
        made = batches(*range(2, 2 + max(1, accumulate - number)), seed=number)
        share = [MicroBatch((slot,), batch.batch) for slot, batch, _ in whole.share(made)]
        trainer.progress.step = number
        result = trainer.train_step(share, len(made))
        assert result.applied
        results.append((result.totals.sums, result.norm, result.totals.amount))
    return whole.state(), results


def law(group, folder):
    """What all kinds and accumulations come to; and from the states of one process in the midst."""
    made = {}
    for settings in KINDS:
        for accumulate in ACCUMULATED:
            key = (settings.kind, accumulate)
            begun = folder / f"{settings.kind}-{accumulate}"
            made[key] = trained(group, settings, accumulate, range(4))
            if not begun.exists():
                torch.save(trained(group, settings, accumulate, range(2))[0], begun)
            rest = trained(group, settings, accumulate, range(2, 4), torch.load(begun))
            made[(*key, "continued")] = rest
    torch.save(made, folder / f"{group.size}-{group.rank}")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("law")
    law(Group(), folder)
    return folder, torch.load(folder / "1-0")


@each("size", [3, *(pytest.param(n, marks=slow) for n in (2, 4))])
@slow
def test_any_number_of_processes_comes_to_the_same_bits(alone, size):
    """Weights, moments, sums and norms, of every optimizer, also where a process has no batch of a step."""
    folder, expected = alone
    forked.run(law, size, folder)
    for rank in range(size):
        near(torch.load(folder / f"{size}-{rank}"), expected)


def test_a_continued_training_is_the_whole_one(alone):
    for key, (state, results) in alone[1].items():
        near(state, alone[1][key[:2]][0])
        assert min(norm for _, norm, _ in results) > CLIP  # clipping takes part


ROWS = noise(7, 2, seed=1)


def test_rows_of_a_validation_are_added_in_their_order(tmp_path):
    forked.run(add_rows, 3, tmp_path)
    for rank in range(3):
        assert torch.load(tmp_path / str(rank)).equal(Group().sum_of_rows(ROWS, 7))


def add_rows(group, folder):
    torch.save(group.sum_of_rows(ROWS[group.rank :: 3], 7), folder / str(group.rank))

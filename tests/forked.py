"""Processes of a group that are forked: in a tenth of the time that those of a training take to import PyTorch.

They are forked from a process that has computed nothing. A gradient can't be computed in a fork of one in which PyTorch
has threads for a device, as it has where a test pretended one.
"""

import os
from multiprocessing import get_context

import torch.distributed as dist

from asr.training.distributed.group import Group


def run(task, size, folder):
    """Call task(group, folder) in `size` processes that are joined by gloo."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "asr.training.trainer"])
    members = [context.Process(target=_member, args=(task, n, size, folder)) for n in range(size)]
    for member in members:
        member.start()
    for member in members:
        member.join(60)
    assert [member.exitcode for member in members] == [0] * size


def _member(task, rank, size, folder):
    store = dist.FileStore(str(folder / f"meeting-{size}-{task.__name__}"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    task(Group(rank, size, rank), folder)
    dist.barrier()
    os._exit(0)  # as its parent's, pytest's, end isn't its own

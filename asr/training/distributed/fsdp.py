"""Weights, gradients and optimizer states in shards over the processes (FSDP2), where they don't fit on one GPU.

Zhao et al. 2023. PyTorch gathers a layer's weights when they are needed and scatters its gradients.
"""

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from asr.training.distributed.group import Group
from asr.training.distributed.replicas import MakeOptimizer
from asr.training.layers import blocks


class ShardedModel:
    """`Replicas` whose model is in shards, beside a whole twin to validate and to save."""

    independent = False  # all processes pass through the same layers at the same time

    def __init__(
        self,
        model: nn.Module,
        optimizer: MakeOptimizer,
        group: Group,
        bf16: bool = False,
        compiled: bool = False,
    ):
        from torch.distributed.fsdp import (
            FSDPModule,
            MixedPrecisionPolicy,
            fully_shard,
            register_fsdp_forward_method,
        )

        self.group, self.twin, self.model = group, model, copy.deepcopy(model)
        for parameter in self.model.parameters():  # shards know one memory order
            parameter.data = parameter.data.contiguous()
        mesh = torch.distributed.init_device_mesh(
            next(model.parameters()).device.type, (group.size,)
        )
        policy = MixedPrecisionPolicy()
        if bf16 and mesh.device_type != "cpu":  # half the traffic of weights, which autocast casts
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for part in (*units(self.model), self.model):
            fully_shard(part, mesh=mesh, mp_policy=policy)
        register_fsdp_forward_method(self.model, "loss")
        for module in self.model.modules():
            if isinstance(module, FSDPModule):  # sums, not means; and such as gloo knows
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        self.optimizer: Any = optimizer(self.model, group)

    def share(self, step: Sequence[Any]) -> list[tuple[int, Any, float]]:
        """As many for each process, for they compute together; in place of one that lacks, the first with weight 0."""
        rounds = -(-len(step) // self.group.size)
        slots = [n * self.group.size + self.group.rank for n in range(rounds)]
        return [(n, step[n], 1.0) if n < len(step) else (0, step[0], 0.0) for n in slots]

    def zero_grad(self, batches: int) -> None:
        """Begin a step."""
        self.optimizer.zero_grad()

    def computing(self, slot: int) -> contextlib.AbstractContextManager[None]:
        """Do nothing: PyTorch adds gradients over the processes within each backward pass."""
        return contextlib.nullcontext()

    def reduce_and_clip(self, tokens: float, clip: float) -> Tensor:
        """Make the gradients, which have been added, those of the mean per token."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_div_(gradients, tokens)
        norm: Any = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        return norm.full_tensor()

    def full_model(self) -> nn.Module:
        """The twin with the weights as they are now."""
        self.twin.load_state_dict(self.state_of_model())
        return self.twin

    def state_of_model(self) -> dict:
        """The whole weights, in every process."""
        from torch.distributed.checkpoint import state_dict as states

        return states.get_model_state_dict(
            self.model, options=states.StateDictOptions(full_state_dict=True)
        )

    def state(self) -> dict:
        """In the first process what `WholeModel.state` gives, so that a run may go on as the other."""
        from torch.distributed.checkpoint import state_dict as states

        options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
        model = states.get_model_state_dict(self.model, options=options)
        moments = states.get_optimizer_state_dict(self.model, self.optimizer, options=options)
        if self.group.leads:  # the others get nothing
            moments = renamed(moments, self._names(), range(len(self._names())))
        return {"model": model, "optimizer": moments}

    def load(self, state: dict) -> None:
        """Take up a state, which every process has read."""
        from torch.distributed.checkpoint import state_dict as states

        options = states.StateDictOptions(full_state_dict=True)
        states.set_model_state_dict(self.model, state["model"], options=options)
        moments = renamed(state["optimizer"], range(len(self._names())), self._names())
        options = states.StateDictOptions(full_state_dict=True, strict=False)
        states.set_optimizer_state_dict(self.model, self.optimizer, moments, options=options)
        for name, parameter in self.model.named_parameters():
            if name not in moments["state"]:  # frozen so far; PyTorch has counted a step of it
                self.optimizer.state.pop(parameter, None)

    def _names(self) -> list[str]:
        """The optimizer's parameters, in its order."""
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        return [names[p] for group in self.optimizer.param_groups for p in group["params"]]


def units(model: nn.Module) -> list[nn.Module]:
    """The layers whose weights are gathered when they are needed: all but those that each utterance passes by itself.

    Processes with other numbers of utterances would wait for each other; these are gathered with the
    rest of the model.
    """
    by_utterance = {
        part for module in model.modules() for part in getattr(module, "by_utterance", ())
    }
    return [block for block in blocks(model) if block not in by_utterance]


def renamed(state: dict, old: Sequence, new: Sequence) -> dict:
    """An optimizer's state with other keys for its parameters: names, as of shards, or numbers, as `WholeModel` has."""
    keys = dict(zip(old, new, strict=True))
    groups = [
        group | {"params": [keys[key] for key in group["params"]]}
        for group in state["param_groups"]
    ]
    moments = {
        keys[key]: {n: x.contiguous() for n, x in values.items()}
        for key, values in state["state"].items()
    }
    return {"state": moments, "param_groups": groups}

"""A pretended GPU: tensors say that they are on cuda:0 and compute on the CPU; what they do is counted.

    with pretended_gpu() as gpu:
        model.to("cuda")
        with gpu.counting() as counts:
            model(X.to("cuda"))
    counts.within(launches=200, synchronizations=1, copies=1)

Within `pretended_gpu`, code that asks `tensor.device.type` goes the way of a GPU. A CPU tensor of a
dimension or more that meets one of the GPU is an error, as there. Each operation is counted with
the innermost line of asr/ that makes it:

launches         kernels. Views and empty tensors launch none. An operation counts once, though some
                 (convolutions with a bias, CTC) are several kernels on a GPU; so does what a GPU has
                 a kernel for and a CPU hasn't: dropout, attention. A list of tensors (_foreach_…,
                 fused Adam) takes a launch for every `LISTED` of them
synchronizations that the host waits for the GPU: item, tolist, cpu, nonzero, a bool index, …; and
                 what F.ctc_loss hides, which reads lengths that are on the GPU. A copy that doesn't
                 block, and the event behind it, count as none
copies           from the host to the GPU: to, torch.tensor(…, device=), CPU indices, …

Autocast is a GPU's: layer norm, softmax, sums and the like compute in fp32, which casts.

Not pretended: time, memory (`MEMORY` bytes are free, none is taken), streams, CUDA's own kernels and
their rounding, torch.compile, NCCL. The device is that of one process, and of the thread that
opened it. An operation that makes a tensor within PyTorch's C++ from a GPU's tensor may make one of
the CPU; then this file must learn it.
"""

import contextlib
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
import torch._dynamo  # lists torch.cuda's functions: before they are replaced
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import return_and_correct_aliasing

import asr

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
MEMORY = 80 << 30  # bytes
JOINED = 128  # tensors that a launch of cat takes
LISTED = 30  # tensors; PyTorch's multi_tensor_apply takes 30 to 110 a launch
PACKAGE = str(Path(asr.__file__).parent)
WAITING = re.compile(  # their results' sizes or values are read on the host
    "nonzero|masked_select|_unique2|unique_dim|unique_consecutive|_local_scalar_dense|equal"
)
EMPTY = re.compile("empty.*|new_empty.*|detach|alias|lift_fresh|_unsafe_view|_local_scalar_dense")
INDEXING = re.compile("_?(unsafe_)?index(_put.*)?")
FP32 = re.compile(  # of CUDA's autocast (autocast_mode.h); a CPU's leaves these in bf16
    "(layer|group)_norm|(log_)?softmax|logsumexp|exp|log|log1p|pow|rsqrt|reciprocal|norm|sum|prod|"
    "cumsum|cumprod|nll_loss|kl_div|mse_loss|softplus"
)


class Counts(SimpleNamespace):
    """How often each operation was done at each line: "add_.Tensor at asr/models/loss.py:12" → times."""

    def __init__(self):
        super().__init__(launches=Counter(), synchronizations=Counter(), copies=Counter())

    def within(self, **most):
        """Hold budgets, by the counter's name.

        raises   AssertionError with the lines that do most
        """
        for name, budget in most.items():
            lines = getattr(self, name)
            top = "\n".join(f"{n:6} {line}" for line, n in lines.most_common(20))
            assert lines.total() <= budget, f"{lines.total()} {name}, at most {budget}:\n{top}"


class PretendedGPU:
    """What counts."""

    def __init__(self):
        self.counts: list[Counts] = []

    @contextlib.contextmanager
    def counting(self):
        """Count what is done within it."""
        counts = Counts()
        with mock.patch.object(self, "counts", [*self.counts, counts]):
            yield counts

    def quiet(self):
        """Leave out what is done within it: the parts of what is one kernel."""
        return mock.patch.object(self, "counts", [])

    def note(self, kind, what, times=1):
        """Count something."""
        if self.counts:
            line = f"{what} at {place()}"
            for counts in self.counts:
                getattr(counts, kind)[line] += times


gpu = PretendedGPU()


def place():
    """The innermost line of asr/ that is being executed."""
    frame = sys._getframe(1)
    while frame and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    if frame is None:
        return "no line of asr/"
    return f"asr{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"


class OnGPU(Tensor):
    """A tensor that says it is on the GPU; `values` are its values, on the CPU."""

    @staticmethod
    def __new__(cls, values):
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset()}
        layout |= {"dtype": values.dtype, "device": CPU}
        return Tensor._make_wrapper_subclass(cls, values.size(), **layout)

    def __init__(self, values):
        self.values = values.detach()

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self):
        return f"OnGPU({self.values})"

    def __reduce_ex__(self, protocol):
        """Saved, it is what loading it onto the CPU gives."""
        return self.values.__reduce_ex__(protocol)

    def __tensor_flatten__(self):
        return ["values"], None

    @staticmethod
    def __tensor_unflatten__(inner, *_):
        return OnGPU(inner["values"])

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        check_and_count(operation, args, kwargs)
        result = operation(*to_values(args), **{name: to_values(x) for name, x in kwargs.items()})
        return return_and_correct_aliasing(operation, args, kwargs, to_gpu(result))


def to_values(x):
    """What computes in place of tensors of the GPU, or of the GPU itself."""
    if isinstance(x, list | tuple):
        return [to_values(one) for one in x]
    return x.values if isinstance(x, OnGPU) else CPU if isinstance(x, torch.device) else x


def to_gpu(x):
    """What an operation gives, a tensor or several, as if on the GPU."""
    if isinstance(x, list | tuple):
        return type(x)(to_gpu(one) for one in x)
    return OnGPU(x) if isinstance(x, Tensor) else x


def tensors_of(x):
    """The tensors among the arguments of an operation, also in its lists."""
    if isinstance(x, list | tuple):
        return [tensor for one in x for tensor in tensors_of(one)]
    return [x] if isinstance(x, Tensor) else []


def check_and_count(operation, args, kwargs):
    """Refuse a CPU tensor, and count."""
    name = operation._schema.name.removeprefix("aten::")
    tensors = tensors_of([*args, *kwargs.values()])
    strangers = [x for x in tensors if not isinstance(x, OnGPU) and x.dim()]
    if strangers and name == "copy_" and not isinstance(args[0], OnGPU):
        return gpu.note("synchronizations", "copy_ to the CPU")
    if strangers and (name == "copy_" or INDEXING.fullmatch(name) and isinstance(args[0], OnGPU)):
        gpu.note("copies", name)
    elif strangers and not (name == "cat" and in_backward() and not any(map(torch.any, strangers))):
        # these zeros are a split part's missing gradient: PyTorch makes them where the wrapper says
        raise RuntimeError(
            f"{operation} at {place()}: a CPU tensor {tuple(strangers[0].shape)} meets one on cuda:0"
        )
    if WAITING.fullmatch(name) or INDEXING.fullmatch(name) and has_mask(args[1]):
        gpu.note("synchronizations", name)
    if not (operation.is_view or EMPTY.fullmatch(name)):
        gpu.note("launches", str(operation).removeprefix("aten."), launches_of(name, args))


def in_backward():
    """Whether PyTorch's engine computes gradients now."""
    return torch._C._current_graph_task_id() != -1


def has_mask(indices):
    """Whether an index is a mask, whose ones have to be counted."""
    return any(isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8) for x in indices)


def launches_of(name, args):
    """One; of lists of tensors one for every `LISTED`, or one for each where they are of several types."""
    if name == "cat":
        return -(-len(args[0]) // JOINED)
    if not name.startswith(("_foreach_", "_fused_")):
        return 1
    n, types = len(args[0]), {x.dtype for x in tensors_of(args)}
    return n if len(types) > 1 and name.startswith("_foreach_") else -(-n // LISTED)


class Attention(torch.autograd.Function):
    """Scaled dot-product attention, a kernel forward and one backward."""

    @staticmethod
    def forward(ctx, Q, K, V, bias, causal):
        ctx.save_for_backward(Q, K, V, bias)
        ctx.causal = causal
        gpu.note("launches", "attention")
        with gpu.quiet():
            return formula(Q, K, V, bias, causal)

    @staticmethod
    def backward(ctx, gradient):
        gpu.note("launches", "attention's gradient")
        with gpu.quiet(), torch.enable_grad():
            inputs = [x if x is None else x.detach() for x in ctx.saved_tensors]
            wanted = [x.requires_grad_() for x in inputs if x is not None and x.is_floating_point()]
            gradients = torch.autograd.grad(formula(*inputs, ctx.causal), wanted, gradient)
            beside = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in gradients[:3]]
            gradients = [*beside, *gradients[3:]]
        return *gradients, *[None] * (5 - len(gradients))


def formula(Q, K, V, bias, causal):
    """softmax(Q Kᵀ / √d_k + bias) V, the softmax in fp32 and heads beside each other, as kernels have it."""
    scores = (Q @ K.transpose(-2, -1)).float() / Q.size(-1) ** 0.5
    if causal:
        future = OnGPU(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1))
        scores = scores.masked_fill(future, -torch.inf)
    scores = scores if bias is None else scores + bias
    heads = scores.softmax(-1).to(V.dtype) @ V
    return heads.transpose(1, 2).contiguous().transpose(1, 2)


def attention(Q, K, V, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """F.scaled_dot_product_attention; a mask is turned into floats and its rows padded to eights, as there."""
    if torch.is_autocast_enabled("cuda"):
        Q, K, V = (x.to(torch.bfloat16) for x in (Q, K, V))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=Q.dtype)
        attn_mask = zeros.masked_fill(~OnGPU(attn_mask.values), -torch.inf)
    if attn_mask is not None and any(n % 8 for n in attn_mask.stride()[:-1]):
        gpu.note("launches", "attention's mask padded")
    Q = Q if scale is None else Q * (scale * Q.size(-1) ** 0.5)
    return Attention.apply(Q, K, V, attn_mask, is_causal)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, **options):
    """F.ctc_loss, which reads both lengths on the host, and copies them and the targets' places back."""
    lens = []
    for given in (input_lengths, target_lengths):
        if isinstance(given, OnGPU):
            gpu.note("synchronizations", "ctc_loss reads lengths")
        lens.append(to_values(given).tolist())
    gpu.note("copies", "ctc_loss", 3)
    return F.ctc_loss(log_probs, targets, *lens, **options)


def dropout(X, p=0.5, training=True, inplace=False):
    """F.dropout, one kernel."""
    return torch.native_dropout(X, p, training)[0]


def tolist(x):
    """Tensor.tolist."""
    gpu.note("synchronizations", "tolist")
    return to_values(x).tolist()


def numpy(x):
    """Tensor.numpy, which a GPU's tensor hasn't."""
    raise TypeError(f"at {place()}: can't convert a tensor on cuda:0 to numpy; call cpu()")


def moved(x, *args, copy=False, **kwargs):
    """Tensor.to, with gradient as long as it stays on its device."""
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    here = isinstance(x, OnGPU)
    there = here if device is None else device.type == "cuda"
    if here and not there:
        if not non_blocking:
            gpu.note("synchronizations", "to the CPU")
        values = x.values.clone()
    elif there and not here:
        gpu.note("copies", "to the GPU")
        values = OnGPU(x.detach().clone())
    else:
        values = x.clone() if copy else x
    layout = {"memory_format": memory_format} if memory_format else {}
    return values.to(dtype or values.dtype, **layout)


MOVES = {  # of all tensors
    Tensor.cpu: lambda x: moved(x, "cpu"),
    Tensor.cuda: lambda x: moved(x, "cuda"),
    Tensor.to: moved,
    Tensor.pin_memory: lambda x: x,
    Tensor.is_pinned: lambda x: True,
    torch.as_tensor: lambda x, dtype=None, device=None: moved(x, device or x.device, dtype),
}
KERNELS = MOVES | {  # of tensors of the GPU
    F.scaled_dot_product_attention: attention,
    F.ctc_loss: ctc_loss,
    F.dropout: dropout,
    Tensor.tolist: tolist,
    Tensor.numpy: numpy,
}


class Functions(TorchFunctionMode):
    """What must be known before PyTorch's C++ asks for the device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        kwargs.pop("pin_memory", None)
        of = args[0] if args else None
        known = KERNELS if isinstance(of, OnGPU) else MOVES
        kernel = isinstance(of, Tensor) and known.get(function)
        if function is Tensor.backward:  # it may compute activations again
            with self:
                return run_backward(*args, kwargs.get("gradient"))
        if kernel:
            args = tuple(autocast(function, args)) if function is F.ctc_loss else args
            return kernel(*args, **kwargs)
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kind = "copies" if function in (torch.tensor, torch.as_tensor) else "launches"
            if not EMPTY.fullmatch(function.__name__):
                gpu.note(kind, function.__name__)
            return OnGPU(function(*args, **kwargs | {"device": CPU}))
        return function(*autocast(function, args), **kwargs)


def run_backward(total, gradient=None):
    """Tensor.backward, without its way through `Functions`, which switches them off."""
    gradient = torch.ones_like(total) if gradient is None else gradient
    _engine_run_backward(
        (total,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def autocast(function, args):
    """The arguments as CUDA's autocast makes them: of some functions in fp32."""
    if not (
        torch.is_autocast_enabled("cuda") and FP32.fullmatch(getattr(function, "__name__", ""))
    ):
        return args
    return [x.float() if isinstance(x, OnGPU) and x.dtype == torch.bfloat16 else x for x in args]


def always_of_cpu(function):
    """A function of autocast for "cuda": to PyTorch it is that of the CPU."""
    return lambda device_type, *args, **kwargs: function("cpu", *args, **kwargs)


@contextlib.contextmanager
def pretended_gpu():
    """Have one GPU as long as it lasts, which asr.device chooses, too; yields what counts."""
    answers = dict.fromkeys(["reset_peak_memory_stats", "empty_cache", "synchronize", "set_device"])
    answers |= {"get_device_name": "pretended GPU", "mem_get_info": (MEMORY, MEMORY)}
    answers |= {"memory_allocated": 0, "max_memory_allocated": 0, "device_count": 1}
    cuda = {name: mock.Mock(return_value=answer) for name, answer in answers.items()}
    on_cuda = mock.patch.multiple(torch.cuda, Event=mock.MagicMock, **cuda)
    names = "autocast", "is_autocast_enabled", "get_autocast_dtype"
    of_cpu = {name: always_of_cpu(getattr(torch, name)) for name in names}
    on_torch = mock.patch.multiple(torch, **of_cpu)
    with on_cuda, on_torch, mock.patch("asr.device._gpu_problem", lambda *_: None), Functions():
        yield gpu

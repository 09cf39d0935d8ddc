# SPDX-License-Identifier: Apache-2.0
"""Programs that look at themselves: copies, pickles, modes, hooks, traces, exports, compilers, stacks.

Each is a function without arguments; what it returns has the same text with and without a capture around it.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import io
import pickle
import re
import sys
import threading
import traceback
import types
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

PROGRAMS: dict[str, Callable[[], Any]] = {}
X = torch.linspace(-1, 1, 6).reshape(2, 3)


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


def linear(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(3, 3)


class Net(nn.Module):
    """Two layers and a convolution."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(3, 4)
        self.conv = nn.Conv1d(1, 2, 2)
        self.last = nn.Linear(6, 2)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(torch.relu(self.first(x)).unsqueeze(1)).flatten(1)
        return self.last(y) * self.scale


class CallOverridden(nn.Module):
    """As gpytorch's kernels: the class has a `__call__` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear(3)

    def __call__(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        result = super().__call__(x)
        return result * 2 if twice else result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


class ImplOverridden(CallOverridden):
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return super()._call_impl(*args, **kwargs) - 3


class Seen(nn.Module):
    """Says who calls it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.stack = [frame.name for frame in traceback.extract_stack()][-4:]
        return x + 1


def numbers(value: Any) -> Any:
    """Tensors as lists, in any container."""
    if isinstance(value, torch.Tensor):
        return [type(value).__name__, value.detach().tolist()]
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(item) for item in value]
    return value


def keys_of(module: nn.Module) -> list[str]:
    return sorted(vars(module))


def raised(function: Callable[[], Any]) -> str:
    try:
        return f"returned {numbers(function())}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def size_of_pickle(data: bytes) -> int:
    """Without the addresses of storages in it, which have fourteen digits or fifteen."""
    return len(re.sub(rb"\d{12,}", b"", data))


# --- copies


@program
def a_copy_runs_its_own_parameters() -> Any:
    model = Net()
    before = model(X)
    other = copy.copy(model)
    other._modules = dict(model._modules)
    other.last = nn.Linear(6, 2)
    other.scale = 5.0
    return before, other(X), model(X)


@program
def a_copy_of_a_child() -> Any:
    model = Net()
    model(X)
    child = copy.copy(model.first)
    child._parameters = {name: nn.Parameter(p * 3) for name, p in child._parameters.items()}
    return child(X), model.first(X)


@program
def a_copy_put_into_another_model() -> Any:
    model, other = Net(), Net(1)
    model(X)
    other.first = copy.copy(model.first)
    other.first._parameters = {name: nn.Parameter(p * 3) for name, p in other.first._parameters.items()}
    return other(X), model(X)


@program
def a_replica() -> Any:
    model = Net()
    model(X)
    replica = model._replicate_for_data_parallel()
    replica.scale = 7.0
    return replica(X), model(X)


@program
def a_replica_of_a_child() -> Any:
    model = linear()
    model(X)
    replica = model._replicate_for_data_parallel()
    replica.weight, replica.bias = torch.zeros(3, 3), torch.ones(3)
    return replica(X), model(X)


@program
def a_dict_given_to_a_new_object() -> Any:
    model = linear()
    model(X)
    other = nn.Linear.__new__(nn.Linear)
    other.__dict__ = model.__dict__.copy()
    other._parameters = {"weight": nn.Parameter(torch.ones(3, 3)), "bias": None}
    return other(X), model(X)


@program
def a_dict_given_to_another_class() -> Any:
    class Doubling(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    model = linear()
    model(X)
    other = Doubling(3, 3)
    other.__dict__.update(model.__dict__)
    return other(X), model(X)


@program
def a_class_changed_in_place() -> Any:
    class Negative(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -super().forward(x)

    model = linear()
    before = model(X)
    model.__class__ = Negative
    return before, model(X)


@program
def a_deep_copy() -> Any:
    model = Net()
    model(X)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.first.weight.zero_()
    return other(X), model(X), keys_of(other) == keys_of(Net())


@program
def a_deep_copy_of_a_class_with_call() -> Any:
    model = CallOverridden()
    model(X)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.inner.weight.zero_()
    return other(X, twice=True), model(X), keys_of(other), len(other._forward_hooks)


@program
def a_deep_copy_of_a_class_with_call_impl() -> Any:
    model = ImplOverridden()
    model(X)
    return copy.deepcopy(model)(X), keys_of(model)


@program
def a_deep_copy_of_a_deep_copy() -> Any:
    model = linear()
    model(X)
    other = copy.deepcopy(model)
    other(X)
    return copy.deepcopy(other)(X)


@program
def a_copy_of_the_method() -> Any:
    model = linear()
    model(X)
    return copy.copy(model._call_impl)(X), copy.deepcopy(model._call_impl)(X), model._call_impl.__name__


# --- pickles


@program
def a_pickle() -> Any:
    model = linear()
    model(X)
    data = pickle.dumps(model)
    return pickle.loads(data)(X), size_of_pickle(data), size_of_pickle(pickle.dumps(linear()))


@program
def a_pickle_of_a_model() -> Any:
    model = Net()
    model(X)
    data = pickle.dumps(model)
    return pickle.loads(data)(X), size_of_pickle(data), b"assay" in data


@program
def a_pickle_of_a_class_with_call() -> Any:
    model = CallOverridden()
    model(X)
    data = pickle.dumps(model)
    return pickle.loads(data)(X), size_of_pickle(data), b"assay" in data, b"_call_impl" in data


class Reduced(nn.Module):
    """Passes its `__dict__` to pickle by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)

    def __reduce__(self) -> Any:
        return made_again, (Reduced, self.__dict__.copy())


def made_again(cls: type, members: dict[str, Any]) -> Any:
    made = cls.__new__(cls)
    made.__dict__.update(members)
    return made


@program
def a_pickle_through_reduce() -> Any:
    model = Reduced()
    model(X)
    return pickle.loads(pickle.dumps(model))(X), copy.deepcopy(model)(X), copy.copy(model)(X)


@program
def saved_and_loaded() -> Any:
    model = Net()
    model(X)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)(X)


@program
def a_state_dict() -> Any:
    model = Net()
    model(X)
    other = Net(5)
    return str(other.load_state_dict(model.state_dict())), other(X), list(model.state_dict())


@program
def members_of_a_module() -> Any:
    model = Net()
    model(X)
    return keys_of(model), keys_of(model.first), dir(model) == dir(Net()), len(model.first.__dict__)


@program
def hooks_of_a_module() -> Any:
    model = CallOverridden()
    model(X)
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hooks_with_kwargs")
    return [(name, len(getattr(m, name))) for m in model.modules() for name in names]


@program
def modules_compared_by_their_dict() -> Any:
    class Equal(nn.Linear):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal) and sorted(vars(self)) == sorted(vars(other))

        __hash__ = nn.Module.__hash__

    one, other = Equal(3, 3), Equal(3, 3)
    one(X)
    return one == other


@program
def texts_of_modules() -> Any:
    model = Net()
    model(X)
    return repr(model), str(inspect.signature(model.forward)), model.extra_repr()


# --- references


@program
def a_module_dies_with_its_last_name() -> Any:
    model = Net()
    model(X)
    gone = weakref.ref(model)
    child = weakref.ref(model.first)
    del model
    gc.collect()
    return gone() is None, child() is None


@program
def modules_made_in_a_loop() -> Any:
    results = []
    for seed in range(80):
        results.append(linear(seed)(X).sum())
    return results


@program
def references_of_a_module() -> Any:
    model = linear()
    before = sys.getrefcount(model)
    model(X)
    return sys.getrefcount(model) - before


@program
def a_result_dies() -> Any:
    model = linear()
    result = model(X)
    gone = weakref.ref(result)
    del result
    return gone() is None


# --- frames and exceptions


@program
def the_stack_of_a_call() -> Any:
    model = nn.Sequential(Seen(), Seen())
    model(X)
    model(X)
    return model[0].stack, model[1].stack


@program
def a_warning_points_at_its_caller() -> Any:
    class Warning_(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("look", stacklevel=3)
            return x

    model = Warning_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(X)
        model(X)
    return [(str(w.message), w.filename.rpartition("/")[2]) for w in caught]


@program
def the_traceback_of_an_error() -> Any:
    model = nn.Sequential(linear(), nn.Linear(4, 4))
    texts = []
    for _ in range(2):
        try:
            model(X)
        except RuntimeError as error:
            texts.append([frame.name for frame in traceback.extract_tb(error.__traceback__)])
    return texts


@program
def an_error_is_handled() -> Any:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("not there")

    model = Failing()
    return raised(lambda: model(X)), raised(lambda: model(X)), sys.exc_info()


@program
def deep_calls() -> Any:
    model: nn.Module = nn.Identity()
    for _ in range(150):
        model = nn.Sequential(model)
    return model(X), model(X)


@program
def a_depth_that_is_too_much() -> Any:
    class Endless(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self(x)

    model = Endless()
    return raised(lambda: model(X))[:40], raised(lambda: model(X))[:40]


@program
def a_bound_method_kept() -> Any:
    model = linear()
    model(X)
    call = model._call_impl
    first = call(X)
    with torch.no_grad():
        model.weight.zero_()
    return first, call(X), call.__self__ is model


@program
def classes_keep_their_methods() -> Any:
    model = linear()
    model(X)
    return (
        type(nn.Module._call_impl).__name__,
        nn.Module._call_impl.__name__,
        nn.Linear._call_impl is nn.Module._call_impl,
        inspect.isfunction(nn.Module._call_impl),
        nn.Module.__call__ is nn.Module._wrapped_call_impl,
        isinstance(nn.Module._call_impl.__code__, types.CodeType),
    )


@program
def a_patched_call_impl() -> Any:
    seen = []
    original = nn.Module._call_impl

    def patched(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        seen.append(type(self).__name__)
        return original(self, *args, **kwargs)

    model = Net()
    model(X)
    nn.Module._call_impl = patched  # type: ignore[method-assign]
    try:
        result = model(X)
    finally:
        nn.Module._call_impl = original  # type: ignore[method-assign]
    return result, seen, model(X)


@program
def a_patched_call() -> Any:
    seen = []
    original = nn.Module.__call__

    def patched(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        seen.append(type(self).__name__)
        return original(self, *args, **kwargs)

    model = Net()
    model(X)
    nn.Module.__call__ = patched  # type: ignore[method-assign]
    try:
        result = model(X)
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]
    return result, seen


@program
def a_call_impl_of_the_instance() -> Any:
    model = Net()
    model(X)
    model.first._call_impl = lambda x: torch.zeros(2, 4)  # type: ignore[method-assign]
    return model(X)


@program
def a_forward_of_the_instance() -> Any:
    model = Net()
    model(X)
    original = model.first.forward
    model.first.forward = lambda x: original(x) * 2  # type: ignore[method-assign]
    return model(X)


@program
def a_mock_as_a_child() -> Any:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.seen = mock.MagicMock(return_value=3.0)
            self._modules["mocked"] = self.seen

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * self.seen(1)

    model = Holder()
    return model(X), model(X), model.seen.call_count


@program
def a_mock_as_forward() -> Any:
    model = Net()
    model(X)
    with mock.patch.object(model.first, "forward", return_value=torch.ones(2, 4)) as forward:
        result = model(X)
    return result, forward.call_count, model(X)


@program
def a_child_that_is_none() -> Any:
    model = nn.Sequential(linear())
    model.register_module("nothing", None)
    model.forward = lambda x: model[0](x)  # type: ignore[method-assign]
    return model(X), model(X)


# --- hooks


@program
def forward_hooks() -> Any:
    seen: list[Any] = []
    model = Net()
    model.first.register_forward_pre_hook(lambda m, args: seen.append("before"))
    model.first.register_forward_hook(lambda m, args, result: seen.append("after"))
    model(X)
    handle = model.last.register_forward_hook(lambda m, args, result: result + 1)
    results = [model(X)]
    handle.remove()
    return [*results, model(X)], seen, list(model.first._forward_hooks) != []


@program
def hooks_with_kwargs_and_always() -> Any:
    seen: list[Any] = []

    class Named(nn.Module):
        def forward(self, x: torch.Tensor, times: int = 1) -> torch.Tensor:
            if times < 0:
                raise ValueError("negative")
            return x * times

    model = Named()
    model.register_forward_pre_hook(lambda m, args, kwargs: (args, {"times": kwargs["times"] + 1}), with_kwargs=True)
    model.register_forward_hook(lambda m, a, k, result: seen.append(dict(k)), with_kwargs=True, always_call=True)
    return model(X, times=2), raised(lambda: model(X, times=-4)), model(X, times=3), seen


@program
def global_hooks() -> Any:
    seen: list[str] = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, r: seen.append(type(m).__name__))
    try:
        model = Net()
        results = [model(X), model(X)]
    finally:
        handle.remove()
    return results, seen, model(X)


@program
def a_hook_that_removes_itself() -> Any:
    model = linear()
    handles: list[Any] = []

    def hook(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
        handles[0].remove()
        return result * 2

    handles.append(model.register_forward_hook(hook))
    return model(X), model(X), len(model._forward_hooks)


@program
def backward_hooks() -> Any:
    seen: list[Any] = []
    model = Net()
    model.last.register_full_backward_hook(lambda m, gi, go: seen.append(numbers(go)))
    model(X).sum().backward()
    model(X).sum().backward()
    return seen, model.first.weight.grad


@program
def gradients() -> Any:
    model = Net()
    x = X.clone().requires_grad_()
    model(x).pow(2).sum().backward()
    return x.grad, [p.grad for p in model.parameters()]


@program
def a_leaf_stays_a_leaf() -> Any:
    model = linear()
    x = X.clone().requires_grad_()
    y = model(x)
    return x.is_leaf, y.grad_fn.name(), y.requires_grad, y._version, x._version


@program
def in_place_work_on_results() -> Any:
    model = nn.Sequential(linear(), nn.ReLU(inplace=True))
    y = model(X)
    y += 1
    return y, model(X), y._version


# --- modes


class Counting(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@program
def a_function_mode() -> Any:
    model = Net()
    model(X)
    with Counting() as mode:
        result = model(X)
    return result, mode.seen


@program
def a_function_mode_from_the_start() -> Any:
    with Counting() as mode:
        model = linear()
        result = model(X)
    return result, mode.seen


@program
def a_function_mode_inside_forward() -> Any:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.seen: list[list[str]] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with Counting() as mode:
                result = self.inner(x).relu()
            self.seen.append(mode.seen)
            return result

    model = Inside()
    return model(X), model(X), model.seen


@program
def a_dispatch_mode() -> Any:
    model = Net()
    model(X)
    with torch.no_grad(), Dispatched() as mode:
        result = model(X)
    return result, mode.seen


@program
def a_dispatch_mode_from_the_start() -> Any:
    with torch.no_grad(), Dispatched() as mode:
        result = linear()(X)
    return result, mode.seen


@program
def a_default_device() -> Any:
    model = linear()
    with torch.device("cpu"):
        result = model(X) + torch.ones(3)
    with torch.device("meta"):
        made = nn.Linear(2, 2)
    return result, str(made.weight.device)


@program
def meta_tensors() -> Any:
    model = Net().to("meta")
    return list(model(X.to("meta")).shape), list(model(X.to("meta")).shape)


@program
def fake_tensors() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = Net()
    model(X)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        result = model(mode.from_tensor(X))
    return list(result.shape), type(result).__name__


class Tagged(torch.Tensor):
    calls: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, kinds, args, kwargs or {})


@program
def a_subclass_that_counts() -> Any:
    Tagged.calls.clear()
    model = nn.Sequential(linear(), nn.ReLU())
    result = model(X.as_subclass(Tagged))
    again = model(X.as_subclass(Tagged))
    return type(result).__name__, numbers(again), list(Tagged.calls)


@program
def inference_mode() -> Any:
    model = Net()
    with torch.inference_mode():
        one = model(X)
        two = model(X)
    return one, two, one.is_inference(), one.requires_grad


@program
def autocast() -> Any:
    model = Net()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = model(X)
    return str(result.dtype), result.float()


@program
def random_numbers() -> Any:
    model = nn.Sequential(linear(), nn.Dropout(0.5))
    torch.manual_seed(3)
    one = model(X)
    two = model(X)
    return one, two, torch.rand(2), torch.initial_seed()


# --- traces and compilers


@program
def a_trace() -> Any:
    model = Net()
    model(X)
    traced = torch.jit.trace(model, X)
    return traced(X * 2), model(X * 2), traced(X)


@program
def a_trace_without_gradients() -> Any:
    model = Net()
    with torch.no_grad():
        model(X)
        traced = torch.jit.trace(model, X)
        return traced(X * 3), model(X * 3), [node.kind() for node in traced.inlined_graph.nodes()]


@program
def a_trace_of_a_convolution() -> Any:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
    x = torch.arange(32.0).reshape(1, 1, 4, 8)
    with torch.no_grad():
        model(x)
        traced = torch.jit.trace(model, x)
        return traced(-x), model(-x)


@program
def a_trace_of_a_model_never_called() -> Any:
    model = Net()
    traced = torch.jit.trace(model, X)
    return traced(X * 2), model(X)


@program
def a_script() -> Any:
    model = linear()
    model(X)
    scripted = torch.jit.script(model)
    return scripted(X), scripted(X), str(scripted.code)


@program
def a_symbolic_trace() -> Any:
    model = Net()
    model(X)
    traced = torch.fx.symbolic_trace(model)
    return traced(X), traced(X), traced.code


@program
def a_graph_module_is_copied_and_pickled() -> Any:
    traced = torch.fx.symbolic_trace(Net())
    traced(X)
    return copy.deepcopy(traced)(X), raised(lambda: pickle.loads(pickle.dumps(traced))(X)), keys_of(traced)


@program
def an_export() -> Any:
    model = Net()
    model(X)
    exported = torch.export.export(model, (X,))
    module = exported.module()
    return module(X), module(X), [str(node.target) for node in exported.graph.nodes]


@program
def an_exported_module_is_copied() -> Any:
    module = torch.export.export(linear(), (X,)).module()
    module(X)
    return copy.deepcopy(module)(X)


@program
def make_fx() -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx as trace

    model = linear()
    model(X)
    traced = trace(lambda x: model(x) + 1)(X)
    return traced(X), [str(node.target) for node in traced.graph.nodes]


@program
def a_functional_call() -> Any:
    model = Net()
    model(X)
    state = {name: tensor * 2 for name, tensor in model.state_dict().items()}
    return torch.func.functional_call(model, state, (X,)), model(X)


@program
def vmap_and_grad() -> Any:
    model = linear()
    model(X)
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).sum()

    per_row = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, X)
    return per_row, model(X)


@program
def stacked_models() -> Any:
    models = [linear(seed) for seed in range(3)]
    for model in models:
        model(X)
    parameters, buffers = torch.func.stack_module_state(models)  # type: ignore[arg-type]
    base = copy.deepcopy(models[0]).to("meta")

    def call(p: Any, b: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(base, (p, b), (x,))

    return torch.func.vmap(call, in_dims=(0, 0, None))(parameters, buffers, X)


@program
def a_jacobian() -> Any:
    model = linear()
    model(X)
    return torch.func.jacrev(model)(X[0]), torch.func.jacfwd(model)(X[0])


@program
def parametrised_weights() -> Any:
    from torch.nn.utils import parametrizations

    model = parametrizations.weight_norm(linear())
    one = model(X)
    torch.nn.utils.parametrize.remove_parametrizations(model, "weight")
    return one, model(X), type(model).__name__


@program
def a_checkpoint() -> Any:
    from torch.utils.checkpoint import checkpoint

    model = Net()
    x = X.clone().requires_grad_()
    checkpoint(model, x, use_reentrant=False).sum().backward()
    return x.grad, model.first.weight.grad


@program
def data_parallel_without_devices() -> Any:
    model = nn.DataParallel(Net())
    return model(X), model(X)


@program
def lazy_modules() -> Any:
    torch.manual_seed(2)
    model = nn.LazyLinear(4)
    one = model(X)
    return one, model(X), type(model).__name__, keys_of(model)


@program
def a_profile() -> Any:
    model = Net()
    model(X)
    with torch.no_grad(), torch.profiler.profile() as profile:
        result = model(X)
    return result, sorted({event.key for event in profile.key_averages() if event.key.startswith("aten::")})


@program
def counted_flops() -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    model = Net()
    model(X)
    with FlopCounterMode(display=False) as counter:
        model(X)
    return counter.get_total_flops()


@program
def threads() -> Any:
    model = Net()
    model(X)
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        results[number] = model(X * number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [results[number] for number in sorted(results)]


@program
def a_module_that_calls_itself() -> Any:
    class Down(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
            return self.inner(x) if depth == 0 else self(x, depth - 1) + 1

    model = Down()
    return model(X, 3), model(X, 1)


@program
def a_model_made_of_parts_of_another() -> Any:
    model = Net()
    model(X)
    part = nn.Sequential(OrderedDict(first=model.first, act=nn.ReLU()))
    return part(X), model(X), model.first(X)


@program
def a_part_is_replaced() -> Any:
    model = Net()
    model(X)
    model.first = nn.Linear(3, 4)
    with torch.no_grad():
        model.first.weight.fill_(0.5)
        model.first.bias.fill_(0.1)
    return model(X), model(X)


@program
def a_partial_of_a_module() -> Any:
    model = linear()
    call = functools.partial(model, X)
    return call(), call()


@program
def a_generator_of_results() -> Any:
    model = Net()
    return list(map(numbers, (model(X * n) for n in range(3))))


@program
def slots_and_properties() -> Any:
    class Guarded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.asked: list[str] = []

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and name != "inner":
                object.__getattribute__(self, "__dict__").setdefault("asked", []).append(name)
            return super().__getattr__(name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    model = Guarded()
    return model(X), model(X), model.asked


@program
def shared_memory_and_numpy() -> Any:
    model = linear()
    x = X.clone()
    view = x.numpy()
    one = model(x)
    view[:] = 2
    return one, model(x)


@program
def a_quantised_copy() -> Any:
    model = nn.Sequential(linear())
    model(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    return small(X), model(X)


@program
def swapped_modules() -> Any:
    one, other = linear(0), linear(1)
    one(X), other(X)
    one.__dict__, other.__dict__ = other.__dict__, one.__dict__
    return one(X), other(X)


# --- more ways to be called and looked at


@program
def a_module_list_and_dict() -> Any:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.listed = nn.ModuleList([linear(1), linear(2)])
            self.named = nn.ModuleDict({"a": linear(3)})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.listed:
                x = layer(x)
            return self.named["a"](x)

    model = Many()
    one = model(X)
    model.listed.append(linear(4))
    del model.listed[0]
    return one, model(X), len(model.listed), "a" in model.named


@program
def a_module_applied_and_moved() -> Any:
    model = Net()
    model(X)
    model.apply(lambda m: m.register_buffer("mark", torch.ones(1)))
    model.double()
    return model(X.double()), sorted(dict(model.named_buffers()))


@program
def a_frozen_dataclass_of_modules() -> Any:
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Pair:
        first: nn.Module
        second: nn.Module

    pair = Pair(linear(0), linear(1))
    one = pair.second(pair.first(X))
    other = dataclasses.replace(pair, second=copy.deepcopy(pair.first))
    return one, other.second(X), pair == other


@program
def a_module_as_a_key() -> Any:
    model = linear()
    model(X)
    table = {model: 1, copy.copy(model): 2}
    return len(table), table[model], model in {model}


@program
def a_subclass_with_new_arguments() -> Any:
    class Odd(nn.Module):
        def forward(self, *args: Any, scale: float = 1.0, **more: Any) -> dict[str, Any]:
            return {"sum": sum(args) * scale, **more}

    model = Odd()
    return model(X, X, scale=2.0, other=X), model(X), model(1, 2, three=3)


@program
def a_call_with_wrong_arguments() -> Any:
    model = linear()
    return raised(lambda: model()), raised(lambda: model(X, X)), raised(lambda: model(x=X)), raised(lambda: model(3))


@program
def a_property_that_calls() -> Any:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        @property
        def value(self) -> torch.Tensor:
            return self.inner(X)

        def forward(self) -> torch.Tensor:
            return self.value + self.value

    model = Lazy()
    return model(), model.value


@program
def a_generator_as_forward() -> Any:
    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, x: torch.Tensor) -> Any:
            for n in range(2):
                yield self.inner(x * n)

    model = Stream()
    return list(model(X)), list(model(X))


@program
def a_coroutine_as_forward() -> Any:
    import asyncio

    class Later(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        async def forward(self, x: torch.Tensor) -> torch.Tensor:
            await asyncio.sleep(0)
            return self.inner(x)

    model = Later()

    async def both() -> Any:
        return await asyncio.gather(model(X), model(X * 2))

    return asyncio.run(both())


@program
def a_context_manager_around_calls() -> Any:
    model = nn.Sequential(linear(), nn.Dropout(0.9))
    model.eval()
    with torch.no_grad(), torch.autograd.set_detect_anomaly(True, check_nan=False):
        one = model(X)
    return one, model(X).requires_grad, torch.is_grad_enabled()


@program
def saved_tensors_are_packed() -> Any:
    packed: list[int] = []
    model = Net()
    model(X)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(X).sum().backward()
    return packed


@program
def gradients_through_a_graph() -> Any:
    model = Net()
    model(X)
    y = model(X)
    names, pending = [], [y.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None:
            names.append(node.name())
            pending += [child for child, _ in node.next_functions]
    return names


@program
def double_backward() -> Any:
    model = linear()
    x = X.clone().requires_grad_()
    model(x)
    (grad,) = torch.autograd.grad(model(x).pow(3).sum(), x, create_graph=True)
    grad.sum().backward()
    return x.grad, model.weight.grad


@program
def an_optimiser_steps() -> Any:
    model = Net()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimiser.zero_grad()
        loss = model(X).pow(2).sum()
        loss.backward()
        optimiser.step()
        losses.append(loss)
    return losses, len(optimiser.state)


@program
def a_custom_function() -> Any:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 5

    class Uses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Twice.apply(x)

    model = Uses()
    x = X.clone().requires_grad_()
    model(x).sum().backward()
    model(x).sum().backward()
    return x.grad


@program
def recurrent_modules() -> Any:
    torch.manual_seed(4)
    model = nn.LSTM(3, 2, batch_first=True)
    x = X.unsqueeze(0)
    one, state = model(x)
    two, _ = model(x, state)
    return one, two, copy.deepcopy(model)(x)[0], model._flat_weights_names


@program
def packed_sequences() -> Any:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    torch.manual_seed(5)
    model = nn.GRU(3, 2)
    packed = pack_padded_sequence(X.unsqueeze(1), [2])
    result, _ = model(packed)
    return pad_packed_sequence(result), type(result).__name__


@program
def attention_takes_its_fast_path() -> Any:
    torch.manual_seed(6)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
    layer.eval()
    x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
    with torch.no_grad():
        layer(x)
        one = layer(x)
    return one, layer(x)


@program
def a_compiled_function_of_a_module() -> Any:
    model = linear()
    model(X)
    compiled = torch.compile(lambda x: model(x) + 1, backend="eager", fullgraph=True)
    one, two = compiled(X), compiled(X * 2)
    return one, two, model(X)


@program
def a_compiled_module() -> Any:
    model = Net()
    model(X)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    return compiled(X), compiled(X * 2), model(X)


@program
def graphs_are_compiled_once() -> Any:
    counts: list[int] = []

    def backend(graph: Any, examples: Any) -> Any:
        counts.append(len(graph.graph.nodes))
        return graph.forward

    model = linear(11)
    model(X)
    compiled = torch.compile(model, backend=backend)
    results = [compiled(X * n) for n in range(4)]
    return results, counts


@program
def a_module_compiled_in_place() -> Any:
    model = linear(12)
    one = model(X)
    model.compile(backend="eager")
    two = model(X)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.weight.zero_()
    return one, two, other(X), pickle.loads(pickle.dumps(model))(X), "_compiled_call_impl" in vars(model)


@program
def a_module_disabled_for_compilers() -> Any:
    model = linear(13)
    model(X)
    plain = torch.compiler.disable(model)
    return plain(X), model(X)


@program
def attributes_are_set_and_deleted() -> Any:
    model = Net()
    model(X)
    model.extra = torch.ones(1)
    model._compiled_call_impl = None
    del model.extra
    return model(X), hasattr(model, "extra"), sorted(set(vars(model)) - set(vars(Net())))


@program
def a_module_with_slots() -> Any:
    class Slotted(nn.Module):
        __slots__ = ("kept",)

        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    model = Slotted()
    return model(X), copy.copy(model)(X), copy.deepcopy(model)(X)


@program
def a_dataclass_module() -> Any:
    import dataclasses

    @dataclasses.dataclass(eq=False)
    class Made(nn.Module):
        width: int = 3

        def __post_init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * self.width

    model = Made()
    return model(X), model(X), copy.deepcopy(model)(X)


@program
def outputs_with_names() -> Any:
    from typing import NamedTuple

    class Out(NamedTuple):
        value: torch.Tensor
        extra: Any = None

    class Gives(nn.Module):
        def forward(self, x: torch.Tensor) -> Out:
            return Out(x + 1)

    model = Gives()
    result = model(X)
    return type(result).__name__, numbers(result.value), result.extra, numbers(model(X).value)


@program
def an_iterator_given_to_forward() -> Any:
    class Eats(nn.Module):
        def forward(self, items: Any) -> torch.Tensor:
            return torch.stack(list(items)).sum(0)

    model = Eats()
    return model(iter([X, X])), model(x for x in (X, X * 2))


@program
def an_argument_that_counts_looks() -> Any:
    class Counted(dict):
        looks = 0

        def items(self) -> Any:
            Counted.looks += 1
            return super().items()

    class Reads(nn.Module):
        def forward(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
            return given["x"] + 1

    model = Reads()
    model(Counted(x=X))
    return model(Counted(x=X)), Counted.looks


@program
def warnings_are_given_once() -> Any:
    class Warns(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("old", DeprecationWarning, stacklevel=2)
            return x

    model = Warns()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            model(X)
    return [str(w.message) for w in caught], [w.filename.rpartition("/")[2] for w in caught]

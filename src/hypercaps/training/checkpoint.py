"""What a checkpoint of a training contains, and its file.

A checkpoint is the state of a training between two steps of its optimizer: weights, optimizer, random generators,
epochs so far. It is one safetensors file with JSON in its metadata; reading it executes no code from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hypercaps.compute.tensors import tensors_digest
from hypercaps.data.json_records import from_json
from hypercaps.errors import CheckpointError, OutputError
from hypercaps.io.writers.atomic import write_all_or_nothing
from hypercaps.models.history import EpochRecord, History

FORMAT_KEY = "hypercaps-checkpoint"
FORMAT_VERSION = 1

Arrays = Mapping[str, Tensor]
_MALFORMED = (TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
# epoch, loss, validation accuracy, seconds and stage: an EpochRecord in JSON
_Record = tuple[int, float, float | None, float, int]


@dataclass(frozen=True)
class StageNumbers:
    """The part of a stage's state that JSON can hold."""

    stage: int  # from 1
    epoch: int  # the current one, from 1, counted in this stage; after the last epoch, one more than there are
    batches: int  # of this epoch that are done
    loss: float  # sum over the patches of these batches
    seen: int  # number of these patches
    epoch_seconds: float  # spent on this epoch
    seconds: float  # spent on this stage
    records: tuple[_Record, ...]  # of the epochs that are done
    best_epoch: int  # counted in this stage; 0: none yet
    best_correct: int  # validation pixels
    noise: Mapping[str, object]  # numpy's generator of the noise, as it was before this epoch
    computed_on: str  # threads and kernels, on which the last digits can depend


@dataclass(frozen=True)
class StageState:
    """A stage of a training, between two steps of its optimizer."""

    numbers: StageNumbers
    weights: Arrays
    best: Arrays  # weights of the best epoch so far
    optimizer: Arrays  # "parameter.name", such as "0.exp_avg"
    random: Arrays  # states of torch's generators: order (now), order before this epoch, and global


@dataclass(frozen=True)
class FinishedStage:
    """A stage that is done, while a later one is trained."""

    history: History
    weights: Arrays


@dataclass(frozen=True)
class Checkpoint:
    """A training that can be continued."""

    identity: Mapping[str, object]  # everything that the result depends on, by name
    state: StageState
    finished: tuple[FinishedStage, ...] = ()  # the stages before
    request: Mapping[str, object] = field(default_factory=dict)  # how to repeat the command

    def write(self, path: Path) -> None:
        """Write the file, all or nothing."""
        arrays = {key: value.detach().cpu().contiguous() for key, value in self._arrays().items()}
        about = {
            "identity": dict(self.identity),
            "request": dict(self.request),
            "state": asdict(self.state.numbers),
            "finished": [asdict(stage.history) for stage in self.finished],
        }
        about = json.loads(json.dumps(about))  # as it will be read: the digest must agree
        header = {"format_version": FORMAT_VERSION, "digest": tensors_digest(arrays, about), "description": about}
        metadata = {FORMAT_KEY: json.dumps(header)}
        try:
            with write_all_or_nothing([path]) as temporary:
                safetensors.torch.save_file(arrays, temporary[path], metadata=metadata)
        except safetensors.SafetensorError as error:  # of the operating system, which it does not tell apart
            raise OutputError(f"{path} can't be written: {error}") from error

    def _arrays(self) -> dict[str, Tensor]:
        state = self.state
        groups = {"weights": state.weights, "best": state.best, "optimizer": state.optimizer, "random": state.random}
        groups |= {f"finished-{number}": stage.weights for number, stage in enumerate(self.finished)}
        return {f"{group}/{key}": value for group, arrays in groups.items() for key, value in arrays.items()}


def optimizer_arrays(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimizer remembers of each parameter, by "parameter.name"."""
    return {
        f"{parameter}.{name}": value
        for parameter, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None  # SGD has no momentum
    }


def load_optimizer(optimizer: torch.optim.Optimizer, arrays: Arrays) -> None:
    """Give an optimizer what :func:`optimizer_arrays` returned; its settings, such as the learning rate, stay."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in arrays.items():
        number, _, name = key.partition(".")
        # Optimizers compute without a check of their own: another shape would write outside of the tensor.
        if value.ndim and value.shape != parameters[int(number)].shape:
            raise ValueError(f"its optimizer has {name} of shape {tuple(value.shape)} for parameter {number}")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; refuse anything but a complete one."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if FORMAT_KEY not in metadata:
                raise ValueError("there is no training in it")
            header = json.loads(metadata[FORMAT_KEY])
            # Copies, in memory that is aligned as torch's own: matrix products can round differently otherwise.
            arrays = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 - not a dict
        if header["format_version"] != FORMAT_VERSION:
            raise CheckpointError(
                f"checkpoint {path} has format {header['format_version']} and this hypercaps reads {FORMAT_VERSION}: "
                "use the hypercaps that wrote it, or delete it to train from the start"
            )
        if header["digest"] != tensors_digest(arrays, header["description"]):
            raise ValueError("it is not as it was written")
        return _assemble(header["description"], arrays)
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(f"checkpoint {path} is incomplete: delete it to train from the start") from error
    except (safetensors.SafetensorError, OSError, *_MALFORMED) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"checkpoint {path} is damaged or of another kind ({reason}): delete it to train from the start"
        ) from error


def _assemble(about: Mapping[str, Any], arrays: Arrays) -> Checkpoint:
    def group(name: str) -> dict[str, Tensor]:
        return {key.partition("/")[2]: value for key, value in arrays.items() if key.partition("/")[0] == name}

    numbers = from_json(StageNumbers, about["state"])
    state = StageState(numbers, group("weights"), group("best"), group("optimizer"), group("random"))
    finished = [
        FinishedStage(_history(history), group(f"finished-{number}"))
        for number, history in enumerate(about["finished"])
    ]
    identity, request = (dict(about[part]) for part in ("identity", "request"))
    return Checkpoint(identity, state, tuple(finished), request)


def _history(value: Mapping[str, Any]) -> History:
    records = tuple(EpochRecord(*record) for record in value["records"])
    return History(records, int(value["best_epoch"]), float(value["seconds"]), bool(value["interrupted"]))

"""The training loop of every network: a step, an epoch, and the choice of the epoch to keep."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from hypercaps.compute.allocator import reused_memory
from hypercaps.compute.devices import Device, arithmetic_here, threads_in_use
from hypercaps.errors import CheckpointError, Interrupted, Paused, TrainingError, warn_data
from hypercaps.models.capsules.loss import margin_loss
from hypercaps.models.history import EpochRecord, History
from hypercaps.models.protocols import DirectGradients, kernel_threads
from hypercaps.models.recipes import Stage
from hypercaps.training.checkpoint import StageNumbers, StageState, load_optimizer, optimizer_arrays
from hypercaps.training.checkpoint_file import CheckpointFile
from hypercaps.training.examples import Examples, count_correct, patch_scores
from hypercaps.training.neighbours import neighbour_batches
from hypercaps.training.patches import symmetries

Loss = Callable[[Tensor, Tensor], Tensor]  # scores (B, n), class indices (B,) -> scalar
# (network, patches, class indices, unlabelled patches) -> scalar
SemiSupervisedLoss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


class Progress(NamedTuple):
    """How far a training is; reported after every batch and after every epoch's validation."""

    epoch: int  # from 1, counted on over all stages
    epochs: int  # of all stages
    done: float  # share of the whole training, 0 to 1
    loss: float  # mean of this epoch so far
    last: EpochRecord | None  # the last complete epoch


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class LoopSettings:
    """How to compute a training; what all stages of a recipe share."""

    loss: Loss
    batch_size: int
    # Takes the place of ``loss`` where given: every step also takes as many unlabelled patches as labelled ones.
    semi_supervised: SemiSupervisedLoss | None = None
    device: Device = field(default_factory=Device)
    on_progress: OnProgress | None = None
    checkpoint: CheckpointFile | None = None  # to continue from, and to keep one in


class _Best(NamedTuple):
    """The best epoch so far; one object, so that Ctrl-C can never separate its parts."""

    epoch: int = 0  # of this stage
    correct: int = -1  # validation pixels
    weights: dict[str, Tensor] = {}  # noqa: RUF012 - never changed


class _Generators(NamedTuple):
    """States of the loop's two generators."""

    order: Tensor
    noise: Mapping[str, object]


@dataclass
class _CurrentEpoch:
    """How far the current epoch is."""

    number: int = 1  # in this stage
    batches: int = 0  # that are done
    loss: float = 0.0  # sum over the patches of these batches
    seen: int = 0  # number of these patches
    started: float = field(default_factory=time.perf_counter)


class TrainingLoop:
    """One stage of a training, in place, on the device that the network is on.

    ``run`` leaves the network with the weights of its (earliest) best validation epoch, or with the last ones if the
    stage's augmentation says ``keep_last``. Without validation pixels the last epoch counts as the best. Ctrl-C after
    the first epoch ends the training and keeps the best epoch so far. With a checkpoint, ``run`` continues where the
    checkpoint was written, and ends with the same bits as without the interruption.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        settings: LoopSettings,
        stage: Stage,
    ) -> None:
        device = settings.device.name
        self.network, self.optimizer, self.settings, self.stage = network, optimizer, settings, stage
        self.examples = examples.to(device)
        self._store = self.examples.store  # with the noise of this epoch
        self._order = Generator().manual_seed(stage.seed)
        self._noise = np.random.default_rng(stage.seed)
        self._turns = symmetries(self._store.patch).to(device) if stage.augmentation.symmetries else None  # (8, D*D)
        self._direct = _direct_gradients(network, settings)
        self._highest_rates = [group["lr"] for group in optimizer.param_groups]
        self._records: list[EpochRecord] = []
        self._best = _Best()
        self._at = _CurrentEpoch()
        self._drawn_from = self._generators()  # before the draws of the current epoch
        self._order_later: Tensor | None = None  # of a resumed epoch: the state of _order after its steps so far

    def run(self) -> History:
        self._started = time.perf_counter()
        interrupted = False
        try:
            with torch.random.fork_rng(devices=[]), kernel_threads(self.network), reused_memory():
                torch.manual_seed(self.stage.seed)  # dropout draws from torch's global generator
                self._resume()
                while self._at.number <= self.stage.epochs:
                    self._epoch()
        except KeyboardInterrupt:
            if not self._best.epoch:
                raise Interrupted("stopped before the first epoch ended: there is no model to keep") from None
            interrupted = True
        kept = self._best.epoch
        if self.stage.augmentation.keep_last and not interrupted:
            kept = self.stage.epochs
        else:
            self.network.load_state_dict(self._best.weights)
        seconds = time.perf_counter() - self._started
        return History(tuple(self._records), kept + self.stage.epochs_before, seconds, interrupted)

    def _epoch(self) -> None:
        """Train on all patches once, validate, and remember the weights if they are the best so far."""
        epoch = self._at.number
        loss = self._train_epoch(epoch)
        if not math.isfinite(loss):
            raise TrainingError(
                f"training diverged in epoch {epoch + self.stage.epochs_before}: the loss is {loss}; choose another "
                "recipe or seed, or check the scene for extreme values"
            )
        n_val = len(self.examples.val)
        with self.settings.device.arithmetic():
            correct = count_correct(self.network, self.examples, self.settings.batch_size)
        is_better = correct > self._best.correct or n_val == 0
        weights = {key: value.clone() for key, value in self.network.state_dict().items()} if is_better else {}
        val_oa = 100.0 * correct / n_val if n_val else None
        seconds = time.perf_counter() - self._at.started
        number = epoch + self.stage.epochs_before
        self._records.append(EpochRecord(number, loss, val_oa, seconds, self.stage.number))
        if is_better:
            self._best = _Best(epoch, correct, weights)
        self._at = _CurrentEpoch(epoch + 1)
        self._report(epoch, 1.0, loss)

    def _train_epoch(self, epoch: int) -> float:
        """One pass over the patches to learn from, in random order; the mean loss."""
        batches = self._draw_batches(epoch)
        patches, at = sum(map(len, batches)), self._at
        self.network.train()
        for number in range(at.batches, len(batches)):
            if self.stage.augmentation.one_cycle:
                step, steps = (epoch - 1) * len(batches) + number, self.stage.epochs * len(batches) + 1
                for group, highest in zip(self.optimizer.param_groups, self._highest_rates, strict=True):
                    group["lr"] = one_cycle(step, steps) * highest
            batch = batches[number]
            at.loss += self._step(batch) * len(batch)
            at.seen += len(batch)
            at.batches += 1
            self._report(epoch, at.seen / patches, at.loss / at.seen)
        return at.loss / at.seen

    def _draw_batches(self, epoch: int) -> Sequence[Tensor]:
        """The patches of each step of an epoch; draws their noise as well."""
        self._drawn_from = self._generators()
        patches = self.examples.train
        if self.examples.extra is not None:
            patches = torch.cat([patches, self.examples.extra(epoch).to(patches.device)])
        if self.stage.augmentation.noise:
            store, sigma = self.examples.store, self.stage.augmentation.noise
            self._store = store.with_noise(patches, sigma, self._noise, self._store)
        batches = self._batches(patches)
        if self._order_later is not None:
            self._order.set_state(self._order_later)
            self._order_later = None
        return batches

    def _batches(self, patches: Tensor) -> Sequence[Tensor]:
        """Divide the patches (T,) of an epoch into those of its steps."""
        size = self.settings.batch_size
        if self.stage.augmentation.neighbours:
            pixels = self._store.pixels[patches].cpu()
            return [patches[some.to(patches.device)] for some in neighbour_batches(pixels, size, self._order)]
        return torch.split(patches[torch.randperm(len(patches), generator=self._order)], size)

    def _step(self, batch: Tensor) -> float:
        """One step of the optimizer on patches ``batch`` (B,); their mean loss."""
        self.optimizer.zero_grad()
        if self._direct is not None:
            places = self._store.places(batch, self._draw_turns(batch))
            loss = self._direct.set_gradients(self._store.spectra, places, self.examples.targets[batch])
        else:
            with self.settings.device.arithmetic():
                loss = self._loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
        value = loss.item()
        self.optimizer.step()
        return value

    def _loss(self, batch: Tensor) -> Tensor:
        targets, turned = self.examples.targets[batch], self._draw_turns(batch)
        if self.settings.semi_supervised is None:
            return self.settings.loss(patch_scores(self.network, self._store, batch, turned), targets)
        patches = self._store.gather(batch, turned)
        unlabelled = self.examples.unlabelled  # may be empty: then only labelled pixels are reconstructed
        if len(unlabelled):
            unlabelled = unlabelled[torch.randint(len(unlabelled), (len(batch),), generator=self._order)]
        return self.settings.semi_supervised(self.network, patches, targets, self._store.gather(unlabelled))

    def _draw_turns(self, batch: Tensor) -> Tensor | None:
        """The order in which each patch of a batch (B,) is read, (B, D*D); None: as it is."""
        if self._turns is None:
            return None
        drawn = torch.randint(len(self._turns), (len(batch),), generator=self._order)
        return self._turns[drawn.to(batch.device)]

    def _report(self, epoch: int, share: float, loss: float) -> None:
        """Report progress, and keep a checkpoint if it is time: ``share`` of the epoch is done, with mean ``loss``.

        Called between two steps, when nothing is half done.
        """
        stage = self.stage
        if self.settings.on_progress is not None:
            done = stage.done_before + stage.share * ((epoch - 1 + share) / stage.epochs)
            epochs = stage.epochs_before + stage.epochs + stage.epochs_after
            last = self._records[-1] if self._records else None
            try:
                self.settings.on_progress(Progress(epoch + stage.epochs_before, epochs, done, loss, last))
            except KeyboardInterrupt:
                self._save()
                raise
            except Paused:
                if self._save():
                    raise
        if self.settings.checkpoint is not None and self.settings.checkpoint.is_due:
            self._save()

    def _save(self) -> bool:
        """Keep a checkpoint, unless the training has diverged and will end with an error; whether it was written."""
        if self.settings.checkpoint is None or not math.isfinite(self._at.loss):
            return False
        return self.settings.checkpoint.save(self._state())

    def _generators(self) -> _Generators:
        return _Generators(self._order.get_state(), self._noise.bit_generator.state)

    def _state(self) -> StageState:
        """Everything that the rest of this stage depends on."""
        at, best, now = self._at, self._best, time.perf_counter()
        drawn = self._drawn_from if at.batches else self._generators()
        numbers = StageNumbers(
            stage=self.stage.number,
            epoch=at.number,
            batches=at.batches,
            loss=at.loss,
            seen=at.seen,
            epoch_seconds=now - at.started,
            seconds=now - self._started,
            records=tuple(self._records),
            best_epoch=best.epoch,
            best_correct=best.correct,
            noise=drawn.noise,
            computed_on=_computed_on(),
        )
        random = {"order": self._order.get_state(), "epoch-order": drawn.order, "global": torch.get_rng_state()}
        optimizer = optimizer_arrays(self.optimizer)
        return StageState(numbers, self.network.state_dict(), best.weights, optimizer, random)

    def _resume(self) -> None:
        """Continue from the checkpoint, if there is one of this stage."""
        checkpoint = self.settings.checkpoint
        state = None if checkpoint is None else checkpoint.state(self.stage.number)
        if state is None:
            return
        try:
            self._load(state)
        except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise CheckpointError(
                f"the checkpoint does not fit the training ({reason}): delete it to train from the start"
            ) from error
        before, now = state.numbers.computed_on, _computed_on()
        if before != now:
            warn_data(
                f"the training was begun with {before} and continues with {now}: its last digits can differ from those "
                "of an uninterrupted one"
            )

    def _load(self, state: StageState) -> None:
        numbers, now = state.numbers, time.perf_counter()
        if not (0 < numbers.epoch <= self.stage.epochs + 1 and 0 <= numbers.best_epoch < numbers.epoch):
            raise ValueError(f"it is in epoch {numbers.epoch}")
        if numbers.batches < 0 or (numbers.batches > 0) != (numbers.seen > 0):
            raise ValueError(f"{numbers.batches} steps of its epoch are done")
        self.network.load_state_dict(state.weights)
        load_optimizer(self.optimizer, state.optimizer)
        self._order.set_state(state.random["epoch-order"])
        self._noise.bit_generator.state = dict(numbers.noise)
        torch.set_rng_state(state.random["global"])
        self._records = [EpochRecord(*record) for record in numbers.records]
        device = self.settings.device.name
        weights = {key: value.to(device) for key, value in state.best.items()}
        self._best = _Best(numbers.best_epoch, numbers.best_correct, weights)
        started = now - numbers.epoch_seconds
        self._at = _CurrentEpoch(numbers.epoch, numbers.batches, numbers.loss, numbers.seen, started)
        self._started = now - numbers.seconds
        if numbers.batches:
            self._order_later = state.random["order"]


def _direct_gradients(network: nn.Module, settings: LoopSettings) -> DirectGradients | None:
    """The network if it can set its gradients without autograd, which takes as long as a quarter of a small step."""
    is_margin_loss = settings.loss is margin_loss and settings.semi_supervised is None
    if is_margin_loss and settings.device.is_plain and isinstance(network, DirectGradients):
        return network if network.is_batch_invariant else None
    return None


def _computed_on() -> str:
    """What the last digits of a training can depend on."""
    return f"{threads_in_use()} threads, {arithmetic_here()}"


def one_cycle(step: int, steps: int) -> float:
    """Share of the highest learning rate at ``step`` (from 0) of ``steps``.

    Half a cosine up from 1/25 over a quarter of the steps, then half a cosine down to 1/250,000. This is the curve of
    torch's OneCycleLR, which rounds otherwise and divides by zero for four steps.
    """
    up = 0.25 * steps - 1
    if step < up:
        start, end, share = 1 / 25, 1.0, step / up
    else:
        start, end, share = 1.0, 1 / 250_000, (step - up) / (steps - 1 - up)
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))

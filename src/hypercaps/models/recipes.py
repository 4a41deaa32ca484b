"""Recipes: how a network is trained.

A recipe describes its algorithm in terms of a :class:`Trainer`, which ``hypercaps.training`` implements. Another kind
of recipe is a subclass of :class:`Recipe` here and an entry in ``descriptions.py``. torch is imported where a recipe
trains, so that options are checked without waiting for it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from hypercaps.errors import Interrupted, ModelError
from hypercaps.models.history import History, Overrides, TrainingRecord

if TYPE_CHECKING:
    import torch
    from torch import nn

LARGE_SCENE = 20_000  # labelled pixels from which the paper's larger batch is used
_SECOND_SEED = 1000  # added to the seed for the second network of self-training


@dataclass(frozen=True)
class Augmentation:
    """Differences from the paper's training; the defaults change nothing, and draw no random number."""

    symmetries: bool = False  # turn or reflect every patch at random
    noise: float = 0.0  # standard deviation of noise on the preprocessed spectra, drawn again in every epoch
    one_cycle: bool = False  # the learning rate rises to the optimizer's and falls to almost zero
    keep_last: bool = False  # keep the last weights, not those of the best validation epoch
    neighbours: bool = False  # the patches of a step lie near each other, so that a network can share work


@dataclass(frozen=True)
class Stage:
    """One run of the training loop; a recipe has one or more of them."""

    epochs: int
    seed: int  # of the order of the patches, dropout and augmentation
    augmentation: Augmentation = Augmentation()
    number: int = 1
    epochs_before: int = 0  # of earlier stages
    epochs_after: int = 0  # of later stages
    done_before: float = 0.0  # share of the whole training's work that earlier stages do
    share: float = 1.0  # share of the whole training's work that this stage does


class Trainer(Protocol):
    """The training loop and the pixels of one split, as a recipe uses them."""

    @property
    def record(self) -> TrainingRecord:
        """The settings of this training: epochs, batch size, seed."""

    @property
    def training_pixels(self) -> int: ...

    @property
    def unlabelled_pixels(self) -> int: ...

    def new_network(self, seed: int) -> nn.Module:
        """A network with weights drawn from ``seed``, on the device it is to be trained on."""

    def run(self, network: nn.Module, optimizer: torch.optim.Optimizer, stage: Stage) -> History:
        """Train the network in place."""

    def solve(self) -> tuple[nn.Module, History]:
        """A network that was fitted to all training pixels at once (see ``protocols.Solvable``)."""

    def with_pseudo_labels(self, network: nn.Module, per_epoch: int, *, guided: bool = False) -> Trainer:
        """A trainer whose epochs also use ``per_epoch`` unlabelled pixels, with classes propagated from the labels
        and the scores of a trained network, if ``guided`` also those of LDA on the means of patches."""


class Trained(NamedTuple):
    """The result of a recipe."""

    network: nn.Module
    history: History
    record: TrainingRecord
    first: nn.Module | None = None  # the network of the first of two stages, where the second was kept


class Recipe(ABC):
    """How a network is trained: the interface of all kinds of recipes."""

    name: str
    structure: Mapping[str, object] | None  # sizes and initial weights that belong to the recipe
    whitening: ClassVar[str | None] = None  # of the spectra, where the recipe needs another than the method's
    has_epochs: ClassVar[bool] = True  # False: it takes neither epochs nor a batch size
    uses_pseudo_labels: ClassVar[bool] = False  # needs unlabelled pixels, and memory to propagate labels to them
    alternative: ClassVar[str] = "take another method"  # what to do where memory is too small

    @property
    def fixed_epochs(self) -> int | None:
        """Number of epochs where it is the same for every scene, else None."""
        return None

    @abstractmethod
    def identity(self) -> str:
        """The settings as hashed into the names of a study's runs: never reword, or finished runs are not found."""

    def describe(self) -> str:
        """The settings in words, for lists of methods."""
        return self.identity()

    @abstractmethod
    def settings(
        self, overrides: Overrides, *, training_pixels: int, labelled_pixels: int, seed: int
    ) -> TrainingRecord:
        """The settings of a training with so many pixels."""

    @abstractmethod
    def train(self, trainer: Trainer) -> Trained:
        """Train a network."""

    def check_overrides(self, method: str, overrides: Mapping[str, object]) -> None:
        """Refuse epochs and batch size where the recipe has none; ``overrides`` are the user's values by name."""
        given = [name.replace("_", " ") for name, value in overrides.items() if value is not None]
        if given and not self.has_epochs:
            raise ModelError(f"{method} is solved at once: it has no {given[0]}, leave it out")

    def stored_bytes(self, labelled_pixels: int, network: nn.Module) -> int:
        """Largest size of the model file beyond the parameters of an untrained network."""
        return 0


@dataclass(frozen=True)
class EpochRecipe(Recipe):
    """A fixed learning rate; the weights of the best validation epoch are kept."""

    name: str
    epochs: int
    learning_rate: float
    batch_small: int = 64  # for scenes with fewer than LARGE_SCENE labelled pixels
    batch_large: int = 256
    optimizer: str = "Adam"
    structure: Mapping[str, object] | None = None
    also: str = ""  # the structure in words; part of the identity

    @property
    def fixed_epochs(self) -> int | None:
        return self.epochs

    def epochs_for(self, training_pixels: int) -> int:
        """Number of epochs, unless the user gives another."""
        return self.epochs

    def batch_size(self, labelled_pixels: int) -> int:
        return self.batch_small if labelled_pixels < LARGE_SCENE else self.batch_large

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation()

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        return self._optimizer_of(network.parameters())

    def _optimizer_of(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        """The optimizer of parameters, or of groups with learning rates of their own."""
        from hypercaps.compute.optimizers import make_optimizer

        return make_optimizer(self.optimizer, parameters, self.learning_rate)

    def identity(self) -> str:
        batches = str(self.batch_small)
        if self.batch_large != self.batch_small:
            batches += f" or {self.batch_large}"
        also = f", {self.also}" if self.also else ""
        return f"{self.optimizer} {self.learning_rate:g}, {self.epochs} epochs, batch {batches}{also}"

    def settings(
        self, overrides: Overrides, *, training_pixels: int, labelled_pixels: int, seed: int
    ) -> TrainingRecord:
        return TrainingRecord(
            name=self.name,
            epochs=overrides.epochs or self.epochs_for(training_pixels),
            batch_size=overrides.batch_size or self.batch_size(labelled_pixels),
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            overrides=overrides,
            seed=seed,
        )

    def train(self, trainer: Trainer) -> Trained:
        record = trainer.record
        assert record.epochs is not None and record.seed is not None
        network, history = self._run(trainer, Stage(record.epochs, record.seed, self.augmentation))
        return Trained(network, history, record)

    def _run(self, trainer: Trainer, stage: Stage) -> tuple[nn.Module, History]:
        network = trainer.new_network(stage.seed)
        return network, trainer.run(network, self.make_optimizer(network), stage)


@dataclass(frozen=True)
class NeighbourSteps(EpochRecipe):
    """One cycle of the learning rate; the pixels of a step are neighbours, whose patches share most of their work.

    Without dropout, a step's loss is that of its patches one by one. With dropout, a patch is masked as it would be
    alone, and so the expected loss is the same too; only the patches of one step share their masks where they overlap.
    The last weights are kept: at the end of the cycle they are the best, also where validation can't tell.
    """

    most_inputs: int = 2048  # of a neuron that is trained at the full learning rate

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(one_cycle=True, neighbours=True, keep_last=True)

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """An optimizer with lower learning rates for the layers with many inputs.

        A step of Adam changes every weight by the learning rate. Where the inputs are alike, as neighbouring bands
        are, the changes of a neuron's output add up over them.
        """
        groups = []
        for layer in network.modules():
            weight = getattr(layer, "weight", None)
            if weight is not None:
                share = min(1.0, self.most_inputs / weight[0].numel())
                groups.append({"params": list(layer.parameters()), "lr": share * self.learning_rate})
        return self._optimizer_of(groups)

    def identity(self) -> str:
        also = f", {self.also}" if self.also else ""
        return (
            f"{self.optimizer}, one-cycle learning rate up to {self.learning_rate:g} (less for neurons with more than "
            f"{self.most_inputs} inputs), {self.epochs} epochs, batches of about {self.batch_small} neighbouring "
            f"pixels{also}"
        )


class StageLengths(NamedTuple):
    """How long the two stages of self-training are."""

    first: int  # epochs over the training pixels
    second: int  # epochs over these and the extra ones; 0: no unlabelled pixel is available
    extra: int  # pseudo-labelled pixels drawn in each epoch of the second stage


@dataclass(frozen=True)
class OneCycle(EpochRecipe):
    """Patches rotated and mirrored, noise on the spectra, one cycle of the learning rate; the last weights are kept.

    ``epochs`` is the largest number of epochs: many training pixels need fewer.
    """

    whitening: ClassVar[str | None] = "robust"
    least_epochs: int = 8
    looked_at: int = 30_000  # epochs times training pixels, within the limits of the epochs
    noise: float = 0.7  # standard deviation, in whitened components

    @property
    def fixed_epochs(self) -> int | None:
        return None

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(symmetries=True, noise=self.noise, one_cycle=True, keep_last=True)

    def epochs_for(self, training_pixels: int) -> int:
        return min(max(round(self.looked_at / training_pixels), self.least_epochs), self.epochs)

    def identity(self) -> str:
        return (
            f"{self.optimizer}, one-cycle learning rate up to {self.learning_rate:g}, {self.least_epochs} to "
            f"{self.epochs} epochs, batch {self.batch_small}, patches rotated and reflected, noise {self.noise:g}, "
            f"{self.whitening} whitening"
        )


@dataclass(frozen=True)
class SelfTraining(OneCycle):
    """Two networks in turn: the second is also trained on unlabelled pixels, classified by the first and the labels.

    ``epochs`` is the largest number of epochs of the first stage.
    """

    uses_pseudo_labels: ClassVar[bool] = True
    alternative: ClassVar[str] = "take the recipe paper"
    least_second: int = 20_000  # patches in all epochs of the second stage together: fewer do not learn what propagated
    guided: bool = False  # LDA on the means of patches takes part in giving classes to unlabelled pixels

    def stages(self, training_pixels: int, unlabelled: int, epochs: int) -> StageLengths:
        """The stages for so many pixels; ``epochs`` is the number of epochs of the first stage."""
        extra = min(max(training_pixels, 1000), unlabelled)
        # 1.5 times the work of the first stage, and enough epochs for the learning rate to rise and fall. A number of
        # epochs that the user gives shortens or prolongs both stages alike.
        least = self.least_second * epochs / self.epochs_for(training_pixels)
        patches = max(1.5 * epochs * training_pixels, least)
        second = max(round(patches / (training_pixels + extra)), min(6, epochs))
        return StageLengths(epochs, second if extra else 0, extra)

    def identity(self) -> str:
        return (
            f"{self.optimizer}, one cycle up to {self.learning_rate:g}, {self.least_epochs} to {self.epochs} epochs, "
            f"batch {self.batch_small}, patches turned, noise {self.noise:g}, {self.whitening} whitening; then again "
            f"with labels that flowed along the scene, {self.least_second} patches or more"
            + (", with LDA" if self.guided else "")
        )

    def describe(self) -> str:
        start = " from it and from LDA on the means of patches" if self.guided else ""
        least = f"in {self.least_second} patches or more"
        return f"{super().identity()}; then again with labels propagated over the scene{start}, {least}"

    def train(self, trainer: Trainer) -> Trained:
        """Train both networks; the second is kept.

        Ctrl-C keeps the best epoch of the first network; later the better of the two networks by validation, or
        without validation pixels the first, whose training was complete.
        """
        settings = trainer.record
        assert settings.epochs is not None and settings.seed is not None
        lengths = self.stages(trainer.training_pixels, trainer.unlabelled_pixels, settings.epochs)
        one, two = self._two_stages(lengths, trainer.training_pixels, settings.seed)
        first_alone, both = (replace(settings, second_epochs=n, extra=m) for n, m in ((0, 0), lengths[1:]))

        first, before = self._run(trainer, one)
        if before.interrupted or not lengths.second:
            return Trained(first, before, first_alone)
        started = time.perf_counter()
        try:
            following = trainer.with_pseudo_labels(first, lengths.extra, guided=self.guided)
            between = time.perf_counter() - started
            second, after = self._run(following, two)
        except (KeyboardInterrupt, Interrupted):
            seconds = before.seconds + time.perf_counter() - started
            return Trained(first, replace(before, interrupted=True, seconds=seconds), first_alone)
        # Not from the clock: a part of the stages may have been trained before this process was started.
        seconds = before.seconds + between + after.seconds
        history = replace(after, records=before.records + after.records, seconds=seconds)
        if after.interrupted and not _is_better(after.best.val_oa, before.records[-1].val_oa):
            return Trained(first, replace(history, best_epoch=before.best_epoch), first_alone)
        return Trained(second, history, both, first)

    def _two_stages(self, lengths: StageLengths, training_pixels: int, seed: int) -> tuple[Stage, Stage]:
        work = lengths.first * training_pixels, lengths.second * (training_pixels + lengths.extra)
        share = work[0] / sum(work)
        one = Stage(lengths.first, seed, self.augmentation, epochs_after=lengths.second, share=share)
        two = Stage(
            lengths.second,
            seed + _SECOND_SEED,
            self.augmentation,
            number=2,
            epochs_before=lengths.first,
            done_before=share,
            share=1 - share,
        )
        return one, two


def _is_better(second: float | None, first: float | None) -> bool:
    """Whether the second network is at least as good by validation; False without validation pixels."""
    return second is not None and first is not None and second >= first


@dataclass(frozen=True)
class SolvedRecipe(Recipe):
    """A method without epochs, fitted to all training pixels at once."""

    has_epochs: ClassVar[bool] = False
    name: str
    how: str  # the settings in words: the identity
    structure: Mapping[str, object] | None = None

    def identity(self) -> str:
        return self.how

    def settings(
        self, overrides: Overrides, *, training_pixels: int, labelled_pixels: int, seed: int
    ) -> TrainingRecord:
        return TrainingRecord(name=self.name, seed=seed)

    def train(self, trainer: Trainer) -> Trained:
        return Trained(*trainer.solve(), trainer.record)

    def stored_bytes(self, labelled_pixels: int, network: nn.Module) -> int:
        from hypercaps.models.protocols import Growing

        return network.most_bytes(labelled_pixels) if isinstance(network, Growing) else 0

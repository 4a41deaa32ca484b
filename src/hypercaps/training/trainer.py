"""The trainer that recipes use: the training loop on the pixels of one split.

The recipes themselves are in ``models.recipes``, because ``models.registry`` lists them and training imports models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from hypercaps.models.history import History, TrainingRecord
from hypercaps.models.recipes import Stage
from hypercaps.training.examples import Examples
from hypercaps.training.loop import LoopSettings, TrainingLoop
from hypercaps.training.self_training import PixelGrid, PseudoLabelling, add_pseudo_labels
from hypercaps.training.solve import solve


@dataclass(frozen=True)
class PatchTrainer:
    """A :class:`hypercaps.models.recipes.Trainer` on patches of a scene."""

    build: Callable[[int], nn.Module]  # a network with weights drawn from a seed
    examples: Examples
    settings: LoopSettings
    record: TrainingRecord
    grid: PixelGrid | None = None  # for recipes that use pseudo-labels

    @property
    def training_pixels(self) -> int:
        return len(self.examples.train)

    @property
    def unlabelled_pixels(self) -> int:
        return len(self.examples.unlabelled)

    def new_network(self, seed: int) -> nn.Module:
        return self.build(seed).to(self.settings.device.name)

    def run(self, network: nn.Module, optimizer: torch.optim.Optimizer, stage: Stage) -> History:
        checkpoint = self.settings.checkpoint
        if checkpoint is not None and (done := checkpoint.finished(stage.number)) is not None:
            network.load_state_dict(done.weights)
            return done.history
        history = TrainingLoop(network, optimizer, self.examples, self.settings, stage).run()
        if checkpoint is not None and stage.epochs_after and not history.interrupted:
            checkpoint.finish(network, history)
        return history

    def solve(self) -> tuple[nn.Module, History]:
        network = self.build(self._seed)
        return network, solve(network, self.settings.loss, self.examples)

    def with_pseudo_labels(self, network: nn.Module, per_epoch: int, *, guided: bool = False) -> PatchTrainer:
        assert self.grid is not None
        how = PseudoLabelling(per_epoch, guided, self._seed)
        return replace(self, examples=add_pseudo_labels(network, self.examples, self.grid, self.settings, how))

    @property
    def _seed(self) -> int:
        assert self.record.seed is not None
        return self.record.seed

"""Recipes as objects: what they record, and that a new kind needs nothing but its class and its entry."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.models.history import Overrides, TrainingRecord
from hypercaps.models.recipes import EpochRecipe, Stage, Trained, Trainer
from hypercaps.models.registry import METHODS, get_method
from support.scenes import make_cube


@dataclass(frozen=True)
class TwoRates(EpochRecipe):
    """Train with one learning rate, then continue the same network with a tenth of it."""

    def train(self, trainer: Trainer) -> Trained:
        record = trainer.record
        first, second = (
            Stage(record.epochs, record.seed, epochs_after=record.epochs, share=0.5),
            Stage(record.epochs, record.seed, number=2, epochs_before=record.epochs, done_before=0.5, share=0.5),
        )
        network, before = self._run(trainer, first)
        after = trainer.run(
            network, replace(self, learning_rate=self.learning_rate / 10).make_optimizer(network), second
        )
        return Trained(network, replace(after, records=before.records + after.records), record)


def test_a_new_kind_of_recipe_is_a_class_and_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS["convcapsnet"].recipes, "two-rates", TwoRates("two-rates", 3, 0.01))
    cube, labels = make_cube()
    done: list[float] = []
    fitted = ConvCapsClassifier(recipe="two-rates", batch_size=32).fit(
        Scene.from_array(cube), Labels.from_array(labels), on_progress=lambda now: done.append(now.done)
    )
    assert [(record.epoch, record.stage) for record in fitted.history_] == [(n, 1 + (n > 3)) for n in range(1, 7)]
    assert done == sorted(done) and done[-1] == 1
    assert fitted.model_.recipe.name == "two-rates" and fitted.scores_.oa > 50


def test_layers_with_many_inputs_get_a_lower_learning_rate() -> None:
    recipe = get_method("3d-cnn").recipe("tuned")
    network = get_method("3d-cnn").blueprint(200, 16, structure=recipe.structure)
    groups = recipe.make_optimizer(network).param_groups
    # 512 inputs, twice 32 * 512, and 32 * 107
    expected = [0.0003, 0.0003 / 8, 0.0003 / 8, 0.0003 * 2048 / 3424]
    assert [group["lr"] for group in groups] == pytest.approx(expected)
    trained = [weight for group in groups for weight in group["params"]]
    assert all(one is other for one, other in zip(trained, network.parameters(), strict=True))


class TestTrainingRecord:
    whole = TrainingRecord("best", 6, 64, "Adam", 0.01, Overrides(6, None), 4, 1000, seed=3, best_epoch=10)

    def test_its_json_has_the_keys_of_model_files_in_their_order(self) -> None:
        expected = {
            "name": "best", "epochs": 6, "batch_size": 64, "optimizer": "Adam", "learning_rate": 0.01,
            "asked": {"epochs": 6, "batch_size": None}, "second_epochs": 4, "extra": 1000, "seed": 3, "best_epoch": 10,
        }  # fmt: skip
        assert list(self.whole.to_json().items()) == list(expected.items())
        assert TrainingRecord.from_json(expected) == self.whole

    def test_entries_that_do_not_apply_are_left_out(self) -> None:
        solved = TrainingRecord("paper", seed=0, best_epoch=1)
        assert solved.to_json() == {"name": "paper", "seed": 0, "best_epoch": 1}
        assert TrainingRecord.from_json({}) == TrainingRecord() and TrainingRecord().to_json() == {}

    def test_entries_of_older_versions_are_kept(self) -> None:
        older = {"name": "paper", "epochs": 50, "batch_size": 64, "seed": 1, "devices": 2}
        record = TrainingRecord.from_json(older)
        assert record.to_json() == older and record.user_overrides == Overrides(50, 64)

    @pytest.mark.parametrize("entry", [{"epochs": "6"}, {"name": 3}, {"asked": 5}, {"learning_rate": []}])
    def test_entries_of_another_type_are_refused(self, entry: dict[str, object]) -> None:
        with pytest.raises(TypeError, match="its recipe has"):
            TrainingRecord.from_json(entry)

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.compute.tensors import tensors_digest
from hypercaps.errors import ModelFileError
from hypercaps.inference.model_file import read_model, write_model
from hypercaps.training.preprocessing import PCAWhitening


@pytest.fixture
def saved(trained: ConvCapsClassifier, tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    trained.save(path)
    return path


def test_everything_comes_back_to_the_bit(trained: ConvCapsClassifier, saved: Path) -> None:
    before, after = trained.model_, read_model(saved)
    for key, value in before.module.state_dict().items():
        assert torch.equal(after.module.state_dict()[key], value)
    for part in ("mean", "matrix", "variances"):
        np.testing.assert_array_equal(getattr(after.preprocessing, part), getattr(before.preprocessing, part))
    assert before.familiarity is not None and after.familiarity is not None
    for part, array in before.familiarity.arrays().items():
        np.testing.assert_array_equal(after.familiarity.arrays()[part], array)
    assert after.legend == before.legend
    np.testing.assert_array_equal(after.wavelengths, np.arange(26) * 10 + 400)
    assert after.describe() == before.describe()
    assert after.parameters == before.parameters


def test_a_run_folder_stands_for_its_model(saved: Path) -> None:
    assert read_model(saved.parent).describe() == read_model(saved).describe()


def test_the_file_says_what_it_is(saved: Path) -> None:
    with safetensors.safe_open(saved, framework="np") as file:
        metadata = file.metadata()
    about = json.loads(metadata["hypercaps-model"])["description"]
    assert about["method"] == "convcapsnet" and about["patch"] == 7 and about["bands"] == 26
    assert about["recipe"]["name"] == "best" and about["recipe"]["learning_rate"] == 0.01
    assert about["split"]["kind"] == "share" and about["split"]["train"] == 0.4
    assert {"hypercaps", "torch", "numpy", "python"} <= set(about["versions"])
    assert [c["label"] for c in about["classes"]] == [1, 2, 3]


def test_writing_twice_gives_the_same_bytes(trained: ConvCapsClassifier, saved: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "again.safetensors", read_model(saved))
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


def test_a_file_from_before_calibration_is_read(saved: Path) -> None:
    old = read_model(altered(saved, lambda meta, about: about.pop("calibration")))
    assert old.calibration is None and old.describe()["calibration"] is None


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, -1])
def test_truncated_files_are_refused(saved: Path, keep: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ModelFileError, match="truncated or of another kind"):
        read_model(saved)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="there is no model file"):
        read_model(tmp_path / "nothing.safetensors")
    with pytest.raises(ModelFileError, match="there is no model file"):
        read_model(tmp_path)
    np.save(tmp_path / "cube.npy", np.zeros((3, 3)))
    with pytest.raises(ModelFileError, match="another kind"):
        read_model(tmp_path / "cube.npy")
    safetensors.torch.save_file({"weight": torch.zeros(3)}, tmp_path / "foreign.safetensors")
    with pytest.raises(ModelFileError, match="not a hypercaps model"):
        read_model(tmp_path / "foreign.safetensors")


def test_pickles_are_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "sprung",)

    torch.save({"x": Trap()}, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError):
        read_model(tmp_path / "model.safetensors")
    assert not (tmp_path / "sprung").exists()


def altered(
    saved: Path,
    change: object,
    *,
    tensors: dict[str, torch.Tensor] | None = None,
    forged_tensors: dict[str, torch.Tensor] | None = None,
    forged: bool = True,
) -> Path:
    """The same file with its description changed, as somebody with an editor would; forged: with a new digest."""
    with safetensors.safe_open(saved, framework="pt") as file:
        metadata = dict(file.metadata())
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    header = json.loads(metadata["hypercaps-model"])
    change(header, header["description"])
    if forged:
        header["digest"] = tensors_digest(arrays | (forged_tensors or {}), header["description"])
    metadata["hypercaps-model"] = json.dumps(header)
    safetensors.torch.save_file(arrays | (forged_tensors or {}) | (tensors or {}), saved, metadata=metadata)
    return saved


@pytest.mark.parametrize(
    "change",
    [
        lambda meta, about: about.update(bands=27),
        lambda meta, about: about.update(method="nothing"),
        lambda meta, about: about["classes"].pop(),
        lambda meta, about: about.update(structure={"class_size": 10**9}),  # terabytes, if it were built
        lambda meta, about: about.update(structure={"no_such": 1}),
        lambda meta, about: about.update(patch=9),
        lambda meta, about: about.pop("recipe"),
        lambda meta, about: about.update(classes="x"),
        lambda meta, about: about.update(bands="many"),
        lambda meta, about: about.update(bands=float("inf")),
        lambda meta, about: about.update(bands=float("nan")),
        lambda meta, about: about.update(bands=10**30),
        lambda meta, about: about.update(patch=float("-inf")),
        lambda meta, about: about.update(patch=10**30),
        lambda meta, about: about.update(patch=True),
        lambda meta, about: about.update(preprocessing=[1]),
        lambda meta, about: about.update(method=["x"]),
        lambda meta, about: about.update(structure={"class_size": float("inf")}),
        lambda meta, about: about.update(partners=7),
        lambda meta, about: meta.update(description=[1]),
        lambda meta, about: about.update(recipe="x"),
        lambda meta, about: about["classes"][2].update(label=40_000),
        lambda meta, about: about["classes"][2].update(label=3.5),
        lambda meta, about: about["classes"][0].update(name=7),
        lambda meta, about: about["classes"][0].update(color=[0, 999, 0]),
        lambda meta, about: about["classes"][0].update(color="a"),
        lambda meta, about: about["calibration"].update(temperature=-1.0),
        lambda meta, about: about["calibration"].update(pixels=float("inf")),
        lambda meta, about: about["calibration"].update(pixels=10**30),
        lambda meta, about: about.update(calibration=[1]),
        lambda meta, about: about["calibration"].pop("pixels"),
    ],
)
def test_descriptions_that_lie_are_refused(saved: Path, change: object) -> None:
    with pytest.raises(ModelFileError, match="does not describe a model") as refusal:
        read_model(altered(saved, change))
    assert "\n" not in str(refusal.value)


def test_class_names_of_a_foreign_file_can_be_shown(saved: Path) -> None:
    model = read_model(altered(saved, lambda meta, about: about["classes"][0].update(name="\x1b[31mwater\x07")))
    assert model.legend.entries[0].name == "[31mwater"


@pytest.mark.parametrize(
    "forged",
    [
        {"whitening.matrix": torch.zeros(26).double()},
        {"whitening.mean": torch.zeros(26, 26).double()},
        {"whitening.mean": torch.zeros(26)},
        {"whitening.matrix": torch.full((26, 26), float("nan")).double()},
        {"wavelengths": torch.zeros(3).double()},
        {"fwhm": torch.zeros(26)},
        {"familiarity.mean": torch.zeros(26)},
        {"familiarity.matrix": torch.zeros(26).double()},
        {"familiarity.matrix": torch.zeros(25, 26).double()},
        {"familiarity.prototypes": torch.zeros(0, 26).double()},
        {"familiarity.prototypes": torch.zeros(3, 25).double()},
        {"familiarity.prototypes": torch.full((3, 26), float("inf")).double()},
        {"familiarity.known": torch.tensor([2.0, 1.0]).double()},
        {"familiarity.known": torch.tensor([-1.0, 1.0]).double()},
        {"familiarity.window": torch.tensor([10**9 + 1])},
        {"familiarity.window": torch.tensor([7.0])},
        {"familiarity.window": torch.tensor([7, 7])},
        {"familiarity.more": torch.zeros(3).double()},
        {"calibration.at": torch.ones(2).double()},
        {"calibration.conformity": torch.full((3,), 2.0).double()},
        {"network.classcaps.viewpoints": torch.zeros(1, 4, 3, 8, 16).double()},
        {"standardising.scale": torch.zeros(26).double()},  # with the description's word for it, below
    ],
)
def test_arrays_that_no_training_gives_are_refused(saved: Path, forged: dict[str, torch.Tensor]) -> None:
    def change(meta: dict[str, object], about: dict[str, object]) -> None:
        if "standardising.scale" in forged:
            about["preprocessing"] = "standardising"  # whose mean is missing

    with pytest.raises(ModelFileError, match="does not describe a model"):
        read_model(altered(saved, change, forged_tensors=forged))


def test_a_file_from_before_there_was_another_preprocessing_still_loads(saved: Path) -> None:
    model = read_model(altered(saved, lambda meta, about: about.pop("preprocessing")))
    assert isinstance(model.preprocessing, PCAWhitening)


def test_another_format_version_is_said(saved: Path) -> None:
    with pytest.raises(ModelFileError, match="model format 4 and this hypercaps reads up to 3"):
        read_model(altered(saved, lambda meta, about: meta.update(format_version=4)))


def test_files_of_the_first_format_still_load(trained: ConvCapsClassifier, saved: Path) -> None:
    """Viewpoint matrices were kept in another order then."""
    viewpoints = trained.model_.network.classcaps.viewpoints.detach()  # (c, a, n, e, d)
    as_before = {"network.classcaps.viewpoints": viewpoints.permute(2, 1, 3, 0, 4).contiguous()}  # (n, a, e, c, d)
    old = altered(saved, lambda meta, about: meta.update(format_version=1), forged_tensors=as_before)
    assert torch.equal(read_model(old).module.classcaps.viewpoints, viewpoints)


def test_changed_weights_are_noticed(saved: Path) -> None:
    with pytest.raises(ModelFileError, match="damaged"):
        read_model(altered(saved, lambda meta, about: None, tensors={"whitening.mean": torch.zeros(26).double()}))


def test_changed_words_are_noticed(saved: Path) -> None:
    with pytest.raises(ModelFileError, match="was altered"):
        read_model(altered(saved, lambda meta, about: about["scores"].update(oa=12.3), forged=False))


@settings(max_examples=60, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_goes_unnoticed_or_crashes(
    trained: ConvCapsClassifier, tmp_path_factory: pytest.TempPathFactory, place: float, bit: int
) -> None:
    path = tmp_path_factory.mktemp("flip") / "model.safetensors"
    trained.save(path)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    try:
        model = read_model(path)
    except ModelFileError:
        return
    # What the arrays hold is intact; only words of the description can have changed.
    for key, value in trained.model_.network.state_dict().items():
        assert torch.equal(model.module.state_dict()[key], value)

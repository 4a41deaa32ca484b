"""How a scene differs from the one that a model was trained on, and what to do about it.

Compared are the mean spectra, in standard deviations of the training scene's bands. A change of light or calibration
moves the spectra of all ground alike: the new mean is a factor times the old one plus a constant. Other ground differs
in shape. Measured on EnMAP tiles of one scene (132 pairs): a factor and a constant leave 0.08 standard deviations or
more in 95 % of the pairs, and hardly anything where only the light has changed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from hypercaps.data.adaptation import Adaptation, FilledBand, check_mode
from hypercaps.data.median import median
from hypercaps.data.resampling import is_shifted, usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.data.statistics import BandSample, SceneStatistics, sample_bands
from hypercaps.errors import ModelFileError, SceneError, warn_data
from hypercaps.inference.model import TrainedModel
from hypercaps.models.descriptions import get_description

Array = npt.NDArray[np.float64]

_NEED_STATISTICS = ("mean", "standardise")  # adaptations that are refused without them
LEAST_PIXELS = 100  # valid ones, for statistics of a scene
_SAME = 0.05  # standard deviations: nothing to report
_FAR = 1.5  # standard deviations: scores and confidence of the training scene are not claimed any more
_LIGHT = 0.05  # standard deviations that a change of light may leave
_LIGHT_SHARE = 0.15  # of the whole difference
_ANOTHER_UNIT = 1.5  # orders of magnitude
_NEIGHBOURS = 8  # bands that a bad one is estimated from
_RIDGE = 1e-6  # share of the variance
_MOST_BAD = 0.05  # share of the bands that may be estimated, or three


_UNCHANGED = Adaptation()


@dataclass(frozen=True)
class SceneShift:
    """The difference between a scene and a model's training scene."""

    bad_bands: tuple[int, ...] = ()  # constant, or far from what their neighbours are: counted from 0
    unit: float = 1.0  # power of ten by which the values are larger
    gain: float = 1.0  # factor of the mean spectrum, in the training scene's unit
    offset: float = 0.0  # summand, as a share of the training scene's mean value
    distance: float = 0.0  # between the mean spectra, in standard deviations of the bands, in the same unit
    rest: float = 0.0  # what gain and offset leave of it

    @property
    def is_light(self) -> bool:
        """Whether it looks like another illumination or calibration of the same ground."""
        return self.distance > _SAME and self.rest <= min(_LIGHT, _LIGHT_SHARE * self.distance)

    @property
    def is_far(self) -> bool:
        return self.distance > _FAR and not self.is_light

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"bad_bands": [band + 1 for band in self.bad_bands]}  # counted from 1, as in messages


@dataclass(frozen=True)
class PreparedScene:
    """A scene as a model is to see it."""

    scene: Scene
    adaptation: Adaptation = _UNCHANGED
    shift: SceneShift | None = None  # None: the model has no statistics, or the scene too few pixels
    is_resampled: bool = False  # to the model's bands
    findings: tuple[str, ...] = ()  # what differs and what was done, in sentences
    is_claimed: bool = True  # False: accuracy and confidence of the training scene can't be expected
    unchecked: str = ""  # why there is no comparison with the training scene

    @classmethod
    def of(cls, scene: Scene | PreparedScene) -> PreparedScene:
        """A scene that is to be taken as it is, or that is prepared already."""
        return scene if isinstance(scene, PreparedScene) else cls(scene)

    @property
    def tag(self) -> str:
        """The findings for the metadata of a map."""
        return " ".join((*self.findings, *([f"not checked: {self.unchecked}"] if self.unchecked else []))) or "none"


def prepare_scene(model: TrainedModel, scene: Scene, how: str = "auto", *, resample: bool = False) -> PreparedScene:
    """The scene as the model is to see it; warns of what differs from the training scene."""
    prepared = compare_scene(model, scene, how, resample=resample)
    for finding in prepared.findings:
        warn_data(finding)
    return prepared


def compare_scene(model: TrainedModel, scene: Scene, how: str = "auto", *, resample: bool = False) -> PreparedScene:
    """Compare a scene with the training scene of the model and adapt it.

    Bad bands are estimated from their neighbours in any case. ``how`` is "none"; "mean", which moves the mean of the
    scene to that of the training scene; "standardise", which also scales each band to its standard deviation; or
    "auto", which undoes a change of unit, and one of light or calibration if the rest of the difference is small. With
    ``resample`` it is resampled to the model's bands.
    """
    check_mode(how)
    is_offset = not resample and is_beside(model, scene)
    waves = _numbers(model.wavelengths) if is_offset else ()
    findings_of_bands = (_beside_sentence(model, scene),) if is_offset else ()
    if resample:
        scene = model.resampled(scene)
    bands = Adaptation(wavelengths=waves)
    scene = bands.apply(scene)
    unchanged = PreparedScene(scene, bands, is_resampled=resample, findings=findings_of_bands)
    model.check_fits(scene)
    if model.statistics is None:
        if how in _NEED_STATISTICS:
            raise ModelFileError(
                f"--adapt {how} needs statistics of the training scene, which this model file is too old to have: "
                "train it again"
            )
        return replace(unchanged, unchecked="the model file is too old to have statistics of its training scene")
    sample = sample_bands(scene, least=LEAST_PIXELS)
    if sample is None:
        few = f"fewer than {LEAST_PIXELS} valid pixels"
        if how in _NEED_STATISTICS:
            raise SceneError(f"scene {scene.name!r} has {few} in its sample, too few for --adapt {how}: leave it out")
        return replace(unchanged, unchecked=few)
    shift = compare(model.statistics, sample)
    _check_bad_bands(scene, shift)
    adaptation = replace(_adaptation(model.statistics, sample, shift, how), wavelengths=waves)
    findings = (*findings_of_bands, *_sentences(model, scene, shift, how))
    claimed = how in _NEED_STATISTICS or (not shift.is_far and (shift.unit == 1 or how == "auto"))
    return PreparedScene(adaptation.apply(scene), adaptation, shift, resample, findings, claimed)


def compare(trained: SceneStatistics, sample: BandSample) -> SceneShift:
    """The difference between the training scene and another one, from their statistics."""
    alive = trained.deviation > 0
    constant = alive & sample.is_constant
    good = alive & ~constant
    if not good.any():
        return SceneShift(tuple(np.flatnonzero(constant).tolist()))
    unit = _unit(trained.mean[good], sample.mean[good])
    scaled = sample.mean / unit
    gain, offset = _gain_and_offset(trained, scaled, good)
    absurd = good & _is_out_of_range(trained, scaled)
    if gain > 0:  # unless that is the light
        absurd &= _is_out_of_range(trained, (scaled - offset) / gain)
    bad, good = constant | absurd, good & ~absurd
    if absurd.any() and good.any():
        gain, offset = _gain_and_offset(trained, scaled, good)
    level = float(np.abs(trained.mean).mean()) or 1.0
    mean, deviation = trained.mean[good], trained.deviation[good]
    distance = _root_mean_square((scaled[good] - mean) / deviation)
    rest = _root_mean_square((scaled[good] - gain * mean - offset) / deviation)
    return SceneShift(tuple(np.flatnonzero(bad).tolist()), unit, gain, offset / level, distance, rest)


def _unit(trained: Array, new: Array) -> float:
    """The power of ten between two mean spectra, if they are orders of magnitude apart."""
    usable = (trained != 0) & (new != 0)
    if not usable.any():
        return 1.0
    orders = median(np.log10(np.abs(new[usable] / trained[usable])))
    return 10.0 ** round(orders) if abs(orders) >= _ANOTHER_UNIT else 1.0


def _gain_and_offset(trained: SceneStatistics, mean: Array, good: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Least squares fit of mean = gain * trained mean + offset, each band in its standard deviations."""
    weights = 1 / trained.deviation[good]
    design = np.stack([trained.mean[good] * weights, weights], axis=1)
    (gain, offset), *_ = np.linalg.lstsq(design, mean[good] * weights, rcond=None)
    return float(gain), float(offset)


def _is_out_of_range(trained: SceneStatistics, mean: Array) -> npt.NDArray[np.bool_]:
    """Which bands (n,) have a mean that no single pixel of the training scene has come near to."""
    width = np.maximum(trained.highest - trained.lowest, np.abs(trained.mean))
    return np.asarray((mean < trained.lowest - width) | (mean > trained.highest + width))


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def _adaptation(trained: SceneStatistics, sample: BandSample, shift: SceneShift, how: str) -> Adaptation:
    """What the mode does about the shift; bad bands are filled in any case."""
    filled = tuple(_fill(trained, band, shift.bad_bands) for band in shift.bad_bands)
    if how == "none" or (how == "auto" and shift.unit == 1 and not shift.is_light):
        return Adaptation(filled=filled)
    scale = np.ones(trained.bands)
    if how == "auto":
        level = float(np.abs(trained.mean).mean()) or 1.0
        gain, offset = (shift.gain, shift.offset * level) if shift.is_light else (1.0, 0.0)
        scale /= gain * shift.unit
        return Adaptation(_numbers(scale), _numbers(np.full(trained.bands, -offset / gain)), filled)
    if how == "standardise":
        usable = (sample.deviation > 0) & (trained.deviation > 0)
        scale[usable] = trained.deviation[usable] / sample.deviation[usable]
    return Adaptation(_numbers(scale), _numbers(trained.mean - sample.mean * scale), filled)


def _fill(trained: SceneStatistics, band: int, bad: tuple[int, ...]) -> FilledBand:
    """The band as the best linear estimate from its nearest good bands, by the training scene's covariance.

    Interpolation fails at the edge of an absorption, where the spectrum bends: with one band at 937 nm interpolated,
    OA on Indian Pines falls from 99.5 to 82.5.
    """
    good = np.setdiff1d(np.flatnonzero(trained.deviation > 0), bad)
    near = np.sort(good[np.argsort(np.abs(good - band), kind="stable")[:_NEIGHBOURS]])
    among = trained.covariance[np.ix_(near, near)]
    ridge = _RIDGE * np.diag(among.diagonal())  # neighbouring bands are almost the same
    weights = np.linalg.solve(among + ridge, trained.covariance[near, band])
    constant = float(trained.mean[band] - weights @ trained.mean[near])
    return FilledBand(band, tuple(near.tolist()), _numbers(weights), constant)


def _numbers(values: Array | None) -> tuple[float, ...]:
    return () if values is None else tuple(values.tolist())


def is_beside(model: TrainedModel, scene: Scene) -> bool:
    """Whether the scene's bands are offset by less than a band from those of a model that is robust to such offsets."""
    ours, theirs = usable_wavelengths(model.wavelengths), usable_wavelengths(scene.wavelengths)
    robust = all(get_description(one.method).recipe(one.recipe.name).whitening == "robust" for one in model.members)
    return ours is not None and theirs is not None and robust and is_shifted(ours, theirs)


def _beside_sentence(model: TrainedModel, scene: Scene) -> str:
    by = median(np.abs(np.asarray(scene.wavelengths) - np.asarray(model.wavelengths)))
    return (
        f"The bands of scene {scene.name!r} lie about {by:.1f} nm beside the model's and are taken for them: expect a "
        "lower accuracy, or try --resample."
    )


def _check_bad_bands(scene: Scene, shift: SceneShift) -> None:
    if len(shift.bad_bands) > max(3, int(_MOST_BAD * scene.bands)):
        raise SceneError(
            f"{len(shift.bad_bands)} of the {scene.bands} bands of scene {scene.name!r} are constant or out of range "
            f"({_band_names(scene, shift.bad_bands)}), too many to estimate: check the file, or train a model "
            "without them (docs/new-scenes.md)"
        )


def _sentences(model: TrainedModel, scene: Scene, shift: SceneShift, how: str) -> tuple[str, ...]:
    sentences = []
    name, trained_on = f"scene {scene.name!r}", f"the training scene {model.scene!r}"
    if bad := shift.bad_bands:
        words = "is constant or out of range and is" if len(bad) == 1 else "are constant or out of range and are"
        bands = "Band" if len(bad) == 1 else "Bands"
        sentences.append(f"{bands} {_band_names(scene, bad)} of {name} {words} estimated from neighbouring bands.")
    if shift.unit != 1:
        times = f"{shift.unit:,.0f} times" if shift.unit > 1 else f"1/{1 / shift.unit:,.0f} of"
        done = "they are converted" if how == "auto" else "--adapt auto converts them"
        sentences.append(f"The values of {name} are about {times} those of {trained_on}, as in another unit: {done}.")
    if shift.is_light:
        done = {
            "auto": "this is undone (--adapt auto)",
            "none": "--adapt auto undoes it",
            "mean": "its mean is moved to that of the training scene (--adapt mean)",
            "standardise": "its bands are scaled to those of the training scene (--adapt standardise)",
        }[how]
        sentences.append(
            f"All of {name} is {_light(shift)} compared with {trained_on}, as by light or calibration: {done}."
        )
    elif shift.distance > _SAME:
        far = f"by {shift.distance:.1f} standard deviations, a factor and an offset leave {shift.rest:.1f}"
        if shift.is_far:
            sentences.append(
                f"The mean spectrum of {name} differs from that of {trained_on} {far}: this is other ground or another "
                "season, and accuracy and confidence of the training scene can't be expected."
            )
        elif how in ("mean", "standardise"):
            sentences.append(
                f"The mean spectrum of {name} differs from that of {trained_on} {far}; --adapt {how} removes it."
            )
    return tuple(sentences)


def _light(shift: SceneShift) -> str:
    words = []
    if abs(shift.gain - 1) >= 0.005:
        words.append(f"{abs(shift.gain - 1):.0%} {'brighter' if shift.gain > 1 else 'darker'}")
    if abs(shift.offset) >= 0.002:
        words.append(f"{'raised' if shift.offset > 0 else 'lowered'} by {abs(shift.offset):.1%} of the mean value")
    return " and ".join(words) or "slightly different"


def _band_names(scene: Scene, bands: tuple[int, ...]) -> str:
    """The first few bands, counted from 1, with their wavelengths."""
    waves = scene.wavelengths
    names = [str(band + 1) + ("" if waves is None else f" ({waves[band]:.0f} nm)") for band in bands[:5]]
    return ", ".join(names) + (f" and {len(bands) - 5} more" if len(bands) > 5 else "")

"""Scenes, labels, maps and scores in a notebook."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.image import imread

from hypercaps import ConvCapsClassifier, Labels, Legend, Scene
from hypercaps.data.display import Displayed
from hypercaps.report import notebook
from support.scenes import make_cube

CUBE, TRUTH = make_cube()
LEGEND = Legend.of(
    [1, 2, 3], ["<b>soil</b>", "water & ice", "$woods$"], {1: (255, 0, 0), 2: (0, 255, 0), 3: (0, 0, 255)}
)
LABELS = Labels.from_array(TRUTH, LEGEND, name="fields")
SCENE = Scene.from_array(CUBE, wavelengths=np.linspace(450, 2400, CUBE.shape[2]), name="tile <7>")


@pytest.fixture(scope="module")
def trained() -> ConvCapsClassifier:
    return ConvCapsClassifier(method="lda").fit(SCENE, LABELS)


@pytest.fixture
def shown(trained: ConvCapsClassifier) -> dict[str, Displayed]:
    return {"scene": SCENE, "labels": LABELS, "map": trained.map(SCENE), "scores": trained.scores_}


@pytest.fixture(autouse=True)
def _without_a_window() -> object:
    matplotlib.use("Agg")
    yield
    pyplot.close("all")


def picture_in(html: str) -> np.ndarray:
    """The picture (h, w, 3) that is embedded in a page, 0 to 1."""
    found = re.search(r'src="data:image/png;base64,([^"]+)"', html)
    assert found is not None
    return np.asarray(imread(io.BytesIO(base64.b64decode(found.group(1))), format="png"))[..., :3]


def test_a_scene_shows_its_picture_size_and_wavelengths() -> None:
    html = SCENE._repr_html_()
    assert "36 × 36 pixels, 26 bands" in html and "450 to 2400 nm" in html and "tile &lt;7&gt;" in html
    picture = picture_in(html)
    assert picture.shape == (36, 36, 3) and picture.std() > 0.1
    assert "<script" not in html and "http" not in html


def test_labels_and_maps_show_classes_names_colours_and_numbers(shown: dict[str, Displayed]) -> None:
    for name, classes in (("labels", TRUTH), ("map", shown["map"].classes)):  # type: ignore[attr-defined]
        html = shown[name]._repr_html_()
        assert "&lt;b&gt;soil&lt;/b&gt;" in html and "water &amp; ice" in html and "#00ff00" in html
        assert f">{(classes == 2).sum()}<" in html
        picture = picture_in(html)
        np.testing.assert_array_equal(picture[classes == 3], [[0, 0, 1]] * int((classes == 3).sum()))


def test_scores_are_a_table(shown: dict[str, Displayed], trained: ConvCapsClassifier) -> None:
    html = shown["scores"]._repr_html_()
    assert f"{trained.scores_.oa:.1f} %" in html and "water &amp; ice" in html and f">{trained.scores_.n_test}<" in html


@pytest.mark.parametrize("name", ["scene", "labels", "map", "scores"])
def test_plot_gives_axes_and_takes_them(shown: dict[str, Displayed], name: str) -> None:
    ax = shown[name].plot()
    assert isinstance(ax, Axes) and len(ax.images) == 1
    ax.figure.canvas.draw()  # names with a "$" are no formula
    own = pyplot.figure().add_subplot()
    assert shown[name].plot(own) is own and len(own.images) == 1


def test_axes_count_rows_and_columns_of_a_scene_that_is_thinned() -> None:
    large = Labels.from_array(np.tile([[1, 2]], (40, 2000)))
    ax = large.plot()
    assert ax.get_xlim() == (-0.5, 3999.5) and ax.get_ylim() == (39.5, -0.5)
    assert ax.images[0].get_array().shape[1] < 4000
    assert "not labelled" not in [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_confusion_matrix_is_in_percent_of_the_true_class(trained: ConvCapsClassifier) -> None:
    drawn = np.asarray(trained.scores_.plot().images[0].get_array())
    np.testing.assert_allclose(drawn.sum(axis=1), 100)


def test_a_large_scene_is_not_read_for_a_picture_that_nobody_asked_for() -> None:
    def refuse(rows: slice, cols: slice) -> None:
        raise AssertionError("the scene was read")

    scene = Scene((100_000, 100_000, 200), np.dtype(np.float32), refuse, name="large")  # type: ignore[arg-type]
    html = scene._repr_html_()
    assert "100000 × 100000 pixels" in html and "<img" not in html and "plot() reads it" in html


def test_only_the_bands_of_the_picture_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_THUMBNAIL", 12)

    class Watched(np.ndarray):
        taken: set[int] = set()  # noqa: RUF012

        def __getitem__(self, item: object) -> np.ndarray:
            found = np.asarray(super().__getitem__(item))
            if isinstance(item, tuple) and len(item) == 3:
                Watched.taken |= set(np.atleast_1d(item[2]).tolist())
            return found.view(Watched)

    scene = Scene.from_array(CUBE.view(Watched))
    assert picture_in(scene._repr_html_()).shape == (12, 12, 3)
    assert len(Watched.taken) == 3


def test_nothing_is_drawn_before_it_is_asked_for() -> None:
    code = (
        "import sys\nimport numpy as np\nfrom hypercaps import Labels, Scene\n"
        "Scene.from_array(np.zeros((2, 2, 3))), Labels.from_array([[1, 2]])\n"
        "import hypercaps.inference.class_map, hypercaps.inference.metrics\n"
        "print(sorted({'matplotlib', 'jinja2', 'xarray', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_labels_are_described_in_one_line_on_a_terminal() -> None:
    labels = Labels.from_array([[0, 1, 1], [7, 7, 7]], name="fields")
    assert repr(labels) == "<Labels 'fields': 2 x 3 pixels, 5 labelled, 2 classes>"


def test_scores_are_described_in_one_line_on_a_terminal(trained: ConvCapsClassifier) -> None:
    assert trained.scores_ is not None
    shown = repr(trained.scores_)
    # With intervals, as everywhere beside an accuracy.
    assert shown.startswith(f"<Scores: OA {trained.scores_.oa:.1f} % (") and "\n" not in shown and len(shown) < 160

"""Requests of the page, checked by their types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

View = Annotated[tuple[int, int, int, int], Field(strict=False)]  # r0, r1, c0, c1; JSON has lists


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class StepRequest(_Strict):
    """Undo or redo; the same ``step`` again has no effect."""

    step: Annotated[str, Field(max_length=100)] = ""


class ClassRequest(_Strict):
    action: str
    id: int | None = None
    into: int | None = None
    name: Annotated[str, Field(max_length=1000)] | None = None
    color: Annotated[str, Field(max_length=100)] | None = None
    key: Annotated[str, Field(max_length=100)] | None = None


class StrokeRequest(_Strict):
    stroke: Annotated[str, Field(min_length=1, max_length=100)]
    class_: Annotated[int, Field(alias="class", ge=0, le=254)]
    tool: Literal["brush", "eraser", "line", "polygon", "contour", "point", "wand", "suggestion"]
    spans: list[Annotated[list[int], Field(min_length=3, max_length=3)]]


class OptionsRequest(_Strict):
    method: Annotated[str, Field(max_length=100)] | None = None
    recipe: Annotated[str, Field(max_length=100)] | None = None
    split: Annotated[str, Field(max_length=100)] | None = None
    auto: bool | None = None

    def chosen(self) -> dict[str, Any]:
        """What the request names."""
        given = {name: getattr(self, name) for name in self.model_fields_set & {"method", "recipe", "split", "auto"}}
        return {name: value for name, value in given.items() if value is not None}


class TrainingRequest(OptionsRequest):
    view: View | None = None


class ViewRequest(_Strict):
    view: View


class ExportRequest(_Strict):
    training: Annotated[str, Field(max_length=40)] | None = None

"""A digest of arrays or tensors and their description, by which files of them are checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor


def tensors_digest(arrays: Mapping[str, Tensor | npt.NDArray[np.generic]], about: Mapping[str, object]) -> str:
    """SHA-256 of the description and of the names, types, shapes and bytes of the arrays."""
    sha = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for key in sorted(arrays):
        given = arrays[key]
        array = given if isinstance(given, np.ndarray) else given.detach().cpu().numpy()
        sha.update(f"{key} {array.dtype} {array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()

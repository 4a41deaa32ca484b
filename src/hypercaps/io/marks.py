"""First bytes by which files are recognised, apart from the readers: a reader is imported for files of its format."""

from __future__ import annotations

CLASSIC_MARKS = (b"CDF\x01", b"CDF\x02", b"CDF\x05")  # NetCDF before version 4
HDF5_MARK = b"\x89HDF\r\n\x1a\n"
NUMPY_MARK = b"\x93NUMPY"
PNG_MARK = b"\x89PNG\r\n\x1a\n"
TIFF_MARKS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")  # both byte orders; with a plus: BigTIFF
VRT_MARK = b"<VRTDataset"  # not read: GDAL opens the files that it names
ZIP_MARK = b"PK\x03\x04"

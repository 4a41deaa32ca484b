"""Everything that is written: atomic files, rasters, run folders."""

"""Windows and runs on more than one process or machine, by dask.distributed."""

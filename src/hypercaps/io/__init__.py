"""Reading and writing files: the only package that knows file formats and paths."""

"""The only room that knows file formats and touches paths."""

"""One file per method; ``registry`` lists them with their training recipes."""

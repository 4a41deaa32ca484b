"""One file a method; ``registry`` lists them with their training recipes."""

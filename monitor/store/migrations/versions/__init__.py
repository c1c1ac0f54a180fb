"""One file per change of the schema, released ones frozen."""

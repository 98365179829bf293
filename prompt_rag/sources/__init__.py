"""Where notes come from: one module a kind of source."""

"""Drawing from a trained model: it is known by what it can do, never by name."""

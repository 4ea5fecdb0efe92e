"""Whether a model may be relied upon, and how it is made with care: without gathering what people would rather keep."""

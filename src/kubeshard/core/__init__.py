"""Object model: kinds, metadata, selectors, patches, resource versions, errors by cause. No I/O, no clocks, no randomness."""

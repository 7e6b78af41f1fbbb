"""Guards, the sources that they load, and the profile of earlier calls."""

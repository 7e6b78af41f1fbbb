"""Cases of attention, by module."""

"""Independent references that the tests compare the package with."""

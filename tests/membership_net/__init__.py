"""A configuration service and its clients on a made-up network, for the tests of membership."""

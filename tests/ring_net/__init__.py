"""Token rings on a made-up network, for the tests of rings."""

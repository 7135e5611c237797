"""For all tests."""

import signal

# A shell that starts us in the background lets us and all that we start ignore Ctrl-C; tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

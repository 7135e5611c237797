"""Streams: the frames of one sender into one region view, in one numbering, whatever the groups.

Design note: `docs/design/streams.md`. On the way out: `feed` numbers the messages of a group, `region_sender` has the
window and what waits for it, `pacer` its rate. On the way in: `runs` finds where frames go, `stream_receiver` has what
came and what is missing, `sender_fifo` puts the streams of a sender in order, `receiver` has all senders. `marks` is
what a sender tells inside its stream, `taps` is how other protocols see frames.
"""

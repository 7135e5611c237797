"""The receiving side of QSM: streams of senders, FIFO across views, the channels to listen on."""

"""The sending side of QSM: which stream seals next, frames for several streams, control frames."""

"""The sending side of QSM: feeds of groups, streams into region views, windows, dissemination."""

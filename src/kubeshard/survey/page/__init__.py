"""A live ring as a page for browsers of this machine, without anything from elsewhere.

Guaranteed: every browser gets the same picture as a terminal does; it is read-only; answers go to requests for this
very address only, so no other page that the browser has open can have a name point here and read them. Not guaranteed:
that other users of this machine do not look; who has the port has the picture.
"""

"""A live ring as a web page for browsers on this machine.

Guaranteed: every browser shows the same picture as a terminal. The page is read-only and loads nothing from elsewhere.
Only requests for exactly this address are answered, so no other page in the browser can read the answers through DNS
rebinding. Not guaranteed: privacy from other users of this machine; anyone who can connect to the port sees the
picture.
"""

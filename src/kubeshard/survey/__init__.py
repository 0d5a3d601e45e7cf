"""What a ring looks like from outside: who its shards are, which objects they have, why, and what would move.

Guaranteed: nothing is written but by `leaving`; every decision that is told is made by the sharder's own code, of what
the API server shows; memory does not grow with the number of objects, but for one integer each in a live picture. It
works with any sharder of the wire contract. Not guaranteed: that nothing changes between two reads of one survey.
"""

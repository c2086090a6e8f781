"""Capture: from the hook's note, the sweep or the past to segments, with what is private left out.

``spool`` reads notes, ``files`` finds transcripts, ``privacy`` decides on lines, ``tail`` makes segments, ``engine``
moves watermarks through a sink, ``drain`` waits and acknowledges.
"""

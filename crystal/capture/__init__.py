"""Capture: read new transcript lines, leave out private ones, remove secrets, and pass segments to a sink.

``spool`` reads notes, ``files`` finds transcripts, ``privacy`` decides on lines, ``tail`` makes segments, ``engine``
moves watermarks through a sink, ``drain`` waits and acknowledges.
"""

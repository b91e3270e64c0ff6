"""The controller: one typed method for each call, and delegation tokens.

Not public.
"""

"""What every room uses: argument checks, nurseries, secrets kept out of texts, warnings about trouble.

Not public.
"""

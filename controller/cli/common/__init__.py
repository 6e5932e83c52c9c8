"""Shared by several commands: options, output, confirmation, requests to the controller, dry runs, progress.

Not here: commands.
"""

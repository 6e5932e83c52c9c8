"""What several commands share: options, output, confirmation, requests to the controller, dry runs, progress.

Not here: commands.
"""

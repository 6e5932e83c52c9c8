"""What several commands share: options, output, confirmation, dry runs.

Not here: commands.
"""

"""``pctl``, a module for each command or a few of them: ``main.VERBS``.

Not here: what several commands share (``controller.cli.common``), the examples of their help
(``controller.cli.pctl_examples``), what is computed where no controller answers (``controller.cli.computed``).
"""

"""A bound on work whose size a caller chooses."""

from dataclasses import dataclass


class BudgetExceededError(Exception):
    """The work is larger than it may be; whoever set the budget says so in words."""


@dataclass(slots=True)
class Budget:
    """What may still be spent, in whatever unit its owner counts."""

    left: int

    def spend(self, amount: int = 1) -> None:
        """Take from what is left.

        Raises:
            BudgetExceededError: there was less.
        """
        self.left -= amount
        if self.left < 0:
            raise BudgetExceededError

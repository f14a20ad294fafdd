"""Muon: momentum whose matrices are made orthogonal before they are taken off the weights (Jordan et al. 2024).

Norms and the embedding are not for it: they stay with AdamW.
"""

import torch

# Coefficients of the quintic iteration; it brings singular values to about one in five steps.
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5


def orthogonal(stack):
    """The nearest orthogonal matrices, roughly; `[count, rows, columns]` with no more rows than columns."""
    x = stack.bfloat16()
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) * 1.02 + 1e-7).bfloat16()
    for _ in range(STEPS):
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=B, alpha=C), x, beta=A)
    return x.float()


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices, lr, momentum=.95, weight_decay=0.):
        super().__init__(list(matrices), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            # Those of one shape go together: one product of many is far cheaper than many products.
            alike = {}
            for weights in group["params"]:
                mean = self.state[weights].setdefault("momentum", torch.zeros_like(weights))
                mean.lerp_(weights.grad, 1 - group["momentum"])
                aim = weights.grad.lerp(mean, group["momentum"])
                alike.setdefault(tuple(sorted(aim.shape)), []).append((weights, aim if aim.shape[0] <= aim.shape[1] else aim.t()))
            for same in alike.values():
                for (weights, _), aim in zip(same, orthogonal(torch.stack([aim for _, aim in same]))):
                    weights.mul_(1 - group["lr"] * group["weight_decay"])
                    scale = max(1., weights.shape[0] / weights.shape[1]) ** .5
                    weights.add_(aim if aim.shape == weights.shape else aim.t(), alpha=-group["lr"] * scale)

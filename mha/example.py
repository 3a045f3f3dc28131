"""The running example: three tokens in small whole numbers, followed through the chapters.

Every number is small enough to check with a pencil. Weight matrices are stored as the formula
X W reads them, [in, out]; `torch.nn.Linear` stores the transpose.

>>> Q = X @ W_Q
>>> Q.tolist()
[[0.0, 2.0, 0.0, 2.0], [2.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 0.0]]
"""

import torch

TOKENS = ["cat", "sat", "mat"]

X = torch.tensor([[0, 0, 2, 0],
                  [0, 2, 0, 0],
                  [1, 0, 0, 1]]).float()  # T D = 3 4

W_Q = torch.tensor([[0, 0, 1, 0],
                    [1, 0, 0, 1],
                    [0, 1, 0, 1],
                    [0, 1, 1, 0]]).float()  # D D = 4 4

W_K = torch.tensor([[0, 0, 1, 0],
                    [0, 1, 0, 0],
                    [1, 0, 0, 0],
                    [0, 0, 1, 1]]).float()  # D D = 4 4

W_V = torch.tensor([[0, 1, 0, 0],
                    [0, 1, 1, 0],
                    [1, 0, 0, 1],
                    [1, 0, 0, 0]]).float()  # D D = 4 4

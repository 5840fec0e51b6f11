"""A character GPT with four layers of width 64."""
import torch
import torch.nn.functional as F
from torch import nn
from training import main, text_pieces


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.in_projection, self.out_projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.in_projection(self.norm_attention(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out_projection(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    def __init__(self, letters, length, width=64, layers=4, heads=4):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.read = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, text):
        x = self.letter(text) + self.place.weight[: text.shape[1]]
        return self.read(self.norm(self.blocks(x)))


def make(batch=4, length=48):
    letters, draw = text_pieces(batch, length)
    model = GPT(letters, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step():
        pieces = draw()
        loss = F.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


if __name__ == "__main__":
    main(make, "small GPT")

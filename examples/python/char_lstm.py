"""A character model. Its LSTM cell is written in small operations, so that a step is some thousand small nodes."""
import torch
import torch.nn.functional as F
from torch import nn
from training import main, text_pieces


class Cell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.of_input = nn.Linear(inputs, 4 * hidden)
        self.of_state = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x, hidden, memory):
        take, forget, update, give = (self.of_input(x) + self.of_state(hidden)).chunk(4, dim=1)
        memory = forget.sigmoid() * memory + take.sigmoid() * update.tanh()
        return give.sigmoid() * memory.tanh(), memory


class CharacterModel(nn.Module):
    def __init__(self, letters, width=32):
        super().__init__()
        self.embed = nn.Embedding(letters, 16)
        self.cell = Cell(16, width)
        self.read = nn.Linear(width, letters)

    def forward(self, text):
        hidden = memory = torch.zeros(len(text), self.cell.of_state.in_features)
        scores = []
        for letter in self.embed(text).unbind(1):
            hidden, memory = self.cell(letter, hidden, memory)
            scores.append(self.read(hidden))
        return torch.stack(scores, 1)


def make(batch=16, length=40):
    letters, draw = text_pieces(batch, length)
    model = CharacterModel(letters)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step():
        pieces = draw()
        scores = model(pieces[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, step


if __name__ == "__main__":
    main(make, "character LSTM")

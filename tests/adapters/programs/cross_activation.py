"""Choose the function of the scores."""

import torch
from sentence_transformers import CrossEncoder

pairs = [["Who?", "Chen saw Dario."], ["Who?", "a"], ["Where is the house?", "The blue house is in Quito."]]
model = CrossEncoder("cross-encoder", activation_fn=torch.nn.Identity())
print(model.predict(pairs), model.predict(pairs, activation_fn=torch.nn.Tanh()))
print(model.predict(pairs, convert_to_tensor=True), model.predict(pairs, convert_to_numpy=False)[2].item())

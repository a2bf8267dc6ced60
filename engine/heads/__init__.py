"""Turn the token vectors of an encoder into answers: one file a task, and the steps that all of them run."""

from .answers import Answering as Answering
from .answers import answer as answer
from .classify import classify as classify
from .late import encode_tokens as encode_tokens
from .late import encode_tokens_by_head as encode_tokens_by_head
from .pairs import check_pairs as check_pairs
from .pairs import check_ranks as check_ranks
from .pairs import is_pair as is_pair
from .pairs import order as order
from .pairs import pair_logits as pair_logits
from .pairs import pair_scores as pair_scores
from .runner import HeadRunner as HeadRunner
from .runner import check_choice as check_choice
from .sparse import SparseVectors as SparseVectors
from .sparse import encode_sparse as encode_sparse
from .sparse import encode_tokens_sparsely as encode_tokens_sparsely
from .tokens import STRATEGIES as STRATEGIES
from .tokens import WORDS as WORDS
from .tokens import Tagging as Tagging
from .tokens import tag as tag
from .words import fill_mask as fill_mask
from .words import target_ids as target_ids

"""Turn token ids into vectors, and sentences into one vector each."""

from . import other_names as other_names
from .call import PLAIN as PLAIN
from .call import Call as Call
from .call import calling as calling
from .maxsim import are_of_tokens as are_of_tokens
from .maxsim import maxsim as maxsim
from .maxsim import pairwise_maxsim as pairwise_maxsim
from .similarity import packed_pairwise as packed_pairwise
from .similarity import packed_precision as packed_precision
from .similarity import packed_similarity as packed_similarity
from .similarity import pairwise_similarity as pairwise_similarity
from .similarity import similarity as similarity
from .text_encoder import ROLE_PROMPTS as ROLE_PROMPTS
from .text_encoder import TextEncoder as TextEncoder
from .text_encoder import check_options as check_options
from .text_encoder import role_prompt as role_prompt
from .vector_precision import quantize_vectors as quantize_vectors

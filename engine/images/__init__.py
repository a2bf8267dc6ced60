"""Turn images (files, bytes, images of Pillow and arrays) into the pixels that a model reads.

inputs.py tells images from texts and holds those of a call, sources.py opens them, and pixels.py makes the numbers.
"""

from .inputs import Images as Images
from .inputs import begins_with_image as begins_with_image
from .inputs import is_image as is_image
from .inputs import read_images as read_images
from .inputs import refuse_image_among_texts as refuse_image_among_texts
from .inputs import warn_of_paths as warn_of_paths
from .sources import size_of as size_of

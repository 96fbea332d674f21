"""Triton kernels: the sum rule and the delta rule with a feature map inside, so that features stay out of the device's memory.

`table` says which shapes they take and imports no Triton; everything else needs it (extra `cuda`). With
TRITON_INTERPRET=1 in the environment before the first import they run on any processor, slowly: that is how they are tested.
"""

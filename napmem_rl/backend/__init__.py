"""The distributed backend: the only package that imports ray, verl and vllm."""

"""What the published pipeline uses of diffusers: a scheduler that keeps its latents, a network that predicts no noise."""

import types

import numpy as np


class LMSDiscreteScheduler:
    def __init__(self, **_kwargs):
        self.sigmas = np.ones(1, np.float32)

    def set_timesteps(self, n):
        self.timesteps = np.arange(n, 0, -1)

    def scale_model_input(self, latents, _step):
        return latents

    def step(self, noise, _step, latents):
        return types.SimpleNamespace(prev_sample=latents - noise)


class UNet2DConditionModel:
    in_channels = 4

    @classmethod
    def from_pretrained(cls, name, **_kwargs):
        return cls()

    def to(self, _device):
        return self

    def __call__(self, latents, _step, encoder_hidden_states):
        # So small that fifty steps keep an image, and so large that the text shows in it.
        noise = latents * 0 + np.float32(1e-4) * encoder_hidden_states.mean(axis=(1, 2)).reshape(-1, 1, 1, 1)
        return types.SimpleNamespace(sample=noise)

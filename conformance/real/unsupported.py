"""Repositories of backends that do not exist here, whose models are refused for that reason, and pages without one."""

from repository import Repository


class Unsupported(Repository):
    """Every model of the repository names a backend that is not there, or needs one that does."""

    backend = ""

    @property
    def refusal(self):
        return f"needs backend '{self.backend}'"

    def place(self, to):
        if self.root():
            super().place(to)
            for config in to.glob("*/config.pbtxt"):
                (config.parent / "1").mkdir(exist_ok=True)  # as the pages have it made
            return
        (to / "model/1").mkdir(parents=True)
        (to / "model/config.pbtxt").write_text(f'backend: "{self.backend}"\n')
        self.differs.append("a config.pbtxt of our own")


def of(source, backend, published, models="."):
    """A class of one repository."""
    return type(published, (Unsupported,), {"source": source, "backend": backend, "published": published, "models": models})


def without(published, why):
    """A class of a tutorial without a separate repository."""
    return type(published, (Repository,), {"published": published, "page": why})


GUIDES = "Popular_Models_Guide/"

LIST = (
    of("tutorials", "vllm", "Feature_Guide/Speculative_Decoding/vLLM", "model_repository"),
    of("tutorials", "vllm", GUIDES + "Llama2/llama2vllm", ".."),
    of("tutorials", "tensorrtllm", GUIDES + "Llava1.5", "model_repository"),
    of("tutorials", "diffusion", GUIDES + "StableDiffusion", "diffusion-models"),
    without("Conceptual_Guide/Part_3-optimizing_triton_configuration", "it measures part 2"),
    without("Conceptual_Guide/Part_8-semantic_caching", "it changes vLLM's backend"),
    without("Quick_Deploy/vLLM", "it has vLLM's samples served"),
    without("Feature_Guide/Constrained_Decoding", "it queries TensorRT-LLM's repository"),
    without("Feature_Guide/Function_Calling", "it queries TensorRT-LLM's repository"),
    without("Feature_Guide/Speculative_Decoding/TRT-LLM", "it has TensorRT-LLM's repository served"),
)

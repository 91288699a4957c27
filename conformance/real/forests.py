"""The benchmark's repository of fil_backend: forests of XGBoost, whose files are not published."""

import json

import numpy as np

from repository import Repository, equal, infer

FEATURES, DEPTH = 393, 3
INNER = 2**DEPTH - 1


class Forest:
    """A forest of complete trees of random tests, which writes itself as XGBoost does and predicts in numpy."""

    def __init__(self, trees):
        r = np.random.default_rng(trees)
        self.feature = r.integers(0, FEATURES, (trees, INNER))
        self.threshold = r.standard_normal((trees, INNER)).astype(np.float32)
        self.missing_left = r.integers(0, 2, (trees, INNER))
        self.leaves = r.standard_normal((trees, INNER + 1)).astype(np.float32) / 4

    def write(self, path):
        trees = []
        for i in range(len(self.feature)):
            padding = [0] * (INNER + 1)
            both = 2 * INNER + 1
            trees.append({
                "id": i,
                "left_children": [2 * k + 1 for k in range(INNER)] + [-1] * (INNER + 1),
                "right_children": [2 * k + 2 for k in range(INNER)] + [-1] * (INNER + 1),
                "parents": [2147483647] + [(k - 1) // 2 for k in range(1, both)],
                "split_indices": self.feature[i].tolist() + padding,
                "split_conditions": self.threshold[i].tolist() + self.leaves[i].tolist(),
                "default_left": self.missing_left[i].tolist() + padding,
                "split_type": [0] * both,
                **{k: [0.0] * both for k in ("base_weights", "loss_changes", "sum_hessian")},
                **{k: [] for k in ("categories", "categories_nodes", "categories_segments", "categories_sizes")},
                "tree_param": {"num_deleted": "0", "num_feature": str(FEATURES), "num_nodes": str(both), "size_leaf_vector": "1"},
            })  # fmt: skip
        model = {"gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))}, "tree_info": [0] * len(trees), "trees": trees}
        learner = {
            "attributes": {}, "feature_names": [], "feature_types": [],
            "gradient_booster": {"model": model, "name": "gbtree"},
            "learner_model_param": {"base_score": "5E-1", "boost_from_average": "1", "num_class": "0", "num_feature": str(FEATURES), "num_target": "1"},
            "objective": {"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}},
        }  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)  # a link of the published repository to a file that is not there
        path.write_text(json.dumps({"learner": learner, "version": [1, 7, 6]}))

    def probabilities(self, rows):
        """The probabilities of both classes."""
        margins = np.zeros(len(rows), np.float32)
        for n, row in enumerate(rows):
            for i in range(len(self.feature)):
                k = 0
                while k < INNER:
                    x = row[self.feature[i, k]]
                    left = bool(self.missing_left[i, k]) if np.isnan(x) else x < self.threshold[i, k]
                    k = 2 * k + (1 if left else 2)
                margins[n] += self.leaves[i, k - INNER]
        p = 1 / (1 + np.exp(-margins))
        return np.stack([1 - p, p], 1)


class Fil(Repository):
    """A small and a large forest, each on a GPU and on the CPU."""

    source = "fil_backend"
    published = "qa/benchmark_repo"
    models = "."
    own = "fil"

    def weights(self, to):
        self.forests = {"small": Forest(10), "large": Forest(200)}
        for size, forest in self.forests.items():
            for model in (f"{size}_model", f"{size}_model-cpu"):
                forest.write(to / model / "1/xgboost.json")
        self.differs.append("toy forests")

    def checks(self, server):
        rows = np.random.default_rng(5).standard_normal((5, FEATURES)).astype(np.float32)
        rows[1, ::3] = np.nan
        for size, forest in self.forests.items():
            for model in (f"{size}_model", f"{size}_model-cpu"):
                for grpc in (False, True):
                    got = infer(server, model, {"input__0": rows}, grpc=grpc)
                    yield equal(f"{model}, {'gRPC' if grpc else 'HTTP'}", got["output__0"], forest.probabilities(rows), 1e-6)


LIST = (Fil,)

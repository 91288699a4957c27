#!/usr/bin/env python3
"""Times XGBoost's and treelite's own Python calls on a forest of 1,000 trees, batches of 1 and 64 rows, one thread.

    pip install -r bench/peers/backends/requirements/fil.txt && python bench/peers/backends/fil.py

The forest is that of backends/fil/bench_test.go, made here from the same numbers. Prints a line of JSON: the version, and medians per
call in microseconds of the processor's time and the clock's. The counterpart is go test -run none -bench Overhead ./backends/fil;
make bench-backends runs both.
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.pop(0)  # this file has the name of the package

import numpy as np
import treelite
import xgboost as xgb

TREES, DEPTH, FEATURES = 1000, 6, 32
ROUNDS, SECONDS = 15, 0.2


def uniform(state):
    """Yields the pseudo-random numbers of bench_test.go."""
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (state >> 33) / 2**31


def tree(u, number):
    """Returns a tree whose tests divide the part of the unit cube that reaches them."""
    tests = 2**DEPTH - 1
    nodes = 2 * tests + 1
    left, right, parent, feature, fallback = ([0] * nodes for _ in range(5))
    condition = [0.0] * nodes
    low, high = [None] * nodes, [None] * nodes
    low[0], high[0], parent[0] = [0.0] * FEATURES, [1.0] * FEATURES, 2**31 - 1
    for i in range(nodes):
        if i >= tests:
            left[i], right[i], condition[i] = -1, -1, float(np.float32((next(u) - 0.5) / 8))
            continue
        left[i], right[i] = 2 * i + 1, 2 * i + 2
        k = int(next(u) * FEATURES)
        at = float(np.float32(low[i][k] + (high[i][k] - low[i][k]) * (0.1 + 0.8 * next(u))))
        feature[i], condition[i], fallback[i] = k, at, int(2 * next(u))
        for child in (left[i], right[i]):
            parent[child], low[child], high[child] = i, low[i][:], high[i][:]
        high[left[i]][k], low[right[i]][k] = at, at
    zeros = [0.0] * nodes
    return {
        "id": number,
        "left_children": left,
        "right_children": right,
        "parents": parent,
        "split_indices": feature,
        "split_conditions": condition,
        "default_left": fallback,
        "split_type": [0] * nodes,
        "base_weights": zeros,
        "loss_changes": zeros,
        "sum_hessian": zeros,
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "tree_param": {"num_deleted": "0", "num_feature": str(FEATURES), "num_nodes": str(nodes), "size_leaf_vector": "1"},
    }


def model(path):
    """Writes the forest as a file of XGBoost."""
    u = uniform(26)
    booster = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(TREES)},
        "trees": [tree(u, i) for i in range(TREES)],
        "tree_info": [0] * TREES,
        "iteration_indptr": list(range(TREES + 1)),
    }
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": [],
        "gradient_booster": {"model": booster, "name": "gbtree"},
        "learner_model_param": {"base_score": "5E-1", "boost_from_average": "1", "num_class": "0", "num_feature": str(FEATURES), "num_target": "1"},
        "objective": {"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}},
    }
    path.write_text(json.dumps({"version": [3, 0, 0], "learner": learner}))


def rows(n):
    u = uniform(64)
    return np.array([[next(u) for _ in range(FEATURES)] for _ in range(n)], np.float32)


def medians(call):
    """Returns the medians over rounds of (processor, clock) time of one call, in microseconds."""
    begin, calls = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        call()
        calls += 1
    cpu, wall = [], []
    for _ in range(ROUNDS):
        c, w = time.process_time(), time.perf_counter()
        for _ in range(calls):
            call()
        cpu.append((time.process_time() - c) / calls * 1e6)
        wall.append((time.perf_counter() - w) / calls * 1e6)
    return statistics.median(cpu), statistics.median(wall)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "xgboost.json"
        model(path)
        booster = xgb.Booster({"nthread": 1}, model_file=path)
        forest = treelite.frontend.load_xgboost_model(path)
    cases = {}
    for name, n in (("1000_trees_1_row", 1), ("1000_trees_64_rows", 64)):
        x = rows(n)
        calls = {
            "XGBoost": lambda x=x: booster.inplace_predict(x),
            "treelite's GTIL": lambda x=x: treelite.gtil.predict(forest, x, nthread=1),
        }
        for peer, call in calls.items():
            cpu, wall = medians(call)
            cases[f"{name}, {peer}"] = {"cpu_us": cpu, "clock_us": wall}
    print(json.dumps({"version": xgb.__version__, "cases": cases}))


main()

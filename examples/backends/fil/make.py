#!/usr/bin/env python3
"""Trains the models of this folder on data sets of scikit-learn and stores the frameworks' own predictions.

    pip install -r backends/fil/testdata/requirements.txt && python examples/backends/fil/make.py
"""

import json
import pathlib

import lightgbm as lgb
import numpy as np
import treelite
import xgboost as xgb
from sklearn import datasets, ensemble

HERE = pathlib.Path(__file__).resolve().parent


def tensor(name, array):
    array = np.asarray(array, np.float32)
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.ravel().astype(float).tolist()}


def main():
    x, y = datasets.load_breast_cancer(return_X_y=True)
    cancer = x.astype(np.float32)
    boosted = xgb.XGBClassifier(n_estimators=30, max_depth=4, learning_rate=0.3, random_state=7, n_jobs=1).fit(cancer, y)
    boosted.save_model(HERE / "cancer_xgboost/1/xgboost.ubj")

    x, y = datasets.load_wine(return_X_y=True)
    wine = x.astype(np.float32)
    forest = ensemble.RandomForestClassifier(n_estimators=20, max_depth=5, random_state=7).fit(wine, y)
    treelite.sklearn.import_model(forest).serialize(HERE / "wine_forest/1/checkpoint.tl")

    x, y = datasets.load_diabetes(return_X_y=True)
    diabetes = x.astype(np.float32)
    params = {"objective": "regression", "num_leaves": 8, "verbose": -1, "num_threads": 1, "seed": 7, "deterministic": True}
    lgb.train(params, lgb.Dataset(diabetes, y), 20).save_model(HERE / "diabetes_lightgbm/1/model.txt")
    predictions = lgb.Booster(model_file=HERE / "diabetes_lightgbm/1/model.txt").predict(diabetes[:4])
    (HERE / "diabetes_lightgbm/predictions.json").write_text(
        json.dumps({"inputs": [tensor("input__0", diabetes[:4])], "outputs": [tensor("output__0", predictions.reshape(-1, 1))]}) + "\n"
    )

    requests = []
    for name, rows in (("one row", slice(0, 1)), ("five rows", slice(40, 45))):
        inputs = [tensor("INPUT0", cancer[rows]), tensor("INPUT1", wine[rows])]
        outputs = [tensor("OUTPUT0", boosted.predict_proba(cancer[rows])), tensor("OUTPUT1", forest.predict_proba(wine[rows]))]
        requests.append({"name": name, "inputs": inputs, "outputs": outputs, "atol": 1e-6})
    lines = ",\n".join(json.dumps(r) for r in requests)
    (HERE / "expected.json").write_text('{"ensemble": "simple_fil", "requests": [\n' + lines + "\n]}\n")


main()

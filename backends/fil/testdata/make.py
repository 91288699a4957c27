#!/usr/bin/env python3
"""Makes the models of this folder and the frameworks' own predictions for them.

    pip install -r requirements.txt && python make.py            # all but the two below
    pip install -r requirements-xgboost2.txt && python make.py xgboost2      # XGBoost's binary format
    pip install -r requirements-treelite3.txt && python make.py treelite3    # checkpoints of treelite 3.9

Each writes expected-NAME.json: for each case its files, the rows (null is NaN), and the predictions of the framework's own run.
"""

import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
RNG = np.random.default_rng(2026)
ROWS, FEATURES = 300, 8
CASES = []
SHAPLEY = ("binary_logistic", "multi_softprob", "category_onehot", "dart", "base_score", "v2_regression", "binary", "multiclass", "category")


def table(missing=True):
    """Returns rows of FP32 with missing values, and one row of infinities and zeros to predict."""
    x = RNG.standard_normal((ROWS, FEATURES)).astype(np.float32)
    x[:, 6] = np.round(x[:, 6])
    if missing:
        x[RNG.random(x.shape) < 0.15] = np.nan
    return x


def asked(x, n=12):
    """Returns the rows whose predictions are stored."""
    rows = x[:n].copy()
    rows[n - 3], rows[n - 2], rows[n - 1] = np.inf, -np.inf, 0
    return rows


X = table()
FULL = np.nan_to_num(X, nan=0.25)
SIGNAL = FULL[:, 0] * 2 - FULL[:, 1] + np.sin(3 * FULL[:, 2]) + FULL[:, 6] * FULL[:, 3]
LABELS = {
    "real": SIGNAL,
    "positive": np.exp(SIGNAL / 4),
    "count": np.round(np.exp(SIGNAL / 4)),
    "unit": 1 / (1 + np.exp(-SIGNAL)),
    "binary": (SIGNAL > 0).astype(int),
    "three": np.digitize(SIGNAL, [-1, 1]),
    "grades": np.digitize(SIGNAL, [-1, 1]),
}


def categories():
    """Returns rows with categories in columns 0 (few) and 1 (many), and labels that depend on them."""
    x = X.copy()
    x[:, 0] = RNG.integers(0, 4, ROWS)
    x[:, 1] = RNG.integers(0, 40, ROWS)
    y = np.isin(x[:, 0], [1, 3]) * 2.0 + np.isin(x[:, 1], [2, 3, 5, 7, 11, 13, 17, 19, 33, 39]) - np.nan_to_num(x[:, 2])
    return x, y


def odd_categories(x):
    """Returns rows to predict, with categories that training did not see and values that are none."""
    rows = x[:14].copy()
    rows[8:14, 0] = [np.nan, -1, 7, 1.5, -0.5, 1e9]
    rows[8:14, 1] = [np.nan, -3, 41, 3.99, -0.5, 2.0**31]
    return rows


def case(name, files, rows, predictions, **extra):
    rows = np.asarray(rows, np.float32)
    predictions = np.asarray(predictions, np.float64).reshape(len(rows), -1)
    clean = [[None if np.isnan(v) else float(np.clip(v, -1e39, 1e39)) for v in row.astype(np.float64)] for row in rows]
    CASES.append({"name": name, "files": files, "rows": clean, "predictions": predictions.tolist(), **extra})


def write(name, versions):
    lines = ",\n".join(json.dumps(c) for c in CASES)
    (HERE / f"expected-{name}.json").write_text('{"versions": ' + json.dumps(versions) + ', "cases": [\n' + lines + "\n]}\n")
    CASES.clear()


def xgboost_case(name, params, label, x=X, rows=None, trees=6, weight=None, types=None, extensions=("json", "ubj")):
    import xgboost as xgb

    data = xgb.DMatrix(x, label, feature_types=types, enable_categorical=types is not None)
    if params["objective"].startswith("rank:"):
        data.set_group([30] * 10)
    if params["objective"] == "survival:aft":
        data.set_float_info("label_lower_bound", label)
        data.set_float_info("label_upper_bound", label * 1.5)
    booster = xgb.train({"max_depth": 3, "eta": 0.4, "nthread": 1, "seed": 7, **params}, data, trees)
    files = []
    for extension in extensions:
        files.append(f"xgb_{name}.{extension}")
        booster.save_model(HERE / files[-1])
    rows = asked(x) if rows is None else rows
    # Infinities are refused by DMatrix of arrays unless they are not the missing value.
    asked_data = xgb.DMatrix(np.clip(rows, -3e38, 3e38), feature_types=types, enable_categorical=types is not None)
    values = booster.predict(asked_data, strict_shape=True)
    shapley = booster.predict(asked_data, pred_contribs=True) if name in SHAPLEY else np.zeros(0)
    case(f"xgb_{name}", files, np.clip(rows, -3e38, 3e38), values, classes=params["objective"] == "multi:softmax", shapley=shapley.ravel().tolist())


def make_xgboost():
    import xgboost as xgb

    for objective, label in [
        ("reg:squarederror", "real"),
        ("reg:squaredlogerror", "positive"),
        ("reg:pseudohubererror", "real"),
        ("reg:absoluteerror", "real"),
        ("reg:gamma", "positive"),
        ("reg:tweedie", "positive"),
        ("reg:logistic", "unit"),
        ("count:poisson", "count"),
        ("survival:cox", "positive"),
        ("survival:aft", "positive"),
        ("binary:logistic", "binary"),
        ("binary:logitraw", "binary"),
        ("binary:hinge", "binary"),
        ("rank:ndcg", "grades"),
        ("rank:pairwise", "grades"),
        ("rank:map", "binary"),
    ]:
        xgboost_case(objective.replace(":", "_"), {"objective": objective}, LABELS[label])
    three = LABELS["three"]
    xgboost_case("multi_softprob", {"objective": "multi:softprob", "num_class": 3}, three)
    xgboost_case("multi_softmax", {"objective": "multi:softmax", "num_class": 3}, three)
    xgboost_case("quantile", {"objective": "reg:quantileerror", "quantile_alpha": 0.3}, LABELS["real"])
    xgboost_case("quantiles", {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}, LABELS["real"])
    xgboost_case("base_score", {"objective": "binary:logistic", "base_score": 0.2}, LABELS["binary"])
    xgboost_case("dart", {"objective": "binary:logistic", "booster": "dart", "rate_drop": 0.5}, LABELS["binary"])
    xgboost_case("parallel_tree", {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 3, "subsample": 0.7}, three, trees=3)
    targets = np.stack([LABELS["real"], LABELS["positive"], LABELS["unit"]], 1)
    xgboost_case("targets", {"objective": "reg:squarederror"}, targets)
    xgboost_case("vector_leaf", {"objective": "reg:squarederror", "multi_strategy": "multi_output_tree", "tree_method": "hist"}, targets)
    xgboost_case("vector_leaf_classes", {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree", "tree_method": "hist"}, three)
    x, y = categories()
    for name, onehot in (("onehot", 100), ("partition", 1)):
        params = {"objective": "reg:squarederror", "max_cat_to_onehot": onehot, "tree_method": "hist"}
        rows = odd_categories(x)
        rows[9, 0] = rows[12, 0] = rows[9, 1] = rows[12, 1] = 5  # XGBoost refuses negative categories of arrays
        rows[13] = rows[10]
        xgboost_case(f"category_{name}", params, y, x, rows, types=["c", "c"] + ["q"] * (FEATURES - 2))
    write("xgboost", {"xgboost": xgb.__version__})


def make_xgboost2():
    import xgboost as xgb

    for name, params, label in [
        ("regression", {"objective": "reg:squarederror"}, "real"),
        ("logistic", {"objective": "binary:logistic", "base_score": 0.2}, "binary"),
        ("softprob", {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2}, "three"),
        ("dart", {"objective": "count:poisson", "booster": "dart", "rate_drop": 0.5}, "count"),
    ]:
        xgboost_case(f"v2_{name}", params, LABELS[label], extensions=("deprecated", "json", "ubj"))
        (HERE / f"xgb_v2_{name}.deprecated").rename(HERE / f"xgb_v2_{name}.model")
        CASES[-1]["files"][0] = f"xgb_v2_{name}.model"
    xgboost_case("old_vector_leaf", {"objective": "reg:squarederror", "multi_strategy": "multi_output_tree", "tree_method": "hist"},
                 np.stack([LABELS["real"], LABELS["unit"]], 1))
    write("xgboost2", {"xgboost": xgb.__version__})


def make_lightgbm():
    import lightgbm as lgb

    def one(name, params, label, x=X, rows=None, trees=6, **more):
        params = {"num_leaves": 8, "learning_rate": 0.3, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1, "seed": 7, "deterministic": True, **params}
        group = [30] * 10 if params["objective"] in ("lambdarank", "rank_xendcg") else None
        booster = lgb.train(params, lgb.Dataset(x, label, group=group, **more), trees)
        file = f"lgb_{name}.txt"
        booster.save_model(HERE / file)
        rows = asked(x) if rows is None else rows
        read = lgb.Booster(model_file=HERE / file)
        shapley = read.predict(rows, pred_contrib=True).ravel().tolist() if name in SHAPLEY else []
        case(f"lgb_{name}", [file], rows, read.predict(rows), shapley=shapley)

    for objective, label in [
        ("regression", "real"), ("regression_l1", "real"), ("huber", "real"), ("fair", "real"), ("quantile", "real"), ("mape", "positive"),
        ("poisson", "count"), ("gamma", "positive"), ("tweedie", "positive"), ("cross_entropy", "unit"), ("cross_entropy_lambda", "unit"),
        ("lambdarank", "grades"), ("rank_xendcg", "grades"),
    ]:
        one(objective, {"objective": objective}, LABELS[label])
    one("sqrt", {"objective": "regression", "reg_sqrt": True}, LABELS["real"])
    one("binary", {"objective": "binary", "sigmoid": 0.7}, LABELS["binary"])
    one("multiclass", {"objective": "multiclass", "num_class": 3}, LABELS["three"])
    one("multiclassova", {"objective": "multiclassova", "num_class": 3, "sigmoid": 1.3}, LABELS["three"])
    one("rf", {"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}, LABELS["binary"])
    one("rf_multiclass", {"objective": "multiclass", "num_class": 3, "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}, LABELS["three"])
    one("dart", {"objective": "regression", "boosting": "dart", "drop_rate": 0.5}, LABELS["real"])
    zeros = np.nan_to_num(np.where(RNG.random(X.shape) < 0.4, 0, X)).astype(np.float32)
    some = asked(zeros, 16)
    some[3, :], some[4, :], some[5, :] = 1e-36, -1e-35, np.nan
    one("zero_missing", {"objective": "regression", "zero_as_missing": True}, SIGNAL + (zeros[:, 0] == 0), zeros, some)
    one("missing_unused", {"objective": "regression", "use_missing": False}, SIGNAL)
    x, y = categories()
    one("category", {"objective": "regression", "min_data_per_group": 1, "cat_smooth": 1, "max_cat_to_onehot": 1}, y, x, odd_categories(x), categorical_feature=[0, 1])
    booster = lgb.train({"objective": "regression", "linear_tree": True, "num_leaves": 4, "verbose": -1}, lgb.Dataset(FULL, SIGNAL), 2)
    booster.save_model(HERE / "refused_linear.txt")
    write("lightgbm", {"lightgbm": lgb.__version__})


def make_sklearn(models, checkpoint):
    for name, model, label in models:
        probabilities = hasattr(model, "predict_proba")
        nan = name.startswith("hist")
        x = X if nan else FULL
        model.fit(x, LABELS[label])
        file = f"skl_{name}.tl"
        checkpoint(model, HERE / file)
        rows = asked(x)
        if not nan:
            rows = np.clip(rows, -3e38, 3e38)
        if name == "isolation":
            values = -model.score_samples(rows)
        else:
            values = model.predict_proba(rows) if probabilities else model.predict(rows)
        if probabilities and name.startswith(("boosting_binary", "hist_binary")):
            values = values[:, 1]
        case(f"skl_{name}", [file], rows, values)


def sklearn_models():
    from sklearn import ensemble

    small = {"n_estimators": 7, "random_state": 7}
    deep = {**small, "max_depth": 4}
    return [
        ("forest", ensemble.RandomForestRegressor(**deep), "real"),
        ("forest_binary", ensemble.RandomForestClassifier(**deep), "binary"),
        ("forest_classes", ensemble.RandomForestClassifier(**small), "three"),
        ("extra", ensemble.ExtraTreesRegressor(**deep), "real"),
        ("extra_classes", ensemble.ExtraTreesClassifier(**deep), "three"),
        ("boosting", ensemble.GradientBoostingRegressor(**deep), "real"),
        ("boosting_binary", ensemble.GradientBoostingClassifier(**deep), "binary"),
        ("boosting_classes", ensemble.GradientBoostingClassifier(**deep), "three"),
        ("isolation", ensemble.IsolationForest(**small, max_samples=32), "real"),
        ("hist", ensemble.HistGradientBoostingRegressor(max_iter=7, max_depth=3), "real"),
        ("hist_binary", ensemble.HistGradientBoostingClassifier(max_iter=7, max_depth=3), "binary"),
        ("hist_classes", ensemble.HistGradientBoostingClassifier(max_iter=7, max_depth=3), "three"),
    ]


def make_treelite():
    import sklearn
    import treelite

    make_sklearn(sklearn_models(), lambda model, path: treelite.sklearn.import_model(model).serialize(path))
    # The FP32 checkpoint of an XGBoost model, as cuML writes them: predictions are treelite's.
    model = treelite.frontend.load_xgboost_model(HERE / "xgb_multi_softprob.json")
    model.serialize(HERE / "tl_xgboost.tl")
    case("tl_xgboost", ["tl_xgboost.tl"], asked(X), treelite.gtil.predict(model, asked(X))[:, 0, :])
    write("treelite", {"treelite": treelite.__version__, "scikit-learn": sklearn.__version__})


def make_treelite3():
    import sklearn
    import treelite

    kept = [m for m in sklearn_models() if m[0] in ("forest", "forest_classes", "boosting_binary")]
    kept = [("v3_" + name, *rest) for name, *rest in kept]
    kept[-1][1].init = "zero"  # the only one that this version takes
    make_sklearn(kept, lambda model, path: treelite.sklearn.import_model(model).serialize(str(path)))
    for c in CASES:
        if c["name"] == "skl_v3_boosting_binary":
            c["predictions"] = [[row[-1]] for row in c["predictions"]]
    model = treelite.Model.load(str(HERE / "xgb_v2_softprob.json"), "xgboost_json")
    model.serialize(str(HERE / "tl_v3_xgboost.tl"))
    case("tl_v3_xgboost", ["tl_v3_xgboost.tl"], asked(X), treelite.gtil.predict(model, asked(X)))
    write("treelite3", {"treelite": treelite.__version__, "scikit-learn": sklearn.__version__})


def main():
    if sys.argv[1:] == ["xgboost2"]:
        make_xgboost2()
    elif sys.argv[1:] == ["treelite3"]:
        make_treelite3()
    else:
        make_xgboost()
        make_lightgbm()
        make_treelite()


main()

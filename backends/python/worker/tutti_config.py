"""Model configurations: lookups, and the ModelConfig that auto_complete_config fills in."""

import json


def get_input_config_by_name(model_config, name):
    """Returns the properties of the input with that name, or None."""
    return _named(model_config.get("input", ()), name)


def get_output_config_by_name(model_config, name):
    """Returns the properties of the output with that name, or None."""
    return _named(model_config.get("output", ()), name)


def using_decoupled_model_transaction_policy(model_config):
    """Reports whether the model is decoupled: it may send any number of responses to a request."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def _named(tensors, name):
    for t in tensors:
        if t["name"] == name:
            return t
    return None


class ModelConfig:
    """The configuration that auto_complete_config receives, fills in and returns."""

    def __init__(self, model_config):
        self._model_config = json.loads(model_config)

    def as_dict(self):
        """Returns the configuration as a dict."""
        return self._model_config

    def _model(self):
        return self._model_config.get("name", "")

    def set_max_batch_size(self, max_batch_size):
        """Sets max_batch_size. Raises ValueError when the configuration has a larger one."""
        found = self._model_config.get("max_batch_size", 0)
        if found > max_batch_size:
            raise ValueError("configuration specified max_batch_size %d, but in auto-complete-config function for model '%s' "
                             "specified max_batch_size %d" % (found, self._model(), max_batch_size))
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        """Enables dynamic batching. Raises ValueError when another scheduler is configured."""
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._model_config:
                raise ValueError("Configuration specified scheduling_choice as '%s', but auto-complete-config function for model "
                                 "'%s' tries to set scheduling_choice as 'dynamic_batching'" % (other, self._model()))
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict):
        """Sets {"decoupled": bool}. Raises ValueError when the configuration says the opposite."""
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError("model transaction property in auto-complete-config function for model '%s' contains property "
                                 "other than 'decoupled'." % self._model())
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", wanted) != wanted:
            raise ValueError("trying to change decoupled property in auto-complete-config for model '%s', which is already set "
                             "to '%s'." % (self._model(), policy["decoupled"]))
        policy["decoupled"] = wanted

    def add_input(self, input):
        """Adds an input {"name", "data_type", "dims", "optional"}, or fills in the configured one."""
        self._add("input", input, ("name", "data_type", "dims", "optional"), "'name', 'data_type', 'dims' and 'optional'")

    def add_output(self, output):
        """Adds an output {"name", "data_type", "dims"}, or fills in the configured one."""
        self._add("output", output, ("name", "data_type", "dims"), "'name', 'data_type' and 'dims'")

    def _add(self, side, new, known, listed):
        self._check(side, new, known, listed)
        tensors = self._model_config.setdefault(side, [])
        old = _named(tensors, new["name"])
        if old is None:
            tensors.append(new)
            return
        self._agree(side, old, new)
        for key in known:
            if key in new:
                old[key] = new[key]

    def _check(self, side, new, known, listed):
        where = "in auto-complete-config function for model '%s'" % self._model()
        who = "%s '%s' %s" % (side, new["name"], where) if "name" in new else "%s %s" % (side, where)
        if not set(new) <= set(known):
            raise ValueError("%s contains property other than %s." % (who, listed))
        for key in known[:3]:
            if key not in new:
                raise ValueError("%s is missing '%s' property." % (who, key))

    def _agree(self, side, old, new):
        data_type = old.get("data_type", "TYPE_INVALID")
        if data_type not in ("TYPE_INVALID", new["data_type"]):
            raise ValueError("unable to load model '%s', configuration expects datatype %s for %s '%s', model provides %s"
                             % (self._model(), data_type, side, new["name"], new["data_type"]))
        tensor = "model '%s', tensor '%s'" % (self._model(), new["name"])
        # The JSON form of a protobuf message has 64-bit integers as strings, for example "dims": ["3"].
        if old.get("dims") and [int(d) for d in old["dims"]] != list(new["dims"]):
            raise ValueError("%s: the model expects dims %s but the model configuration specifies dims %s"
                             % (tensor, new["dims"], old["dims"]))
        if "optional" in new and old.get("optional", new["optional"]) != new["optional"]:
            raise ValueError("%s: the model expects optional %s but the model configuration specifies optional %s"
                             % (tensor, new["optional"], old["optional"]))

// Package lightgbm reads models in LightGBM's text format.
//
//	lightgbm.go   the head of the file, objectives, the forest
//	tree.go       one tree
//
// The format is that of LightGBM's sources (gbdt_model_text.cpp, tree.cpp). Predictions are those of LightGBM: leaves are added in FP64
// in the order of the trees. NaN and zeros follow the missing type of each test.
package lightgbm

import (
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/core/status"
)

// Read returns the forest in a file. With explain it keeps what Shapley values need.
func Read(data []byte, explain bool) (*forest.Forest, error) {
	text := string(data)
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, "\r") != "tree" {
		return nil, invalidf("the first line is %.40q, expected \"tree\" of a LightGBM model", first)
	}
	s := &lines{rest: rest, number: 1}
	head, err := s.section()
	if err != nil {
		return nil, err
	}
	h, err := headOf(head)
	if err != nil {
		return nil, err
	}
	h.Explain = explain
	b, err := forest.NewBuilder(h)
	if err != nil {
		return nil, err
	}
	trees := 0
	for ; s.tree; trees++ {
		fields, err := s.section()
		if err != nil {
			return nil, err
		}
		nodes, err := nodesOf(fields)
		if err != nil {
			return nil, status.Prefixf(err, "tree %d: ", trees)
		}
		if err := b.Add(nodes, trees%h.Outputs); err != nil {
			return nil, err
		}
	}
	if trees == 0 && !s.ended {
		return nil, invalidf("the file ends before its trees: it is truncated")
	}
	if sizes, ok := head["tree_sizes"]; ok && (len(strings.Fields(sizes)) != trees || !s.ended) { // versions that write one write both
		return nil, invalidf("the file has %d trees, expected %d and a line \"end of trees\": it is truncated", trees, len(strings.Fields(sizes)))
	}
	if trees%h.Outputs != 0 {
		return nil, invalidf("the model has %d trees, expected a multiple of its %d classes", trees, h.Outputs)
	}
	return b.Forest()
}

// lines reads the sections of a file: the head, and each tree.
type lines struct {
	rest   string
	number int
	// tree is set when a tree follows, ended after the line that ends the trees.
	tree, ended bool
}

// section returns the fields KEY=VALUE up to the next tree or the end of the trees. Lines without a value count as fields.
func (s *lines) section() (map[string]string, error) {
	fields := map[string]string{}
	s.tree = false
	for s.rest != "" {
		line, rest, _ := strings.Cut(s.rest, "\n")
		s.rest, s.number = rest, s.number+1
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r"), "=")
		switch key {
		case "":
			continue
		case "Tree":
			s.tree = true
			return fields, nil
		case "end of trees":
			s.rest, s.ended = "", true
			return fields, nil
		}
		if _, twice := fields[key]; twice {
			return nil, invalidf("line %d: '%.40s' is there twice", s.number, key)
		}
		fields[key] = value
	}
	return fields, nil
}

// number returns an integer field.
func number(fields map[string]string, key string, least, most int) (int, error) {
	text, ok := fields[key]
	if !ok {
		return 0, invalidf("there is no field '%s'", key)
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < least || n > most {
		return 0, invalidf("%s is %.40q, expected an integer from %d to %d", key, text, least, most)
	}
	return n, nil
}

// headOf returns the head of the forest from the head of the file.
func headOf(fields map[string]string) (h forest.Head, err error) {
	features, err := number(fields, "max_feature_idx", 0, forest.MaxFeatures-1)
	if err != nil {
		return h, err
	}
	classes, err := number(fields, "num_class", 1, forest.MaxOutputs)
	if err != nil {
		return h, err
	}
	outputs := classes
	if _, ok := fields["num_tree_per_iteration"]; ok {
		if outputs, err = number(fields, "num_tree_per_iteration", 1, forest.MaxOutputs); err != nil {
			return h, err
		}
	}
	_, average := fields["average_output"]
	h = forest.Head{Features: features + 1, Outputs: outputs, Double: true, Average: average}
	return h, objectiveOf(&h, fields["objective"])
}

// aliases are the names of objectives that mean another one.
var aliases = map[string]string{
	"": "custom", "none": "custom", "null": "custom", "na": "custom",
	"regression_l2": "regression", "l2": "regression", "mean_squared_error": "regression", "mse": "regression",
	"l2_root": "regression", "root_mean_squared_error": "regression", "rmse": "regression",
	"l1": "regression_l1", "mean_absolute_error": "regression_l1", "mae": "regression_l1",
	"mean_absolute_percentage_error": "mape",
	"softmax":                        "multiclass", "multiclass_ova": "multiclassova", "ova": "multiclassova", "ovr": "multiclassova",
	"xentropy": "cross_entropy", "xentlambda": "cross_entropy_lambda",
	"xendcg": "rank_xendcg", "xe_ndcg": "rank_xendcg", "xe_ndcg_mart": "rank_xendcg", "xendcg_mart": "rank_xendcg",
}

// objectives are the links of objectives by name.
var objectives = map[string]forest.Function{
	"custom": forest.Identity, "regression": forest.Identity, "regression_l1": forest.Identity, "huber": forest.Identity, "fair": forest.Identity,
	"quantile": forest.Identity, "mape": forest.Identity, "lambdarank": forest.Identity, "rank_xendcg": forest.Identity,
	"poisson": forest.Exponential, "gamma": forest.Exponential, "tweedie": forest.Exponential,
	"binary": forest.Sigmoid, "cross_entropy": forest.Sigmoid, "multiclassova": forest.Sigmoid,
	"cross_entropy_lambda": forest.LogOnePlusExp, "multiclass": forest.Softmax,
}

// objectiveOf sets the task and the link from the field objective: a name with parameters. For example, "binary sigmoid:1".
func objectiveOf(h *forest.Head, text string) error {
	words := strings.Fields(text)
	name := ""
	if len(words) > 0 {
		name, words = words[0], words[1:]
	}
	if other, ok := aliases[name]; ok {
		name = other
	}
	function, ok := objectives[name]
	if !ok {
		return status.Errorf(status.Unsupported, "the model has objective '%.40s', expected one of LightGBM's own: its predictions are not known", name)
	}
	h.Link = forest.Link{Function: function, A: 1}
	sigmoid := false
	for _, word := range words {
		key, value, _ := strings.Cut(word, ":")
		switch key {
		case "sqrt":
			if function == forest.Identity {
				h.Link.Function = forest.SignedSquare
			}
		case "sigmoid":
			a, err := strconv.ParseFloat(value, 64)
			if err != nil || !(a > 0) {
				return invalidf("objective '%s' has sigmoid %.40q, expected a number above 0", name, value)
			}
			h.Link.A, sigmoid = a, true
		case "num_class":
			if n, err := strconv.Atoi(value); err != nil || n != h.Outputs {
				return invalidf("objective '%s' has %.40s classes, expected %d", name, value, h.Outputs)
			}
		}
	}
	multi := name == "multiclass" || name == "multiclassova"
	switch {
	case multi != (h.Outputs > 1) && name != "custom":
		return invalidf("objective '%s' has %d trees in an iteration", name, h.Outputs)
	case (name == "binary" || name == "multiclassova") && !sigmoid:
		return invalidf("objective '%s' lacks its parameter sigmoid", name)
	case h.Outputs > 1:
		h.Task = forest.MultiClass
	case name == "binary" || name == "cross_entropy" || name == "cross_entropy_lambda":
		h.Task = forest.Binary
	case name == "lambdarank" || name == "rank_xendcg":
		h.Task = forest.Ranking
	}
	return nil
}

func invalidf(format string, args ...any) error {
	return status.Errorf(status.InvalidArg, format, args...)
}

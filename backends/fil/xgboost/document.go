package xgboost

import (
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// fields are functions that read the values of an object's keys. A nil one is skipped.
type fields map[string]func() error

// read reads an object. Unknown keys are refused unless the model allows them.
func (m *model) read(s source, name string, known fields) error {
	return s.object(func(key string) error {
		f, ok := known[key]
		switch {
		case !ok && !m.AllowUnknown:
			return status.Prefixf(status.Errorf(status.Unsupported, "%s has the unknown field '%s', which may change predictions. The parameter "+
				"'xgboost_allow_unknown_field' \"true\" ignores unknown fields", name, key), "byte %d: ", s.at())
		case f == nil:
			return s.skip()
		}
		return f()
	})
}

// document reads a model of JSON or UBJSON.
func (m *model) document(s source) error {
	found := false
	learner := func() error {
		found = true
		return m.learner(s)
	}
	version := func() (err error) {
		m.version, err = ints(s)
		return err
	}
	inner := fields{"version": version, "learner": learner}
	err := m.read(s, "the model", fields{
		"version": version, "learner": learner, "Config": nil,
		"Model": func() error { return m.read(s, "Model", inner) }, // of a pickled booster
	})
	if err != nil {
		return err
	}
	if !found {
		return invalid(s, "found no field 'learner', expected a model of XGBoost")
	}
	return s.end()
}

func (m *model) learner(s source) error {
	return m.read(s, "learner", fields{
		"attributes": nil, "feature_names": nil, "feature_types": nil,
		"objective": func() error {
			return s.object(func(key string) (err error) {
				if key != "name" {
					return s.skip() // parameters of training
				}
				m.objective, err = s.text()
				return err
			})
		},
		"learner_model_param": func() error {
			return m.read(s, "learner_model_param", fields{
				"boost_from_average": nil,
				"base_score":         func() error { return m.baseScore(s) },
				"num_class":          number(s, &m.classes),
				"num_feature":        number(s, &m.features),
				"num_target":         number(s, &m.targets),
			})
		},
		"gradient_booster": func() error { return m.gradientBooster(s, true) },
	})
}

// number returns a function that reads an integer, which is mostly written as a string.
func number(s source, to *int64) func() error {
	return func() error {
		text, err := s.text()
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return invalid(s, "found %.40q, expected an integer from 0 to %d", text, 1<<31-1)
		}
		*to = n
		return nil
	}
}

// baseScore reads a number, or since version 3.1 a list of numbers, as a string.
func (m *model) baseScore(s source) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	list := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), ",")
	m.baseScores = make([]float64, 0, len(list))
	for _, word := range list {
		x, err := strconv.ParseFloat(strings.TrimSpace(word), 32)
		if err != nil {
			return invalid(s, "found base score %.40q, expected numbers", text)
		}
		m.baseScores = append(m.baseScores, x)
	}
	return nil
}

// gradientBooster reads the booster. A dart booster has another one in its field gbtree.
func (m *model) gradientBooster(s source, outer bool) error {
	return m.read(s, "gradient_booster", fields{
		"dart_train_param": nil, "gbtree_train_param": nil, "tree_train_param": nil, "updater": nil, "specified_updater": nil,
		"name": func() error {
			name, err := s.text()
			if outer {
				m.booster = name
			}
			return err
		},
		"model": func() error {
			if m.booster == "gblinear" {
				return s.skip() // refused by its name
			}
			return m.gbtree(s)
		},
		"gbtree":      func() error { return m.gradientBooster(s, false) },
		"weight_drop": floatsTo(s, &m.weights),
	})
}

func (m *model) gbtree(s source) error {
	return m.read(s, "model", fields{
		"gbtree_model_param": nil, "iteration_indptr": nil, "cats": nil,
		"weights":     nil, // of gblinear, whose name may follow
		"tree_info":   intsTo(s, &m.info),
		"weight_drop": floatsTo(s, &m.weights),
		"trees": func() error {
			return s.array(func() error {
				m.trees = append(m.trees, regTree{})
				return m.tree(s, &m.trees[len(m.trees)-1])
			})
		},
	})
}

func intsTo(s source, to *[]int32) func() error {
	return func() (err error) {
		*to, err = ints(s)
		return err
	}
}

func floatsTo(s source, to *[]float32) func() error {
	return func() (err error) {
		*to, err = floats(s)
		return err
	}
}

func (m *model) tree(s source, t *regTree) error {
	return m.read(s, "a tree", fields{
		"id": nil, "loss_changes": nil, "parents": nil, "leaf_child_counts": nil,
		"sum_hessian":         floatsTo(s, &t.cover),
		"left_children":       intsTo(s, &t.left),
		"right_children":      intsTo(s, &t.right),
		"split_indices":       intsTo(s, &t.feature),
		"split_conditions":    floatsTo(s, &t.threshold),
		"default_left":        intsTo(s, &t.defaultLeft),
		"split_type":          intsTo(s, &t.kind),
		"categories":          intsTo(s, &t.category),
		"categories_nodes":    intsTo(s, &t.nodes),
		"categories_segments": intsTo(s, &t.segments),
		"categories_sizes":    intsTo(s, &t.sizes),
		"base_weights":        floatsTo(s, &t.base),
		"leaf_weights":        floatsTo(s, &t.leaves),
		"tree_param": func() error {
			return m.read(s, "tree_param", fields{
				"num_feature": nil, "num_nodes": nil, "num_deleted": nil, "num_roots": nil, "max_depth": nil,
				"size_leaf_vector": number(s, &t.vector),
			})
		},
	})
}

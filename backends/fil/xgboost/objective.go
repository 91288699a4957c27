package xgboost

import (
	"math"
	"strings"

	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/core/status"
)

// objective is what an objective means for predictions.
type objective struct {
	function forest.Function
	// margin turns a base score, which is a prediction, into a sum. Nil if they are the same.
	margin func(float64) float64
}

// logit is the inverse of the sigmoid, as XGBoost computes it in FP32.
func logit(p float64) float64 { return -math.Log(1/p - 1) }

// objectives are those of XGBoost 3.4. Names of earlier versions are kept.
var objectives = map[string]objective{
	"reg:squarederror":     {},
	"reg:linear":           {},
	"reg:squaredlogerror":  {},
	"reg:pseudohubererror": {},
	"reg:absoluteerror":    {},
	"reg:quantileerror":    {},
	"reg:expectileerror":   {},
	"rank:pairwise":        {},
	"rank:ndcg":            {},
	"rank:map":             {},
	"binary:logitraw":      {},
	"reg:logistic":         {forest.Sigmoid, logit},
	"binary:logistic":      {forest.Sigmoid, logit},
	"binary:hinge":         {forest.Hinge, nil},
	"count:poisson":        {forest.Exponential, math.Log},
	"reg:gamma":            {forest.Exponential, math.Log},
	"reg:tweedie":          {forest.Exponential, math.Log},
	"survival:cox":         {forest.Exponential, math.Log},
	"survival:aft":         {forest.Exponential, math.Log},
	"multi:softprob":       {forest.Softmax, nil},
	"multi:softmax":        {forest.Softmax, nil},
}

// since reports whether the model was written by a version or a later one.
func (m *model) since(major, minor int32) bool {
	return len(m.version) >= 2 && (m.version[0] > major || m.version[0] == major && m.version[1] >= minor)
}

// objectiveOf sets the task, the link and the base scores of the head.
func (m *model) objectiveOf(h *forest.Head) error {
	o, ok := objectives[m.objective]
	if !ok {
		return status.Errorf(status.Unsupported, "the model has objective '%s', expected one of XGBoost's own: its predictions are not known", m.objective)
	}
	h.Link = forest.Link{Function: o.function, A: 1}
	switch {
	case m.objective == "reg:quantileerror" && h.Outputs > 1 && m.since(3, 4): // sorted, so that they do not cross
		h.Link.Function = forest.Ascending
	case m.objective == "reg:expectileerror" && h.Outputs > 1:
		return status.Errorf(status.Unsupported, "the model has objective '%s' with %d expectiles, expected one", m.objective, h.Outputs)
	case m.classes > 1 && o.function != forest.Softmax || m.classes <= 1 && o.function == forest.Softmax:
		return invalidf("the model has objective '%s' and num_class %d", m.objective, m.classes)
	}
	switch {
	case m.classes > 1:
		h.Task = forest.MultiClass
	case strings.HasPrefix(m.objective, "binary:"):
		h.Task = forest.Binary
	case strings.HasPrefix(m.objective, "rank:"):
		h.Task = forest.Ranking
	}
	if n := len(m.baseScores); n != 1 && n != h.Outputs {
		return invalidf("the model has %d base scores, expected 1 or %d", n, h.Outputs)
	}
	h.Base = make([]float64, h.Outputs)
	for i := range h.Base {
		b := m.baseScores[min(i, len(m.baseScores)-1)]
		if o.margin != nil && !m.margins {
			margin := float64(float32(o.margin(float64(float32(b)))))
			if math.IsNaN(margin) || math.IsInf(margin, 0) {
				return invalidf("the model has base score %v, which objective '%s' does not allow", b, m.objective)
			}
			b = margin
		}
		h.Base[i] = b
	}
	return nil
}

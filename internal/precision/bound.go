package precision

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Bound is the fidelity that a configuration demands: the parameter "fidelity". Each field is nil where it demands nothing.
type Bound struct {
	// Cosine is the smallest cosine similarity of any row, MeanCosine that of all rows on average.
	Cosine, MeanCosine *float64
	// Top1 is the smallest share of vectors whose largest element stays the same; for integers and strings, of rows that stay the same.
	Top1 *float64
	// Difference is the largest absolute difference of two elements.
	Difference *float64
}

// condition is one of a Bound.
type condition struct {
	name   string
	field  func(*Bound) **float64
	least  bool                   // the figure must be at least the bound, else at most
	figure func(*Output) *float64 // of an output, nil where it has none
}

// conditions are in the order in which they are printed and checked.
var conditions = []condition{
	{"cosine", func(b *Bound) **float64 { return &b.Cosine }, true, func(o *Output) *float64 { return o.Cosine }},
	{"mean_cosine", func(b *Bound) **float64 { return &b.MeanCosine }, true, func(o *Output) *float64 { return o.MeanCosine }},
	{"top1", func(b *Bound) **float64 { return &b.Top1 }, true, func(o *Output) *float64 { return o.Top1 }},
	{"difference", func(b *Bound) **float64 { return &b.Difference }, false, func(o *Output) *float64 { return o.Difference }},
}

// ParseBound returns the bound of a value: conditions separated by commas. For example, "cosine=0.99, top1=0.98". Cosines are from -1
// to 1, top1 from 0 to 1, and a difference is not negative.
func ParseBound(value string) (*Bound, error) {
	b := &Bound{}
	for part := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(conditions, func(k condition) bool { return k.name == name })
		if i < 0 {
			return nil, badBound(value, fmt.Sprintf("'%s' is no condition", strings.TrimSpace(part)))
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		low, high := -1.0, 1.0
		switch name {
		case "top1":
			low = 0
		case "difference":
			low, high = 0, math.MaxFloat64
		}
		if err != nil || math.IsNaN(v) || v < low || v > high {
			return nil, badBound(value, fmt.Sprintf("'%s' has no number that it can be", strings.TrimSpace(part)))
		}
		to := conditions[i].field(b)
		if *to != nil {
			return nil, badBound(value, fmt.Sprintf("'%s' is there twice", name))
		}
		*to = &v
	}
	return b, nil
}

func badBound(value, why string) error {
	return status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': %s: expected conditions such as 'cosine=0.99, top1=0.98', "+
		"each one of cosine, mean_cosine, top1 (at least this) and difference (at most this)", value, FidelityKey, why)
}

// BoundOf returns the bound of a configuration, nil if it demands none.
func BoundOf(cfg *modelconfig.ModelConfig) (*Bound, error) {
	param, ok := cfg.GetParameters()[FidelityKey]
	if !ok {
		return nil, nil //nolint:nilnil // documented
	}
	return ParseBound(param.GetStringValue())
}

// String returns the bound as the parameter has it.
func (b *Bound) String() string {
	var parts []string
	for _, k := range conditions {
		if v := *k.field(b); v != nil {
			parts = append(parts, k.name+"="+strconv.FormatFloat(*v, 'g', -1, 64))
		}
	}
	return strings.Join(parts, ", ")
}

// Check returns an error that names the first output and figure beyond the bound, nil if there is none. An output with numbers that are
// not finite, where those of the reference are, is beyond every bound.
func (b *Bound) Check(outputs []Output) error {
	for i := range outputs {
		o := &outputs[i]
		if o.NotFinite > 0 {
			return status.Errorf(status.InvalidArg, "output '%s' has %d elements that are NaN or infinite where the reference has numbers", o.Name, o.NotFinite)
		}
		for _, k := range conditions {
			want, got := *k.field(b), k.figure(o)
			switch {
			case want == nil || got == nil:
			case k.least && *got < *want:
				return status.Errorf(status.InvalidArg, "output '%s' has a %s of %.6g, expected at least %g", o.Name, k.name, *got, *want)
			case !k.least && *got > *want:
				return status.Errorf(status.InvalidArg, "output '%s' has a %s of %.6g, expected at most %g", o.Name, k.name, *got, *want)
			}
		}
	}
	return nil
}

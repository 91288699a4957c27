// Package pool holds the step "pool": it combines the vectors of a text's tokens into one vector for the text, as the Pooling layer of
// sentence-transformers does. For example, the mean of [1 2], [3 6] and a masked [9 9] is [2 4].
package pool

import (
	"context"
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

const (
	portHidden = iota
	portMask
	portWeights
)

// NewFactory returns the step "pool".
//
// Inputs are last_hidden_state FP32 or FP16 [tokens, width] and attention_mask INT64 [tokens], of which a 0 hides a
// token; the output is embedding FP32 [width]. With weighted_mean there may be weights FP32 or FP16 [tokens], too. A
// text without tokens has 0 in every element, and so has one whose weights sum to 0. Sums are in FP32. At a device the squares of the norm
// are added in another order: an element may differ in the last place.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "pool",
		Doc: "Combines the vectors of a text's tokens whose attention mask is not 0 into one vector per text: " +
			"their mean, their sum over the root of their number (mean_sqrt_len), their mean weighted by the input " +
			"weights or, without it, by the token's position from 1 on (weighted_mean), their maximum, or the " +
			"last of them; or the first token's vector, masked or not (cls). The result can be scaled to length 1. " +
			"Inputs that config.pbtxt declares FP16 are read as such; sums and the output are FP32.",
		Params: []steps.Param{
			{Key: "mode", Default: "mean", Doc: "how the tokens' vectors are combined", Values: []string{"mean", "cls", "max", "last", "weighted_mean", "mean_sqrt_len"}},
			{Key: "normalize", Default: "false", Values: []string{"true", "false"}, Doc: "whether the result is divided by its L2 norm"},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("", "pool"),
			Request: `{"inputs": [
    {"name": "last_hidden_state", "datatype": "FP32", "shape": [3, 2], "data": [1, 2, 3, 6, 9, 9]},
    {"name": "attention_mask", "datatype": "INT64", "shape": [3], "data": [1, 1, 0]}]}`,
		}, {
			Config: steps.ExampleConfig("", "pool", "mode", "weighted_mean", "normalize", "true"),
			Request: `{"inputs": [
    {"name": "last_hidden_state", "datatype": "FP32", "shape": [3, 2], "data": [9, 0, 0, 8, 9, 9]},
    {"name": "attention_mask", "datatype": "INT64", "shape": [3], "data": [1, 1, 0]},
    {"name": "weights", "datatype": "FP32", "shape": [3], "data": [1, 1.5, 7]}]}`,
		}},
		Inline:    true,
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	sig := &config.Signature{
		Inputs: []config.Port{
			portHidden: s.FloatPort("last_hidden_state", -1, -1),
			portMask:   {Name: "attention_mask", DType: tensor.Int64, Dims: tensor.Of(-1)},
		},
		Outputs: []config.Port{{Name: "embedding", DType: tensor.FP32, Dims: tensor.Of(-1)}},
	}
	if s.Params["mode"] == "weighted_mean" {
		weights := s.FloatPort("weights", -1)
		weights.Optional = true
		sig.Inputs = append(sig.Inputs, weights)
	}
	return sig, nil
}

func newStep(s *steps.Settings) (steps.Step, error) {
	combine := map[string]func(out []float32, r *row){
		"mean": mean, "mean_sqrt_len": meanSqrt, "weighted_mean": weightedMean, "cls": first, "max": highest, "last": last,
	}
	return &step{mode: s.Params["mode"], combine: combine[s.Params["mode"]], batched: s.MaxBatch > 0, normalize: s.Params["normalize"] == "true"}, nil
}

type step struct {
	mode      string
	combine   func(out []float32, r *row)
	batched   bool
	normalize bool
	scratch   pool.Of[row]
}

// row is the input of one text. The spare slices hold values converted from FP16.
type row struct {
	hidden  []float32
	mask    []int64
	weights []float32 // nil without the input

	spareHidden, spareWeights []float32
}

// Run pools each row.
//
// hot: no allocation.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	if err := check(b); err != nil {
		return err
	}
	shape := &b.In[portHidden].Shape
	width, tokens := int(shape.Dim(shape.Rank()-1)), int(shape.Dim(shape.Rank()-2))
	t, err := b.Alloc(0, tensor.FP32, steps.Shape(b, s.batched, int64(width)))
	if err != nil {
		return err
	}
	r := s.scratch.Get()
	out, masks := tensor.Slice[float32](t), tensor.Slice[int64](&b.In[portMask])
	for i := range b.Rows {
		r.hidden, r.spareHidden = steps.Floats(r.spareHidden, &b.In[portHidden], i*tokens*width, tokens*width)
		r.mask, r.weights = masks[i*tokens:(i+1)*tokens], nil
		if weighted(b) {
			r.weights, r.spareWeights = steps.Floats(r.spareWeights, &b.In[portWeights], i*tokens, tokens)
		}
		to := out[i*width : (i+1)*width]
		s.combine(to, r)
		if s.normalize {
			toUnit(to)
		}
	}
	r.hidden, r.mask, r.weights = nil, nil, nil
	s.scratch.Put(r)
	return nil
}

// weighted reports whether the request has weights.
func weighted(b *backends.Batch) bool { return len(b.In) > portWeights && b.In[portWeights].Present() }

// check returns an error for a mask or weights of another length than the vectors.
func check(b *backends.Batch) error {
	dims := b.In[portHidden].Shape.Dims()
	want := tensor.Of(dims[:len(dims)-1]...)
	for i, name := range [...]string{portMask: "attention_mask", portWeights: "weights"} {
		if i < len(b.In) && i != portHidden && b.In[i].Present() && !b.In[i].Shape.Equal(want) {
			return status.Errorf(status.InvalidArg, "unexpected shape for input '%s', expected %s as 'last_hidden_state' has, got %s", name, want, b.In[i].Shape)
		}
	}
	return nil
}

// smallest is the least divisor, that of PyTorch's normalize.
const smallest = 1e-12

func toUnit(v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	norm := float32(max(math.Sqrt(sum), smallest))
	for i := range v {
		v[i] /= norm
	}
}

// sum adds the unmasked vectors up and returns their number.
func sum(out []float32, r *row) (n int) {
	clear(out)
	for i, m := range r.mask {
		if m != 0 {
			n++
			add(out, r.hidden[i*len(out):(i+1)*len(out)])
		}
	}
	return n
}

// add adds v, of the same length, to out.
func add(out, v []float32) {
	for len(out) >= 4 && len(v) >= 4 { // so that no bounds are checked inside
		out[0] += v[0]
		out[1] += v[1]
		out[2] += v[2]
		out[3] += v[3]
		out, v = out[4:], v[4:]
	}
	for j := range out {
		out[j] += v[j]
	}
}

// mean is the sum of the unmasked vectors over their number.
func mean(out []float32, r *row) { divide(out, float32(max(sum(out, r), 1))) }

// meanSqrt is the sum of the unmasked vectors over the root of their number.
func meanSqrt(out []float32, r *row) { divide(out, float32(math.Sqrt(float64(max(sum(out, r), 1))))) }

// weightedMean is the weighted mean of the unmasked vectors. Without weights, the weight of a token is its position from 1 on.
func weightedMean(out []float32, r *row) {
	clear(out)
	total := float32(0)
	for i, m := range r.mask {
		if m == 0 {
			continue
		}
		w := float32(i + 1)
		if r.weights != nil {
			w = r.weights[i]
		}
		total += w
		for j, v := range r.hidden[i*len(out) : (i+1)*len(out)] {
			out[j] += w * v
		}
	}
	if total == 0 {
		clear(out)
		return
	}
	divide(out, total)
}

func divide(out []float32, by float32) {
	for j := range out {
		out[j] /= by
	}
}

// first is the first token's vector, masked or not.
func first(out []float32, r *row) {
	clear(out)
	if len(r.mask) > 0 {
		copy(out, r.hidden)
	}
}

// last is the last unmasked token's vector.
func last(out []float32, r *row) {
	clear(out)
	for i, m := range slices.Backward(r.mask) {
		if m != 0 {
			copy(out, r.hidden[i*len(out):])
			return
		}
	}
}

// highest is the element-wise maximum of the unmasked vectors.
func highest(out []float32, r *row) {
	clear(out)
	none := true
	for i, m := range r.mask {
		v := r.hidden[i*len(out) : (i+1)*len(out)]
		switch {
		case m == 0:
		case none:
			copy(out, v)
			none = false
		default:
			for j := range v {
				out[j] = max(out[j], v[j])
			}
		}
	}
}

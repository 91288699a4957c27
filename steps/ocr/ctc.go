package ocr

import (
	"context"
	"fmt"
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

const scoresName = "scores"

// NewCTCFactory declares the step ctc_decode.
//
// Input scores is FP32 or FP16 [T,C], the scores of C classes at T positions. Outputs are TEXT, BYTES [1], and SCORE, FP32 [1].
func NewCTCFactory() steps.Factory {
	return steps.Factory{
		Name: "ctc_decode",
		Doc: "Decodes the output of a text recogniser trained with CTC (connectionist temporal classification): the best class of each position, of equal neighbours the first, " +
			"without blanks. SCORE is the mean of the probabilities of the characters, 0 for an empty text. A NaN is never the best.",
		Params: []steps.Param{
			{Key: "characters_file", Doc: "Text file with the character of each class but the blank on a line, in the version folder or the model folder.", Required: true, Sample: "characters.txt"},
			{Key: "space", Doc: "Whether a class after those of the file is a space.", Default: "true", Values: []string{"true", "false"}},
			{Key: "blank", Doc: "Whether the blank is the first or the last class.", Default: "first", Values: []string{"first", "last"}},
			{Key: "softmax", Doc: "Converts the scores to probabilities.", Default: "false", Values: []string{"true", "false"}},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("max_batch_size: 8", "ctc_decode", "characters_file", "characters.txt", "space", "false"),
			Files:  map[string][]byte{"characters.txt": []byte("h\ni\n")},
			Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [1, 4, 3],
    "data": [0.1,0.8,0.1, 0.2,0.7,0.1, 0.9,0.1,0, 0.25,0.25,0.5]}]}`,
		}},
		Signature: ctcSignature,
		New:       newCTC,
	}
}

func ctcSignature(s *steps.Settings) (*config.Signature, error) {
	return &config.Signature{
		Inputs: []config.Port{s.FloatPort(scoresName, -1, -1)},
		Outputs: []config.Port{
			{Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(1)},
			{Name: "SCORE", DType: tensor.FP32, Dims: tensor.Of(1)},
		},
	}, nil
}

// ctcStep is ctc_decode.
type ctcStep struct {
	characters [][]byte // by class; the blank is nil
	softmax    bool
	batched    bool
	workers    pool.Of[decoder]
}

var _ steps.Step = (*ctcStep)(nil)

// lengthSize is the bytes of the length in front of a BYTES element.
const lengthSize = 4

func newCTC(s *steps.Settings) (steps.Step, error) {
	lines, err := s.Labels("characters_file")
	if err != nil {
		return nil, err
	}
	c := &ctcStep{softmax: s.Params["softmax"] == "true", batched: s.MaxBatch > 0, characters: [][]byte{nil}}
	for _, line := range lines {
		c.characters = append(c.characters, line[lengthSize:])
	}
	if s.Params["space"] == "true" {
		c.characters = append(c.characters, []byte(" "))
	}
	if s.Params["blank"] == "last" {
		c.characters = append(c.characters[1:], nil)
	}
	return c, nil
}

// decoder is the scratch memory of one batch in progress.
type decoder struct {
	floats []float32
	text   []byte
	texts  []byte // of all rows, encoded
	scores []float32
}

// Run decodes each row.
//
// hot: once the scratch has grown, only the outputs are allocated.
func (s *ctcStep) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.workers.Put(w)
	w.texts, w.scores = w.texts[:0], w.scores[:0]
	in := &b.In[0]
	length, classes := int(in.Shape.Dim(in.Shape.Rank()-2)), int(in.Shape.Dim(in.Shape.Rank()-1))
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		score := float32(0)
		w.text = w.text[:0]
		if err := s.check(classes); err != nil {
			b.Fail(row, steps.InputError(b, scoresName, row, err))
		} else {
			var values []float32
			values, w.floats = steps.Floats(w.floats, in, row*length*classes, length*classes)
			score = s.decode(w, values)
		}
		w.texts, w.scores = tensor.AppendBytes(w.texts, w.text), append(w.scores, score)
	}
	if err := steps.Write(b, 0, tensor.Bytes, steps.Shape(b, s.batched, 1), w.texts); err != nil {
		return err
	}
	o := steps.Outputs{Batch: b}
	copy(steps.Alloc[float32](&o, 1, tensor.FP32, steps.Shape(b, s.batched, 1)), w.scores)
	return o.Err
}

func (s *ctcStep) check(classes int) error {
	n := len(s.characters)
	switch classes {
	case n:
		return nil
	case n - 1, n + 1:
		return fmt.Errorf("expected %d classes, those of characters_file with the blank and with space true one more, found %d; change the parameter 'space'", n, classes)
	}
	return fmt.Errorf("expected %d classes, those of characters_file with the blank and with space true one more, found %d", n, classes)
}

// decode appends the characters of a row to text and returns the mean of their probabilities.
func (s *ctcStep) decode(w *decoder, values []float32) float32 {
	sum, n, before := 0.0, 0, -1
	for classes := len(s.characters); len(values) >= classes && classes > 0; values = values[classes:] {
		best := largest(values[:classes])
		if c := s.characters[best]; c != nil && best != before {
			w.text = append(w.text, c...)
			p := float64(values[best])
			if s.softmax {
				p = probability(values[:classes], best)
			}
			sum, n = sum+p, n+1
		}
		before = best
	}
	return float32(sum / float64(max(n, 1)))
}

// largest returns the index of the first of the largest numbers; 0 if all are NaN.
func largest(v []float32) int {
	best, most := 0, float32(math.Inf(-1))
	for i, x := range v {
		if x > most {
			best, most = i, x
		}
	}
	return best
}

// probability returns the softmax of v at its largest number.
func probability(v []float32, best int) float64 {
	sum := 0.0
	for _, x := range v {
		if e := math.Exp(float64(x) - float64(v[best])); e == e {
			sum += e
		}
	}
	return 1 / max(sum, 1)
}

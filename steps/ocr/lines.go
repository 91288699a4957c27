package ocr

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

const (
	inTexts = iota
	inScores
	inLineBoxes
	inLineGeometry
)

// NewLinesFactory declares the step text_lines.
//
// Inputs are TEXTS, BYTES [N,1], SCORES, FP32 [N,1], BOXES, FP32 [M,4,2] with M at least N, and geometry, FP32 [6], of the image
// of which the boxes are. Outputs are TEXT, BYTES [K], SCORE, FP32 [K], BOXES, FP32 [K,4,2], and COUNT, INT32 [1]; rows of a
// batch with fewer lines end with empty ones.
func NewLinesFactory() steps.Factory {
	return steps.Factory{
		Name: "text_lines",
		Doc: "Returns the texts that a text reader is sure of, with their boxes in pixels of the source: the last step after the texts of all crops are gathered. The " +
			"geometry of fit_image maps the boxes back to the source, whose edges limit them.",
		Params: []steps.Param{
			{Key: "score_threshold", Doc: "Smallest score of a text that is returned.", Default: "0.5"},
			{Key: "empty", Doc: "Whether empty texts are returned.", Default: "false", Values: []string{"true", "false"}},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("", "text_lines"),
			Request: `{"inputs": [
    {"name": "TEXTS", "datatype": "BYTES", "shape": [2, 1], "data": ["Total", "?"]},
    {"name": "SCORES", "datatype": "FP32", "shape": [2, 1], "data": [0.9, 0.2]},
    {"name": "BOXES", "datatype": "FP32", "shape": [2, 4, 2], "data": [4,9, 24,9, 24,17, 4,17, 0,0, 1,0, 1,1, 0,1]},
    {"name": "geometry", "datatype": "FP32", "shape": [6], "data": [2,2, 0,8, 40,20]}]}`,
		}},
		Inline:    true,
		Signature: linesSignature,
		New: func(s *steps.Settings) (steps.Step, error) {
			threshold, err := s.Float("score_threshold")
			return &lineStep{threshold: float32(threshold), empty: s.Params["empty"] == "true", batched: s.MaxBatch > 0}, err
		},
	}
}

func linesSignature(*steps.Settings) (*config.Signature, error) {
	return &config.Signature{
		Inputs: []config.Port{
			inTexts:        {Name: "TEXTS", DType: tensor.Bytes, Dims: tensor.Of(-1, 1)},
			inScores:       {Name: "SCORES", DType: tensor.FP32, Dims: tensor.Of(-1, 1)},
			inLineBoxes:    {Name: "BOXES", DType: tensor.FP32, Dims: tensor.Of(-1, 4, 2)},
			inLineGeometry: {Name: geometryName, DType: tensor.FP32, Dims: tensor.Of(geometrySize)},
		},
		Outputs: []config.Port{
			{Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(-1)},
			{Name: "SCORE", DType: tensor.FP32, Dims: tensor.Of(-1)},
			{Name: "BOXES", DType: tensor.FP32, Dims: tensor.Of(-1, 4, 2)},
			{Name: "COUNT", DType: tensor.Int32, Dims: tensor.Of(1)},
		},
	}, nil
}

// lineStep is text_lines.
type lineStep struct {
	threshold float32
	empty     bool
	batched   bool
	workers   pool.Of[lines]
}

var _ steps.Step = (*lineStep)(nil)

// line is a text that is returned.
type line struct {
	text  []byte // borrowed
	score float32
	box   [boxSize]float32
}

// lines is the scratch memory of one batch in progress.
type lines struct {
	found []line
	ends  []int
	texts []byte
}

// Run selects the lines of each row.
//
// hot: once the scratch has grown, only the outputs are allocated.
func (s *lineStep) Run(_ context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.workers.Put(w)
	w.found, w.ends, w.texts = w.found[:0], w.ends[:0], w.texts[:0]
	rest := b.In[inTexts].Bytes()
	for row := range b.Rows {
		first := len(w.found)
		var err error
		if rest, err = s.choose(w, b, row, rest); err != nil {
			w.found = w.found[:first]
			b.Fail(row, err)
		}
		w.ends = append(w.ends, len(w.found))
	}
	err := s.write(w, b)
	clear(w.found)
	return err
}

// choose appends the lines of a row, whose texts are at the front of texts, and returns the texts of the next rows.
func (s *lineStep) choose(w *lines, b *backends.Batch, row int, texts []byte) ([]byte, error) {
	n, m := count(&b.In[inTexts], 2), count(&b.In[inLineBoxes], 3)
	g := tensor.Slice[float32](&b.In[inLineGeometry])[row*geometrySize:][:geometrySize]
	err := checkCounts(n, count(&b.In[inScores], 2), m)
	if err == nil {
		err = checkGeometry(g)
	}
	for i := range n {
		text, rest, ok := tensor.NextBytes(texts)
		if texts = rest; !ok {
			return nil, status.Errorf(status.InvalidArg, "input 'TEXTS': expected %d texts in a row, found %d", n, i)
		}
		if err != nil {
			continue
		}
		score := tensor.Slice[float32](&b.In[inScores])[row*n+i]
		if !(score >= s.threshold) || len(text) == 0 && !s.empty {
			continue
		}
		l := line{text: text, score: score}
		copy(l.box[:], tensor.Slice[float32](&b.In[inLineBoxes])[(row*m+i)*boxSize:])
		toSource(&l.box, g)
		w.found = append(w.found, l)
	}
	return texts, err
}

// count returns the extent of a tensor's dimension, counted from the end.
func count(t *tensor.Tensor, back int) int { return int(t.Shape.Dim(t.Shape.Rank() - back)) }

func checkCounts(texts, scores, boxes int) error {
	if scores != texts {
		return status.Errorf(status.InvalidArg, "input 'SCORES': expected %d, one for each text, found %d", texts, scores)
	}
	if boxes < texts {
		return status.Errorf(status.InvalidArg, "input 'BOXES': expected at least %d, one for each text, found %d", texts, boxes)
	}
	return nil
}

func checkGeometry(g []float32) error {
	for i, v := range g {
		if finite := v-v == 0; !finite || i != 2 && i != 3 && v <= 0 {
			return status.Errorf(status.InvalidArg, "input '%s': expected scales above 0, offsets and a size above 0, found %v", geometryName, g)
		}
	}
	return nil
}

// toSource maps the corners of a box to pixels of the source, within its edges. Like PP-OCR's readers it multiplies with the
// size of the source divided by that of the image.
func toSource(box *[boxSize]float32, g []float32) {
	for i := range box {
		axis := i % 2
		box[i] = min(max((box[i]-g[2+axis])*float32(1/float64(g[axis])), 0), g[4+axis])
	}
}

// write allocates and fills the outputs.
func (s *lineStep) write(w *lines, b *backends.Batch) error {
	n, start := 0, 0
	for _, end := range w.ends {
		n, start = max(n, end-start), end
	}
	o := steps.Outputs{Batch: b}
	scores := steps.Alloc[float32](&o, 1, tensor.FP32, steps.Shape(b, s.batched, int64(n)))
	boxes := steps.Alloc[float32](&o, 2, tensor.FP32, steps.Shape(b, s.batched, int64(n), 4, 2))
	counts := steps.Alloc[int32](&o, 3, tensor.Int32, steps.Shape(b, s.batched, 1))
	if o.Err != nil {
		return o.Err
	}
	clear(scores)
	clear(boxes)
	start = 0
	for row, end := range w.ends {
		counts[row] = int32(end - start)
		for i := range n {
			if start+i >= end {
				w.texts = tensor.AppendBytes(w.texts, "")
				continue
			}
			l := &w.found[start+i]
			w.texts = tensor.AppendBytes(w.texts, l.text)
			scores[row*n+i] = l.score
			copy(boxes[(row*n+i)*boxSize:], l.box[:])
		}
		start = end
	}
	return steps.Write(b, 0, tensor.Bytes, steps.Shape(b, s.batched, int64(n)), w.texts)
}

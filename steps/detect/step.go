package detect

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// step is detect.
type step struct {
	options
	batched bool
	labels  steps.Labels
	names   []string // of the inputs of the levels
	workers pool.Of[worker]
}

var _ steps.Step = (*step)(nil)

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	labels, err := s.Labels("labels_file")
	if err != nil {
		return nil, err
	}
	return &step{
		options: *o, batched: s.MaxBatch > 0, labels: labels, names: levelNames(len(o.levels)),
	}, nil
}

// Run finds the boxes of each row.
//
// hot: once the scratch has grown, only the outputs are allocated.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.workers.Put(w)
	w.found, w.ends = w.found[:0], w.ends[:0]
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		first := len(w.found)
		if err := s.one(w, b, row); err != nil {
			w.found = w.found[:first]
			b.Fail(row, err)
		}
		w.ends = append(w.ends, len(w.found))
	}
	return s.write(b, w)
}

// one finds the boxes of one row.
func (s *step) one(w *worker, b *backends.Batch, row int) error {
	var geometry []float32
	if s.geometry {
		all := tensor.Slice[float32](&b.In[len(b.In)-1])
		geometry = all[row*geometrySize:][:geometrySize]
	}
	var err error
	if w.place, err = s.place(geometry); err != nil {
		return err
	}
	w.list = w.list[:0]
	if err := s.decode(w, b, row); err != nil {
		return err
	}
	first := len(w.found)
	w.suppress(&s.options)
	for i := range w.found[first:] {
		c := &w.found[first+i]
		c.box, _ = w.place.move(&c.box)
	}
	return nil
}

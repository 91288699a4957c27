package durable

import (
	"context"
	"encoding/json"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// The bounds of a page of the plan.
const (
	pageChunks = 256
	pageBytes  = 1 << 20
)

// cut is the activity that counts the rows and writes the plan: it reads the dataset once, and writes pages of chunks to
// the output. A plan that is complete is not made again.
func (a *activities) cut(ctx context.Context, p place) (*plan, error) {
	ctx, h := a.beat(ctx, -1)
	defer h.stop()
	done, err := a.cutPlan(ctx, p, h)
	return done, h.cause(fault(err))
}

func (a *activities) cutPlan(ctx context.Context, p place, h *heart) (*plan, error) {
	d := &data{place: p}
	if err := d.read(ctx, a.s); err != nil {
		return nil, err
	}
	done := &plan{}
	switch text, err := d.out.Get(ctx, planKey(p.Run)); {
	case err == nil && json.Unmarshal(text, done) == nil:
		return done, nil
	case err != nil && status.CodeOf(err) != status.NotFound:
		return nil, err
	}
	set, err := dataset.Open(ctx, d.Spec.Input, a.s.Data)
	if err != nil {
		return nil, err
	}
	o := dataset.CutOptions{MaxRows: d.Checked.ChunkRows}
	if d.Spec.ChunkRows > 0 {
		o.MinRows = d.Spec.ChunkRows
	}
	w := pageWriter{d: d}
	for c, err := range set.Select(d.Selected...).Cut(ctx, o) {
		if err != nil {
			return nil, err
		}
		if err = w.add(ctx, c); err != nil {
			return nil, err
		}
		done.Rows += c.Rows
		done.Chunks++
		h.set(done.Rows)
	}
	if err = w.flush(ctx); err != nil {
		return nil, err
	}
	text, err := json.Marshal(done)
	if err != nil {
		return nil, err
	}
	return done, d.out.Put(ctx, planKey(p.Run), text)
}

// pageWriter collects chunks into pages.
type pageWriter struct {
	d     *data
	first int64
	count int64
	text  []byte // the JSON of the page, without its end
}

func (w *pageWriter) add(ctx context.Context, c *dataset.Chunk) error {
	entry, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if w.count >= pageChunks || w.count > 0 && len(w.text)+len(entry) > pageBytes {
		if err = w.flush(ctx); err != nil {
			return err
		}
	}
	if w.count == 0 {
		w.first, w.text = c.Number, append(w.text[:0], '[')
	} else {
		w.text = append(w.text, ',', '\n')
	}
	w.text = append(w.text, entry...)
	w.count++
	return nil
}

func (w *pageWriter) flush(ctx context.Context) error {
	if w.count == 0 {
		return nil
	}
	err := w.d.out.Put(ctx, pageKey(w.d.Run, w.first), append(w.text, ']'))
	w.count = 0
	return err
}

package durable

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// The bounds of a page of the plan.
const (
	pageChunks = 256
	pageBytes  = 1 << 20
)

// cut is the activity that counts the rows and writes the plan: it reads the dataset once, and writes pages of chunks to
// the output. A plan that is complete is not made again, and one that another attempt has begun is continued.
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
	from, w, err := a.begunPlan(ctx, d)
	if err != nil {
		return nil, err
	}
	done, err = a.cutFrom(ctx, w, from, h)
	if from != nil && errors.Is(err, dataset.ErrChanged) { // what the earlier attempt has read: everything is read again
		done, err = a.cutFrom(ctx, a.newPages(d), nil, h)
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(done)
	if err != nil {
		return nil, err
	}
	if err = d.out.Put(ctx, planKey(p.Run), text); err != nil {
		return nil, err
	}
	_ = d.out.Delete(ctx, cutKey(p.Run)) // a small file that no one reads any more
	return done, nil
}

// cutFrom writes the pages of the plan from a chunk on; nil is the first.
func (a *activities) cutFrom(ctx context.Context, w *pageWriter, from *dataset.Chunk, h *heart) (*plan, error) {
	d, done := w.d, &plan{}
	set, err := dataset.Open(ctx, d.Spec.Input, a.s.Data)
	if err != nil {
		return nil, err
	}
	if from == nil {
		err = d.removePages(ctx)
	} else {
		done.Rows, done.Chunks = from.First, from.Number
	}
	if err != nil {
		return nil, err
	}
	turn := a.slice()
	defer turn.yield()
	o := dataset.CutOptions{MinRows: d.Spec.ChunkRows, MaxRows: d.Checked.ChunkRows, From: from, Between: turn.next}
	for c, err := range set.Select(d.Selected...).Cut(ctx, o) {
		if err != nil {
			return nil, err
		}
		turn.yield() // a page may be written
		if err = w.add(ctx, c); err != nil {
			return nil, err
		}
		done.Rows += c.Rows
		done.Chunks++
		h.set(done.Rows)
	}
	return done, w.flush(ctx)
}

// begunPlan returns the chunk with which to continue the plan of an earlier attempt, and the writer of its page. The chunk is nil
// if there is none.
func (a *activities) begunPlan(ctx context.Context, d *data) (*dataset.Chunk, *pageWriter, error) {
	w := a.newPages(d)
	text, err := d.out.Get(ctx, cutKey(d.Run))
	if err != nil && status.CodeOf(err) == status.NotFound {
		return nil, w, nil
	}
	if err != nil {
		return nil, nil, err
	}
	page := savedPage(text)
	if len(page) == 0 || len(page[len(page)-1].Slices) == 0 {
		return nil, w, nil // everything is read again
	}
	last := len(page) - 1
	for i := range page[:last] {
		entry, err := json.Marshal(&page[i])
		if err != nil {
			return nil, nil, err
		}
		w.append(page[i].Number, entry)
	}
	return &page[last], w, nil
}

// savedPage reads chunks of a saved page; none if it is damaged.
func savedPage(text []byte) (page []dataset.Chunk) {
	if err := json.Unmarshal(text, &page); err != nil {
		return nil
	}
	return page
}

// removePages removes what an attempt with another dataset may have written.
func (d *data) removePages(ctx context.Context) error {
	pages, err := d.listPages(ctx)
	for _, first := range pages {
		err = errors.Join(err, d.out.Delete(ctx, pageKey(d.Run, first)))
	}
	return err
}

// pageWriter collects chunks into pages. Every some seconds, and with each page, it saves the page in progress: an attempt that
// follows begins with the last chunk of that, which it cuts again. So it continues at a row whose place in its file is known, and
// the pages are those of an attempt that was not disturbed. A page is written once: one that grew could be replaced with a
// shorter one by an attempt that was cut off and does not know yet that it has been given up.
type pageWriter struct {
	d     *data
	every time.Duration
	saved time.Time
	first int64
	count int64
	text  []byte // the JSON of the page, without its end
}

func (a *activities) newPages(d *data) *pageWriter {
	return &pageWriter{d: d, every: a.segment, saved: time.Now()}
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
	w.append(c.Number, entry)
	if w.count == 1 && c.Number > 0 || time.Since(w.saved) >= w.every {
		w.saved = time.Now()
		return w.d.out.Put(ctx, cutKey(w.d.Run), append(w.text, ']'))
	}
	return nil
}

// append adds a chunk to the page.
func (w *pageWriter) append(number int64, entry []byte) {
	if w.count == 0 {
		w.first, w.text = number, append(w.text[:0], '[')
	} else {
		w.text = append(w.text, ',', '\n')
	}
	w.text = append(w.text, entry...)
	w.count++
}

func (w *pageWriter) flush(ctx context.Context) error {
	if w.count == 0 {
		return nil
	}
	err := w.d.out.Put(ctx, pageKey(w.d.Run, w.first), append(w.text, ']'))
	w.count = 0
	return err
}

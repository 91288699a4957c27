package durable

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// earlier are the results that an output has from other runs with the same recipe, whether they have completed or not. It
// is safe for concurrent use.
type earlier struct {
	parts []string // paths
	whole map[chunkID]*sidecar
	table *table // nil without rows
}

// chunkID finds a chunk that is the same as an earlier one.
type chunkID struct {
	first, rows int64
	sum         string
}

// earlierResults returns the results of earlier runs. A worker collects them once for each job.
func (d *data) earlierResults(ctx context.Context) (*earlier, error) {
	d.earlierMu.Lock()
	defer d.earlierMu.Unlock()
	if d.earlier != nil {
		return d.earlier, nil
	}
	e := &earlier{whole: map[chunkID]*sidecar{}}
	if !d.Spec.Overwrite {
		if err := e.collect(ctx, d); err != nil {
			return nil, err
		}
	}
	d.earlier = e
	return e, nil
}

func (e *earlier) collect(ctx context.Context, d *data) (err error) {
	var b *tableBuilder
	defer func() {
		if b != nil {
			b.discard()
		}
	}()
	for s, err := range sidecars(ctx, d.out, d.Run) {
		if err != nil {
			return err
		}
		if s.Recipe != d.Recipe {
			continue
		}
		if b == nil {
			if b, err = newTableBuilder(""); err != nil {
				return storage(err)
			}
		}
		if err = e.add(b, s); err != nil {
			return storage(err)
		}
	}
	if b != nil {
		e.table, err = b.build()
		b = nil
	}
	return storage(err)
}

// storage is an error of local files, which may pass.
func storage(err error) error {
	if err == nil {
		return nil
	}
	return status.Reasonf(status.StorageUnavailable, "collecting earlier results: %w", err)
}

func (e *earlier) add(b *tableBuilder, s *sidecar) error {
	keys := s.keys
	for i := range s.Parts {
		p := &s.Parts[i]
		number := uint32(len(e.parts))
		e.parts = append(e.parts, p.Path)
		for row := range p.Rows {
			if err := b.add(keys[row], found{number, uint32(row)}); err != nil {
				return err
			}
		}
		keys = keys[p.Rows:]
	}
	if s.whole() && s.count().Failed == 0 {
		s.keys = nil
		e.whole[chunkID{s.First, s.Rows, s.Sum}] = s
	}
	return nil
}

// sidecars reads those of all runs but one. Damaged ones are left out.
func sidecars(ctx context.Context, out *dataset.Output, without string) func(yield func(*sidecar, error) bool) {
	return func(yield func(*sidecar, error) bool) {
		for o, err := range out.List(ctx, indexFolder) {
			if err != nil {
				yield(nil, err)
				return
			}
			if strings.Contains(o.Key, "/"+runID(without)+"/") || path.Ext(o.Key) != ".rows" {
				continue
			}
			s, err := readSidecar(ctx, out, o.Key)
			if err != nil {
				yield(nil, err)
				return
			}
			if s != nil && !yield(s, nil) {
				return
			}
		}
	}
}

// results returns the cells of the rows that have an earlier result, by the numbers of the rows. columns are those of
// the result. A part that cannot be read any more has none.
func (e *earlier) results(ctx context.Context, out *dataset.Output, columns []string, rows []*dataset.Row) (map[int64][]dataset.Cell, error) {
	if e.table == nil {
		return nil, nil
	}
	type want struct {
		at     uint32 // in the part
		number int64
	}
	wanted := map[uint32][]want{}
	var buf []byte
	for _, row := range rows {
		if row.Err != nil {
			continue
		}
		f, ok, b, err := e.table.find(row.Key, buf)
		if err != nil {
			return nil, storage(err)
		}
		if buf = b; ok {
			wanted[f.part] = append(wanted[f.part], want{f.row, row.Number})
		}
	}
	cells := map[int64][]dataset.Cell{}
	for part, list := range wanted {
		slices.SortFunc(list, func(a, b want) int { return int(a.at) - int(b.at) })
		at := list[0].at
		for row, err := range out.Rows(ctx, e.parts[part], int64(at), columns) {
			if err != nil {
				if err = ignore(err, status.NotFound, status.InvalidArg); err != nil {
					return nil, err
				}
				break
			}
			for row.Err == nil && len(list) > 0 && list[0].at == at {
				cells[list[0].number] = row.Cells
				list = list[1:]
			}
			if at++; len(list) == 0 {
				break
			}
		}
	}
	return cells, nil
}

package tune

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/lab"
)

const (
	// growth is how many times larger than the current one the largest max_batch_size is that is tried. If the model does not
	// take it, half of it is tried, and so on.
	growth = 4
	// mostBatch bounds a max_batch_size that is tried.
	mostBatch = 1024
	// sameness is how far a number of a large batch may be from that of a small one, relative to the largest of them:
	// libraries add in another order then.
	sameness = 1e-3
)

// larger sets Largest of each model: how large max_batch_size may become. That is more than now only if the model's file
// declares a batch dimension of any extent, and if a batch of that size gives the responses that its requests have alone.
// inputs are those of a sample at each node.
func (t *tuning) larger(ctx context.Context, over *lab.Overlay, n *Network, inputs [][]client.Tensor) error {
	for i := range n.Models {
		m := &n.Models[i]
		if threadsKey(m.Config.GetBackend()) == "" || m.Current.MaxBatch < 1 || m.Current.MaxBatch*growth > mostBatch {
			continue // the files of other backends declare no batch dimension
		}
		node := slices.IndexFunc(n.Nodes, func(x Node) bool { return x.Model == i })
		var err error
		for times := int32(growth); times > 1; times /= 2 {
			if err = t.tryLarger(ctx, over, m, times*m.Current.MaxBatch, inputs[node]); ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				m.Largest = times * m.Current.MaxBatch
				break
			}
		}
		if err != nil {
			m.Fixed = oneLine(err.Error())
		}
	}
	return nil
}

// tryLarger loads a copy of a model with a larger max_batch_size and executes a sample alone and in a batch of that size. It
// returns why the model cannot have it.
func (t *tuning) tryLarger(ctx context.Context, over *lab.Overlay, m *Model, size int32, inputs []client.Tensor) (err error) {
	set, name := m.Current, m.Name+"--larger"
	set.MaxBatch = size
	if err := t.copyModel(over, m, name, &set); err != nil {
		return err
	}
	l, err := openLab(ctx, t.Settings, over.Dir, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close(ctx)) }()
	if len(inputs) == 0 || len(inputs[0].Shape) == 0 || inputs[0].Shape[0] < 1 {
		return errors.New("its sample has no rows")
	}
	times := max(int(int64(set.MaxBatch)/inputs[0].Shape[0]), 1)
	var outputs [2][]client.Tensor
	for i, copies := range []int{1, times} {
		c, err := l.NewCall(name, 0, inputs, copies)
		if err != nil {
			return err
		}
		outputs[i], err = l.Outputs(ctx, c)
		c.Release()
		if err != nil {
			return err
		}
	}
	return sameRows(outputs[0], outputs[1], times)
}

// sameRows returns an error if a batch of copies of a request has other outputs than the request alone.
func sameRows(alone, batch []client.Tensor, times int) error {
	for i := range alone {
		a := &alone[i]
		k := slices.IndexFunc(batch, func(t client.Tensor) bool { return t.Name == a.Name })
		if k < 0 || len(batch[k].Data) != times*len(a.Data) {
			return fmt.Errorf("output '%s' of a batch of %d requests has not %d times as many bytes as that of one", a.Name, times, times)
		}
		for c := range times {
			if part := batch[k].Data[c*len(a.Data) : (c+1)*len(a.Data)]; !alike(a.DType, a.Data, part) {
				return fmt.Errorf("output '%s' of a request depends on the size of its batch", a.Name)
			}
		}
	}
	return nil
}

// alike reports whether two outputs are equal; of FP32, but for rounding.
func alike(d tensor.DType, a, b []byte) bool {
	if d != tensor.FP32 {
		return slices.Equal(a, b)
	}
	at := func(data []byte, i int) float64 {
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(data[i:])))
	}
	scale := 0.0
	for i := 0; i < len(a); i += d.Size() {
		scale = max(scale, math.Abs(at(a, i)))
	}
	for i := 0; i < len(a); i += d.Size() {
		if x, y := at(a, i), at(b, i); x != y && !(math.Abs(x-y) <= sameness*scale) && !(math.IsNaN(x) && math.IsNaN(y)) {
			return false
		}
	}
	return true
}

// bounded lowers Largest to the largest batch that was measured: beyond it predictions would be guesses.
func (m *Model) bounded(points []*point, model int) {
	measured := m.Current.MaxBatch
	for _, p := range points {
		if p.model == model {
			measured = max(measured, p.batch.Rows)
		}
	}
	m.Largest = min(m.Largest, measured)
}

// beyond returns the mean relative error of a fit over the batches with more than rows, and their number.
func beyond(c *Cost, list []Observation, rows int32) (mean float64, batches int) {
	for i := range list {
		if o := &list[i]; rows > 0 && o.Batch.Rows > rows {
			mean += math.Abs(c.Wall(&o.Batch)/max(float64(o.Wall), 1) - 1)
			batches++
		}
	}
	return mean / max(float64(batches), 1), batches
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

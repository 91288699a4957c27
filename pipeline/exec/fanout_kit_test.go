package exec_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// custom adds a model that is a function of a batch.
func (e *branching) custom(sig *config.Signature, f model) {
	sig.Version = 1
	e.models[sig.Model], e.rows[sig.Model] = plan.Model{Signature: sig}, &atomic.Int64{}
	e.batch[sig.Model] = func(b *backends.Batch) error {
		e.rows[sig.Model].Add(int64(b.Rows))
		return f(b)
	}
}

func port(name string, d tensor.DType, dims ...int64) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(dims...)}
}

// explode adds a model that makes of a number v the items v, v+1, ..., as many as count says, padded with 99 to the longest row of the batch, and their
// count. With widths, an item has width(v) elements and travels in BYTES, with shapes.
func (e *branching) explode(name string, maxBatch int, count, width func(v float32) int) {
	sig := &config.Signature{Model: name, MaxBatch: maxBatch, Inputs: []config.Port{port("INPUT0", tensor.FP32, -1)}}
	if width != nil {
		sig.Outputs = []config.Port{port("OUTPUT0", tensor.Bytes, -1), port("OUTPUT1", tensor.Int32, -1, 1)}
	} else {
		sig.Outputs = []config.Port{port("OUTPUT0", tensor.FP32, -1), port("OUTPUT1", tensor.Int32, 1)}
	}
	e.custom(sig, func(b *backends.Batch) error {
		in := tensor.Slice[float32](&b.In[0])
		most := 0
		for _, v := range in {
			most = max(most, count(v))
		}
		if width == nil {
			return explodePlain(b, in, most, count)
		}
		return explodeRagged(b, in, most, count, width)
	})
}

// rowsOf puts the batch dimension before dims, where there is one.
func rowsOf(b *backends.Batch, n int, dims ...int64) tensor.Shape {
	if b.Rows == 0 || b.In[0].Shape.Rank() == 1 {
		return tensor.Of(dims...)
	}
	return tensor.Of(append([]int64{int64(n)}, dims...)...)
}

func explodePlain(b *backends.Batch, in []float32, most int, count func(v float32) int) error {
	out, err := b.Alloc(0, tensor.FP32, rowsOf(b, len(in), int64(most)))
	if err != nil {
		return err
	}
	counts, err := b.Alloc(1, tensor.Int32, rowsOf(b, len(in), 1))
	if err != nil {
		return err
	}
	for i, v := range in {
		n := count(v)
		tensor.Slice[int32](counts)[i] = int32(n)
		for k := range most {
			dst := &tensor.Slice[float32](out)[i*most+k]
			if *dst = 99; k < n {
				*dst = v + float32(k)
			}
		}
	}
	return nil
}

func explodeRagged(b *backends.Batch, in []float32, most int, count, width func(v float32) int) error {
	var data []byte
	var shapes []int32
	for _, v := range in {
		for k := range most {
			var item []byte
			if k < count(v) {
				for range width(v + float32(k)) {
					item = binary.LittleEndian.AppendUint32(item, math.Float32bits(v+float32(k)))
				}
			}
			data, shapes = tensor.AppendBytes(data, item), append(shapes, int32(len(item)/4))
		}
	}
	out, err := b.AllocBytes(0, rowsOf(b, len(in), int64(most)), len(data))
	if err != nil {
		return err
	}
	copy(out.Bytes(), data)
	s, err := b.Alloc(1, tensor.Int32, rowsOf(b, len(in), int64(most), 1))
	if err != nil {
		return err
	}
	copy(tensor.Slice[int32](s), shapes)
	return nil
}

// sum adds a model that adds the elements of each row of dims.
func (e *branching) sum(name string, maxBatch int, dims ...int64) {
	sig := &config.Signature{Model: name, MaxBatch: maxBatch, Inputs: []config.Port{port("INPUT0", tensor.FP32, dims...)}, Outputs: []config.Port{port("OUTPUT0", tensor.FP32, -1)}}
	e.custom(sig, func(b *backends.Batch) error {
		n := 1
		if maxBatch > 0 {
			n = b.Rows
		}
		shape := tensor.Of(1)
		if maxBatch > 0 {
			shape = shape.Prepend(int64(n))
		}
		out, err := b.Alloc(0, tensor.FP32, shape)
		if err != nil {
			return err
		}
		in := tensor.Slice[float32](&b.In[0])
		for i := range n {
			s := float32(0)
			for _, v := range in[i*len(in)/n : (i+1)*len(in)/n] {
				s += v
			}
			tensor.Slice[float32](out)[i] = s
		}
		return nil
	})
}

// addSplit adds the step of an exploding model, divided into items.
func (e *branching) addSplit(model, items, second, in string, ragged bool) {
	addStep(e.cfg, model, items, in)
	steps := e.cfg.GetEnsembleScheduling().Step
	steps[len(steps)-1].OutputMap["OUTPUT1"] = second
	if ragged {
		steps[len(steps)-1].OutputMap["OUTPUT0"] = items + "_data"
		e.param("step."+model+".demux", fmt.Sprintf(`{"%s": {"of": "%s_data", "shapes": "%s", "type": "TYPE_FP32"}}`, items, items, second))
		return
	}
	e.param("step."+model+".demux", items)
	e.param("step."+model+".counts", second)
}

// output declares an output of the ensemble.
func (e *branching) output(name string, d modelconfig.DataType, dims ...int64) {
	e.cfg.Output = append(e.cfg.Output, &modelconfig.ModelOutput{Name: name, DataType: d, Dims: dims})
}

// modulo returns the int of a number, modulo n.
func modulo(n int) func(v float32) int {
	return func(v float32) int { return ((int(v) % n) + n) % n }
}

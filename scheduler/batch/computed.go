package batch

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
)

// values writes integers as INT32 or FP32.
type values struct {
	dst   []byte
	float bool
	wide  bool // a number is too large for INT32
}

func (v *values) put(n int64) {
	bits := uint32(n) //nolint:gosec // wide is set
	if v.float {
		bits = math.Float32bits(float32(n))
	} else {
		v.wide = v.wide || n > math.MaxInt32
	}
	binary.LittleEndian.PutUint32(v.dst, bits)
	v.dst = v.dst[4:]
}

// counts writes the number of elements of each request, or the running sums. For example, requests of
// 2 and 3 elements: 2 3, or 2 5.
func (v *values) counts(list *scheduler.TaskList, c *config.Computed) {
	sums := c.Kind != modelconfig.BatchInput_BATCH_ELEMENT_COUNT
	if c.Kind == modelconfig.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO {
		v.put(0)
	}
	sum := int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		if !sums {
			sum = 0
		}
		sum += elementsOf(&w.In[c.Source])
		v.put(sum)
	}
}

// rows writes the shape of a row once per row of t.
func (v *values) rows(t *tensor.Tensor) {
	if !t.Present() || t.Shape.Rank() == 0 {
		return
	}
	dims := t.Shape.Dims()
	for range dims[0] {
		for _, d := range dims[1:] {
			v.put(d)
		}
	}
}

//go:build cgo

package tensorrt

import (
	"math"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// choose returns the execution whose profile allows the shapes and values of the batch and whose best ones are nearest to them: the sum
// of the distances of all extents is smallest, as in Triton.
func (x *instance) choose(rows int) (*execution, error) {
	var best *execution
	shortest := int64(math.MaxInt64)
	for i := range x.executions {
		if d, ok := x.distance(x.executions[i].profile); ok && d < shortest {
			best, shortest = &x.executions[i], d
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, x.outside(rows)
}

// distance returns how far the batch is from the best shapes of a profile, and false when the profile does not allow it.
func (x *instance) distance(profile int) (sum int64, ok bool) {
	for i := range x.m.In {
		n := &x.m.In[i].Native
		switch {
		case n.shape && profile < len(n.values):
			at, d := n.values[profile].find(x.values[i])
			if at >= 0 {
				return 0, false
			}
			sum += d
		case !n.shape && profile < len(n.ranges) && len(n.ranges[profile].low) > 0:
			at, d := n.ranges[profile].find(x.dims[i].dims())
			if at >= 0 {
				return 0, false
			}
			sum += d
		}
	}
	return sum, true
}

// find returns the first extent that is out of bounds, or -1 and the distance to the best ones. Another number of extents counts as
// extent 0.
func (b *bounds) find(dims []int64) (at int, distance int64) {
	if len(dims) != len(b.low) || len(dims) != len(b.high) {
		return 0, 0
	}
	for k, d := range dims {
		if d < b.low[k] || d > b.high[k] {
			return k, 0
		}
		if k < len(b.best) {
			distance += max(d-b.best[k], b.best[k]-d)
		}
	}
	return -1, distance
}

// outside returns the error of a batch that no profile of the instance allows. It names the first input that the first profile refuses.
func (x *instance) outside(rows int) error {
	var list []string
	for i := range x.executions {
		list = append(list, strconv.Itoa(x.executions[i].profile))
	}
	note := ""
	if len(list) > 1 {
		note = "; none of the optimization profiles " + strings.Join(list, ", ") + " supports the requested dimensions (or shape values)"
	}
	profile := x.executions[0].profile
	for i := range x.m.In {
		n := &x.m.In[i].Native
		what, have, all := "shape of dimension", x.dims[i].dims(), n.ranges
		if n.shape {
			what, have, all = "shape value", x.values[i], n.values
		}
		if profile >= len(all) || !n.shape && len(all[profile].low) == 0 {
			continue
		}
		b := &all[profile]
		at, _ := b.find(have)
		switch {
		case at < 0:
			continue
		case len(have) != len(b.low):
			return x.m.InputErrorf(i, status.InvalidArg, "model expected %d dimensions but received %d dimensions%s", len(b.low), len(have), note)
		}
		return x.m.InputErrorf(i, status.InvalidArg, "request specifies invalid shape %s in a batch of %d: model expected the %s %d to be between %d and %d (profile %d) but received %d%s",
			tensor.Of(have...), rows, what, at, b.low[at], b.high[at], profile, have[at], note)
	}
	return x.m.Errorf(status.InvalidArg, "no optimization profile of the instance supports the requested dimensions%s", note)
}

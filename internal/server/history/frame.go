package history

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"

	"github.com/tutti-server/tutti/internal/inspect"
)

// frame has the figures of one step of time: those of the server, and a point for each model that had something to do. A frame is
// immutable.
type frame struct {
	start, end int64 // ns, on the clock of telemetry.Now in memory, and since 1970 in the file
	server     serverPoint
	points     []point // ascending by series
}

// serverPoint are the means of the server's figures in a step.
type serverPoint struct {
	Cores   float64    `json:"cores"`
	Memory  float64    `json:"memory"`
	Tensors float64    `json:"tensors"`
	GPUs    []gpuPoint `json:"gpus,omitempty"`
}

// gpuPoint are the figures of a GPU. What it does not report is nil.
type gpuPoint struct {
	UUID        string   `json:"uuid"`
	Utilization *float64 `json:"utilization"`
	Memory      *float64 `json:"memory"`
}

// point are the figures of one model in a step.
type point struct {
	series                               uint32 // the number of its name
	requests, failures, rows, executions uint32
	waiting                              uint32 // the most requests that waited for an instance at the end of a part of the step
	p50, p99                             float32
	queueNs, computeNs                   float32 // sums over requests
}

const pointBytes = 40 // of a point, in memory and in the file

// idle reports whether a model had nothing to do.
func (p *point) idle() bool {
	return p.requests|p.failures|p.rows|p.executions|p.waiting == 0
}

// add adds the figures of a later step.
func (p *point) add(q *point) {
	n, m := float32(p.requests)+float32(p.failures), float32(q.requests)+float32(q.failures)
	switch {
	case p.p50 == 0:
		p.p50 = q.p50
	case q.p50 != 0 && n+m > 0:
		p.p50 = (p.p50*n + q.p50*m) / (n + m)
	}
	p.p99, p.waiting = max(p.p99, q.p99), max(p.waiting, q.waiting)
	p.requests, p.failures = plus(p.requests, q.requests), plus(p.failures, q.failures)
	p.rows, p.executions = plus(p.rows, q.rows), plus(p.executions, q.executions)
	p.queueNs, p.computeNs = p.queueNs+q.queueNs, p.computeNs+q.computeNs
}

// plus adds without an overflow.
func plus(a, b uint32) uint32 { return count(uint64(a) + uint64(b)) }

// count returns n as a number of a point.
func count(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) } //nolint:gosec // it is bounded

// merge returns the frame of consecutive frames, oldest first.
func merge(list []frame) frame {
	m := frame{start: list[0].start, end: list[len(list)-1].end, server: list[len(list)-1].server}
	m.server.Cores, m.server.Memory, m.server.Tensors = 0, 0, 0
	total := 0.0
	at := map[uint32]int{}
	for i := range list {
		f := &list[i]
		took := float64(f.end - f.start)
		total += took
		m.server.Cores += f.server.Cores * took
		m.server.Memory += f.server.Memory * took
		m.server.Tensors += f.server.Tensors * took
		for j := range f.points {
			p := &f.points[j]
			k, ok := at[p.series]
			if !ok {
				at[p.series] = len(m.points)
				m.points = append(m.points, *p)
				continue
			}
			m.points[k].add(p)
		}
	}
	if total > 0 {
		m.server.Cores, m.server.Memory, m.server.Tensors = m.server.Cores/total, m.server.Memory/total, m.server.Tensors/total
	}
	m.points = slices.Clip(m.points)
	sortPoints(m.points)
	return m
}

func sortPoints(list []point) {
	slices.SortFunc(list, func(a, b point) int { return int(int64(a.series) - int64(b.series)) })
}

// before returns the part of a frame before a time.
func (f *frame) before(t int64) frame {
	share := float64(t-f.start) / float64(f.end-f.start)
	x := frame{start: f.start, end: t, server: f.server, points: slices.Clone(f.points)}
	for i := range x.points {
		p := &x.points[i]
		for _, n := range []*uint32{&p.requests, &p.failures, &p.rows, &p.executions} {
			*n = uint32(math.Round(share * float64(*n)))
		}
		p.queueNs, p.computeNs = float32(share)*p.queueNs, float32(share)*p.computeNs
	}
	return x
}

// sent returns the requests that were sent, successful or not.
func (p *point) sent() float64 { return float64(p.requests) + float64(p.failures) }

// serverPointOf returns the figures of a server that used cores.
func serverPointOf(v *inspect.ServerView, cores float64) serverPoint {
	p := serverPoint{Cores: cores, Memory: float64(v.Memory), Tensors: float64(v.Tensors)}
	for _, g := range v.GPUs {
		p.GPUs = append(p.GPUs, gpuPoint{UUID: g.UUID, Utilization: g.Utilization, Memory: g.MemoryUsed})
	}
	return p
}

// encodePoints returns points as bytes, with the numbers of series that the file has.
func encodePoints(list []point) []byte {
	b := make([]byte, 0, pointBytes*len(list))
	for i := range list {
		p := &list[i]
		for _, n := range []uint32{
			p.series, p.requests, p.failures, p.rows, p.executions, p.waiting,
			math.Float32bits(p.p50), math.Float32bits(p.p99), math.Float32bits(p.queueNs), math.Float32bits(p.computeNs),
		} {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
	}
	return b
}

// decodePoints returns the points of bytes. It ignores a rest, and sorts points that are not in order.
func decodePoints(b []byte) []point {
	list := make([]point, len(b)/pointBytes)
	for i := range list {
		at := b[i*pointBytes:]
		n := func(k int) uint32 { return binary.LittleEndian.Uint32(at[4*k:]) }
		f := func(k int) float32 { return math.Float32frombits(n(k)) }
		list[i] = point{
			series: n(0), requests: n(1), failures: n(2), rows: n(3), executions: n(4), waiting: n(5), p50: f(6), p99: f(7), queueNs: f(8), computeNs: f(9),
		}
	}
	if !slices.IsSortedFunc(list, func(a, b point) int { return int(int64(a.series) - int64(b.series)) }) {
		sortPoints(list)
	}
	return list
}

func encodeServer(p *serverPoint) string {
	b, err := json.Marshal(p)
	if err != nil {
		return "{}" // a figure that is no number
	}
	return string(b)
}

func decodeServer(s string) (p serverPoint) {
	_ = json.Unmarshal([]byte(s), &p) // what cannot be read is zero
	return p
}

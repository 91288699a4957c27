// Package embed holds the step "nearest": exact search for the stored vectors that are closest to an embedding. For example, with rows
// [1 0], [0 2] and [3 3] and the cosine, the two nearest rows to [2 1] are row 2 (0.95) and row 0 (0.89).
package embed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

const (
	outScores = iota
	outIndices
	outIDs
)

// NewFactory returns the step "nearest".
//
// Input embedding is FP32 [D]. Outputs are scores FP32 [k], descending; indices INT64 [k], rows of the matrix; and with ids_file ids
// BYTES [k]. Every row is compared; rows of equal score stay in order. Products are summed in FP32, in an order that depends on the
// processor, so that scores may differ in their last bits between machines. The cosine with a vector of zeros is 0. Rows whose product
// is beyond FP32 may be missing; the rest of the outputs then has index -1 and an empty id. A matrix with a number that is not finite
// fails to load, an embedding with one fails its request.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "nearest",
		Doc: "Finds the k stored vectors that are closest to an embedding, by comparing it with all of them. The vectors are the " +
			"rows of a matrix in a file of NumPy's format. An embedding with a number that is not finite fails its request.",
		Params: []steps.Param{
			{Key: "matrix_file", Doc: "NPY file of FP32 or FP64 numbers, one vector per row, in the version folder or the model folder.", Required: true, Sample: "vectors.npy"},
			{Key: "k", Doc: "Number of vectors to return.", Default: "5"},
			{Key: "metric", Doc: "The score: the cosine of the angle, or the inner product (dot).", Default: "cosine", Values: []string{"cosine", "dot"}},
			{Key: "ids_file", Doc: "Text file with one line per vector; adds the output ids.", Sample: "ids.txt"},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("max_batch_size: 8", "nearest", "matrix_file", "vectors.npy", "k", "2", "ids_file", "ids.txt"),
			Files: map[string][]byte{
				"vectors.npy": encode([][]float32{{1, 0}, {0, 2}, {3, 3}}),
				"ids.txt":     []byte("east\nnorth\nnorth-east\n"),
			},
			Request: `{"inputs": [{"name": "embedding", "datatype": "FP32", "shape": [1, 2], "data": [2, 1]}]}`,
		}},
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	n, err := s.Int("k", 1)
	if err != nil {
		return nil, err
	}
	k := tensor.Of(int64(n))
	sig := &config.Signature{
		Inputs: []config.Port{{Name: "embedding", DType: tensor.FP32, Dims: tensor.Of(-1)}},
		Outputs: []config.Port{
			outScores:  {Name: "scores", DType: tensor.FP32, Dims: k},
			outIndices: {Name: "indices", DType: tensor.Int64, Dims: k},
		},
	}
	if s.Params["ids_file"] != "" {
		sig.Outputs = append(sig.Outputs, config.Port{Name: "ids", DType: tensor.Bytes, Dims: k})
	}
	return sig, nil
}

type step struct {
	matrix
	k       int
	cosine  bool
	batched bool
	ids     steps.Labels
	workers pool.Of[worker]
}

// worker is the memory of one batch.
type worker struct {
	best  []hit     // k for each row
	units []float32 // the embeddings at length 1, for the cosine
}

type hit struct {
	score float32
	row   int32
}

func newStep(s *steps.Settings) (steps.Step, error) {
	k, err := s.Int("k", 1)
	if err != nil {
		return nil, err
	}
	path, err := s.Find(s.Params["matrix_file"])
	if err != nil {
		return nil, err
	}
	m, err := readMatrix(path)
	if err != nil {
		return nil, fmt.Errorf("matrix file '%s' of model '%s': %w", s.Params["matrix_file"], s.Model, err)
	}
	ids, err := s.Labels("ids_file")
	switch {
	case err != nil:
		return nil, err
	case k > m.rows:
		return nil, fmt.Errorf("parameter 'k' of model '%s' is %d, expected at most %d, the rows of matrix_file", s.Model, k, m.rows)
	case ids != nil && len(ids) != m.rows:
		return nil, fmt.Errorf("ids file '%s' of model '%s': expected %d lines, one for each row of matrix_file, found %d", s.Params["ids_file"], s.Model, m.rows, len(ids))
	}
	out := &step{matrix: *m, k: k, cosine: s.Params["metric"] == "cosine", batched: s.MaxBatch > 0, ids: ids}
	if err := s.CheckWidth(out.check); err != nil {
		return nil, err
	}
	for at := 0; out.cosine && at < len(out.data); at += out.width {
		unit(out.data[at:][:out.width], out.data[at:][:out.width])
	}
	return out, nil
}

// unit writes v scaled to length 1 to out. A vector of zeros stays.
func unit(out, v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	n := 0.0
	if sum > 0 {
		n = 1 / math.Sqrt(sum)
	}
	for i, x := range v {
		out[i] = float32(float64(x) * n)
	}
}

func (s *step) check(width int) error {
	if width != s.width {
		return status.Errorf(status.InvalidArg, "input 'embedding': expected %d numbers, as the rows of matrix_file have, found %d", s.width, width)
	}
	return nil
}

// Run searches for each row.
//
// hot: no allocation but the outputs' once the scratch has grown.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	in := &b.In[0]
	if err := s.check(int(in.Shape.Dim(in.Shape.Rank() - 1))); err != nil {
		return err
	}
	w := s.workers.Get()
	defer s.workers.Put(w)
	queries := s.prepare(w, b, tensor.Slice[float32](in))
	if err := s.search(ctx, w, queries, b.Rows); err != nil {
		return err
	}
	return s.write(b, w)
}

// prepare empties the scratch, fails the requests of embeddings that are not finite,
// and returns the vectors to compare.
func (s *step) prepare(w *worker, b *backends.Batch, queries []float32) []float32 {
	w.best = slices.Grow(w.best[:0], b.Rows*s.k)[:b.Rows*s.k]
	for i := range w.best {
		w.best[i] = hit{float32(math.Inf(-1)), noRow}
	}
	for row := range b.Rows {
		v := queries[row*s.width:][:s.width]
		if i := slices.IndexFunc(v, func(x float32) bool { return x-x != 0 }); i >= 0 {
			b.Fail(row, status.Errorf(status.InvalidArg, "input 'embedding': expected finite numbers, found %v at %d", v[i], i))
		}
	}
	if !s.cosine {
		return queries
	}
	w.units = slices.Grow(w.units[:0], len(queries))[:len(queries)]
	for at := 0; at < len(queries); at += s.width {
		unit(w.units[at:][:s.width], queries[at:][:s.width])
	}
	return w.units
}

// noRow is the row of a hit without a vector: products beyond FP32 are never hits.
const noRow = math.MaxInt32

// block is the size of the part of the matrix, in numbers, that is compared with all rows before the next part.
const block = 64 << 10

// search finds the best vectors of each row. A block stays in the processor's cache while all rows are compared with it.
func (s *step) search(ctx context.Context, w *worker, queries []float32, rows int) error {
	most := max(block/s.width, 1)
	for first := 0; first < s.rows; first += most {
		if err := ctx.Err(); err != nil {
			return err
		}
		last := min(first+most, s.rows)
		for row := range rows {
			best, q := w.best[row*s.k:][:s.k], queries[row*s.width:][:s.width]
			for i := first; i < last; i++ {
				if v := dot(q, s.data[i*s.width:][:s.width]); v > best[0].score || v == best[0].score && best[0].row == noRow {
					best[0] = hit{v, int32(i)}
					sink(best, 0)
				}
			}
		}
	}
	for row := range rows {
		slices.SortFunc(w.best[row*s.k:][:s.k], func(a, b hit) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.row, b.row)) })
	}
	return nil
}

// sink moves element i of the heap down. The worst element is first.
func sink(best []hit, i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(best); c++ {
			if a, b := best[c], best[least]; a.score < b.score || a.score == b.score && a.row > b.row {
				least = c
			}
		}
		if least == i {
			return
		}
		best[i], best[least] = best[least], best[i]
		i = least
	}
}

func (s *step) write(b *backends.Batch, w *worker) error {
	shape, o := steps.Shape(b, s.batched, int64(s.k)), steps.Outputs{Batch: b}
	scores := steps.Alloc[float32](&o, outScores, tensor.FP32, shape)
	indices := steps.Alloc[int64](&o, outIndices, tensor.Int64, shape)
	if o.Err != nil {
		return o.Err
	}
	for i, h := range w.best {
		if scores[i], indices[i] = h.score, int64(h.row); s.cosine {
			scores[i] = min(max(h.score, -1), 1)
		}
		if h.row == noRow {
			indices[i] = -1
		}
	}
	return steps.WriteLabels(b, outIDs, shape, s.ids, indices)
}

// matrix holds vectors one after the other.
type matrix struct {
	rows, width int
	data        []float32
}

const magic = "\x93NUMPY"

var (
	descrField = regexp.MustCompile(`'descr':\s*'([^']*)'`)
	orderField = regexp.MustCompile(`'fortran_order':\s*(True|False)`)
	shapeField = regexp.MustCompile(`'shape':\s*\(([0-9]+), *([0-9]+),?\)`)
)

// errFormat is the error for a file that is not in NumPy's format.
var errFormat = errors.New("expected a file of NumPy's NPY format")

// readMatrix reads an NPY file: https://numpy.org/neps/nep-0001-npy-format.html.
func readMatrix(path string) (*matrix, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseMatrix(data)
}

func parseMatrix(data []byte) (*matrix, error) {
	header, data, err := split(data)
	if err != nil {
		return nil, err
	}
	descr, order, shape := descrField.FindSubmatch(header), orderField.FindSubmatch(header), shapeField.FindSubmatch(header)
	switch {
	case descr == nil || order == nil:
		return nil, errFormat
	case string(order[1]) == "True":
		return nil, errors.New("expected rows one after the other, found Fortran order")
	case shape == nil:
		return nil, errors.New("expected a shape of two dimensions")
	}
	size := map[string]int{"<f4": 4, "<f8": 8}[string(descr[1])]
	if size == 0 {
		return nil, fmt.Errorf("expected numbers of type <f4 or <f8, found %s", descr[1])
	}
	rows, err1 := strconv.ParseInt(string(shape[1]), 10, 32)
	width, err2 := strconv.ParseInt(string(shape[2]), 10, 32)
	if err1 != nil || err2 != nil || rows < 1 || width < 1 || rows*width != int64(len(data)/size) || len(data)%size != 0 {
		return nil, fmt.Errorf("expected (%s, %s) numbers, at least one, found %d bytes", shape[1], shape[2], len(data))
	}
	m := &matrix{int(rows), int(width), make([]float32, rows*width)}
	for i := range m.data {
		if size == 4 {
			m.data[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		} else {
			m.data[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:])))
		}
		if v := m.data[i]; v-v != 0 {
			return nil, fmt.Errorf("expected finite numbers of FP32, found %v in row %d", v, i/m.width)
		}
	}
	return m, nil
}

// split returns the header and the numbers.
func split(data []byte) (header, rest []byte, err error) {
	if len(data) < 12 || !bytes.HasPrefix(data, []byte(magic)) {
		return nil, nil, errFormat
	}
	start, n := 10, uint64(binary.LittleEndian.Uint16(data[8:]))
	if data[6] > 1 {
		start, n = 12, uint64(binary.LittleEndian.Uint32(data[8:]))
	}
	if n > uint64(len(data)-start) {
		return nil, nil, errFormat
	}
	return data[start:][:n], data[start+int(n):], nil
}

func encode(rows [][]float32) []byte {
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }\n", len(rows), len(rows[0]))
	out := append([]byte(magic), 1, 0)
	out = binary.LittleEndian.AppendUint16(out, uint16(len(text)))
	out = append(out, text...)
	for _, r := range rows {
		for _, v := range r {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

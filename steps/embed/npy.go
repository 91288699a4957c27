package embed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
)

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

// encode writes rows as an NPY file.
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

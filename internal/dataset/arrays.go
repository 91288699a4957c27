package dataset

import (
	"archive/zip"
	"bytes"
	"io"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Array is an array of numpy. Data has its elements in row-major order, little-endian.
type Array struct {
	Name  string // empty for the only one of a .npy
	DType tensor.DType
	Shape []int64
	Data  []byte
}

// IsArrays reports whether the content of a file is that of a .npy or .npz.
func IsArrays(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\x93NUMPY")) || bytes.HasPrefix(data, []byte("PK\x03\x04"))
}

// ReadArrays returns the arrays in the content of a .npy or .npz. The only array of a .npy shares memory with data.
func ReadArrays(data []byte) ([]Array, error) {
	if bytes.HasPrefix(data, []byte("\x93NUMPY")) {
		a, err := readArray("", data)
		return []Array{a}, err
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fileError(err, "not a zip file of arrays")
	}
	var list []Array
	for _, e := range z.File {
		name, ok := strings.CutSuffix(e.Name, ".npy")
		if !ok {
			continue
		}
		a, err := readEntry(name, e)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, status.Errorf(status.InvalidArg, "the file has no arrays")
	}
	return list, nil
}

func readEntry(name string, e *zip.File) (Array, error) {
	r, err := e.Open()
	if err != nil {
		return Array{}, fileError(err, "array '"+name+"'")
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return Array{}, fileError(err, "array '"+name+"'")
	}
	return readArray(name, data)
}

func readArray(name string, data []byte) (Array, error) {
	a := &array{name: name}
	if err := a.readHeader(bytes.NewReader(data)); err != nil {
		return Array{}, err
	}
	data = data[a.start:]
	if need := a.rows * a.size; int64(len(data)) != need {
		return Array{}, status.Errorf(status.InvalidArg, "array '%s' has %d bytes, and its header says %d", name, len(data), need)
	}
	if a.swap {
		data = bytes.Clone(data)
		swapBytes(data, a.dtype.Size())
	}
	return Array{Name: name, DType: a.dtype, Shape: append([]int64{a.rows}, a.shape...), Data: data}, nil
}

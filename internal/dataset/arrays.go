package dataset

import (
	"archive/zip"
	"bytes"
	"io"
	"strconv"
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

// maxArrays bounds the bytes of all arrays in a .npz: a compressed file of a megabyte may have a gigabyte of zeros.
const maxArrays = 1 << 30

// ReadArrays returns the arrays in the content of a .npy or .npz. The only array of a .npy shares memory with data. Those of a .npz may have
// 1 GiB together.
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
	left := int64(maxArrays)
	for _, e := range z.File {
		name, ok := strings.CutSuffix(e.Name, ".npy")
		if !ok {
			continue
		}
		a, err := readEntry(name, e, left)
		if err != nil {
			return nil, err
		}
		left -= int64(len(a.Data))
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, status.Errorf(status.InvalidArg, "the file has no arrays")
	}
	return list, nil
}

// readEntry reads an array that may have at most some bytes. No more is decompressed than its header says.
func readEntry(name string, e *zip.File, most int64) (Array, error) {
	r, err := e.Open()
	if err != nil {
		return Array{}, fileError(err, "array '"+name+"'")
	}
	defer r.Close()
	a := &array{name: name}
	if err := a.readHeader(r); err != nil {
		return Array{}, fileError(err, "array '"+name+"'")
	}
	need := a.rows * a.size
	if need > most {
		return Array{}, status.Errorf(status.InvalidArg, "array '%s' has %d bytes by its header, and the arrays of a file may have %d together", name, need, maxArrays)
	}
	data, err := io.ReadAll(io.LimitReader(r, need+1)) // the end is reached, where the checksum is checked
	if err != nil {
		return Array{}, fileError(err, "array '"+name+"'")
	}
	return a.of(data)
}

func readArray(name string, data []byte) (Array, error) {
	a := &array{name: name}
	if err := a.readHeader(bytes.NewReader(data)); err != nil {
		return Array{}, err
	}
	data = data[a.start:]
	if a.swap {
		data = bytes.Clone(data)
	}
	return a.of(data)
}

// of returns the array with its elements, which it may change.
func (a *array) of(data []byte) (Array, error) {
	if need := a.rows * a.size; int64(len(data)) != need {
		return Array{}, status.Errorf(status.InvalidArg, "array '%s' has %s bytes, and its header says %d", a.name, found(len(data), need), need)
	}
	if a.swap {
		swapBytes(data, a.dtype.Size())
	}
	return Array{Name: a.name, DType: a.dtype, Shape: append([]int64{a.rows}, a.shape...), Data: data}, nil
}

// found says how many bytes there are: those of a compressed array that has too many are not counted.
func found(n int, need int64) string {
	if int64(n) > need {
		return "more than " + strconv.FormatInt(need, 10)
	}
	return strconv.Itoa(n)
}

package capture

import (
	"archive/zip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/tensor"
)

// array is the content of one .npy file.
type array struct {
	name  string
	descr string // NumPy's name of the type
	shape []int64
	data  []byte
}

// descrs are NumPy's names of the types that are stored unchanged.
var descrs = [...]string{
	tensor.Bool: "|b1", tensor.Uint8: "|u1", tensor.Uint16: "<u2", tensor.Uint32: "<u4", tensor.Uint64: "<u8",
	tensor.Int8: "|i1", tensor.Int16: "<i2", tensor.Int32: "<i4", tensor.Int64: "<i8",
	tensor.FP16: "<f2", tensor.FP32: "<f4", tensor.FP64: "<f8", tensor.BF16: "<u2",
}

func arrays(name string, x *capturedTensor) []array {
	count := x.shape.Elements()
	if x.dtype == tensor.Bytes {
		if elems, ok := elements(x.data, count); ok {
			return texts(name, x, elems)
		}
	} else if size := x.dtype.Size(); size > 0 && count >= 0 && len(x.data)%size == 0 && int64(len(x.data)/size) == count {
		return []array{{name, descrs[x.dtype], x.shape.Dims(), x.data}}
	}
	return []array{{name, "|u1", []int64{int64(len(x.data))}, x.data}}
}

// elements splits a BYTES tensor; ok is false unless it has exactly count elements.
func elements(b []byte, count int64) (list [][]byte, ok bool) {
	for len(b) > 0 {
		elem, rest, whole := tensor.NextBytes(b)
		if !whole {
			return nil, false
		}
		list, b = append(list, elem), rest
	}
	return list, int64(len(list)) == count
}

const roomy = 64 << 10 // how much larger an array of fixed width may be than its texts

// texts returns the arrays of a BYTES tensor. Fixed-width bytes are not always possible: NumPy drops zeros at the
// end, and one long text makes every element long.
func texts(name string, x *capturedTensor, elems [][]byte) []array {
	width, exact := 1, true
	for _, e := range elems {
		width = max(width, len(e))
		exact = exact && (len(e) == 0 || e[len(e)-1] != 0)
	}
	if exact && width*len(elems) <= 2*len(x.data)+roomy {
		data := make([]byte, width*len(elems))
		for i, e := range elems {
			copy(data[i*width:], e)
		}
		return []array{{name, "|S" + strconv.Itoa(width), x.shape.Dims(), data}}
	}
	data, offsets := make([]byte, 0, len(x.data)), make([]byte, 8, 8*len(elems)+8)
	for _, e := range elems {
		data = append(data, e...)
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(data)))
	}
	var shape []byte
	for _, d := range x.shape.Dims() {
		shape = binary.LittleEndian.AppendUint64(shape, uint64(d)) //nolint:gosec // not negative
	}
	return []array{
		{name + ".data", "|u1", []int64{int64(len(data))}, data},
		{name + ".offsets", "<i8", []int64{int64(len(elems)) + 1}, offsets},
		{name + ".shape", "<i8", []int64{int64(x.shape.Rank())}, shape},
	}
}

const headerUnit = 64 // the alignment of a header's size

// write writes a .npy file of version 1.0.
func (a array) write(w io.Writer) error {
	shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(a.shape), "[]"), " ", ", ")
	if len(a.shape) == 1 {
		shape += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", a.descr, shape)
	head := []byte("\x93NUMPY\x01\x00")
	start := len(head) + 2
	size := (start+len(text)+headerUnit)/headerUnit*headerUnit - start // with the newline
	head = binary.LittleEndian.AppendUint16(head, uint16(size))        //nolint:gosec // a shape is short
	head = fmt.Appendf(head, "%-*s\n", size-1, text)
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(a.data)
	return err
}

const aboutName = "__capture__" // the name of the array that lists all tensors

func (h *snapshot) writeNPZ(w io.Writer) error {
	about, err := json.Marshal(h.list(false))
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	put := func(a array) error {
		f, err := z.CreateHeader(&zip.FileHeader{Name: a.name + ".npy", Method: zip.Store})
		if err != nil {
			return err
		}
		return a.write(f)
	}
	if err := put(array{aboutName, "|u1", []int64{int64(len(about))}, about}); err != nil {
		return err
	}
	for i, name := range h.names() {
		if !h.tensors[i].hasContent {
			continue
		}
		for _, a := range arrays(name, &h.tensors[i]) {
			if err := put(a); err != nil {
				return err
			}
		}
	}
	return z.Close()
}

// fileName returns a name that is safe in archives: it cannot leave its folder.
func fileName(name string) string {
	if !utf8.ValidString(name) {
		name = strings.ToValidUTF8(name, "_")
	}
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, name)
	parts := strings.Split(name, "/")
	for i, p := range parts {
		if p == "" || p == "." || p == ".." {
			parts[i] = "_"
		}
	}
	return strings.Join(parts, "/")
}

package capture

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
)

// File is a captured request in the form of NPZ. It may come from anywhere: what ReadFile returns is consistent.
type File struct {
	inspect.TensorList

	entries map[string]*zip.File
	left    int64 // the bytes that the arrays may still have together
}

// Bounds of a file.
const (
	maxAbout    = 64 << 20 // the list of tensors
	maxExpanded = 1 << 30  // all arrays, unless the file itself is larger: a small one may expand to very much
	maxDims     = 64
)

// ReadFile reads the list of tensors of a file of size bytes. Content reads from r later. Errors are InvalidArg.
func ReadFile(r io.ReaderAt, size int64) (*File, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "is no .npz file: %w", err)
	}
	f := &File{entries: make(map[string]*zip.File, len(z.File)), left: max(size, maxExpanded)}
	for _, e := range z.File {
		name := strings.TrimSuffix(e.Name, ".npy")
		if f.entries[name] != nil {
			return nil, status.Errorf(status.InvalidArg, "has the array '%s' twice", name)
		}
		f.entries[name] = e
	}
	if f.entries[aboutName] == nil {
		return nil, status.Errorf(status.InvalidArg, "has no array '%s', expected a file of tutti capture", aboutName)
	}
	about, err := f.read(aboutName, maxAbout)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(about.data, &f.TensorList); err != nil {
		return nil, status.Errorf(status.InvalidArg, "has the list of tensors '%s', which cannot be parsed: %w", aboutName, err)
	}
	return f, f.check()
}

// check compares the list of tensors with what a capture writes.
func (f *File) check() error {
	if f.Model == "" {
		return status.Errorf(status.InvalidArg, "names no model in '%s'", aboutName)
	}
	seen := make(map[string]bool, len(f.List))
	for i := range f.List {
		x := &f.List[i]
		switch {
		case seen[x.Name]:
			return status.Errorf(status.InvalidArg, "lists tensor '%s' twice", x.Name)
		case tensor.ParseDType(x.Type) == tensor.Invalid:
			return status.Errorf(status.InvalidArg, "lists tensor '%s' of the unknown datatype '%s'", x.Name, x.Type)
		case len(x.Shape) > maxDims || tensor.Of(x.Shape...).Elements() < 0:
			return status.Errorf(status.InvalidArg, "lists tensor '%s' of the shape %v", x.Name, x.Shape)
		}
		seen[x.Name] = true
	}
	return nil
}

// Content returns the content of tensor i of the list, as tensors have it in memory: it has the elements of the tensor's type
// and shape, unless the capture itself recorded others, for which whole is false. The error of a tensor without content says why
// it has none.
func (f *File) Content(i int) (data []byte, whole bool, err error) {
	x := &f.List[i]
	if !x.HasContent {
		return nil, false, status.Errorf(status.Unavailable, "tensor '%s' has no content in the capture: %s", x.Name, x.Reason)
	}
	d, shape := tensor.ParseDType(x.Type), tensor.Of(x.Shape...)
	if f.entries[x.Name] == nil && d == tensor.Bytes {
		return f.texts(x.Name, shape)
	}
	a, err := f.read(x.Name, f.left)
	if err != nil {
		return nil, false, err
	}
	switch {
	case d != tensor.Bytes && a.descr == descrs[d] && tensor.Of(a.shape...).Equal(shape):
		return a.data, true, nil
	case d == tensor.Bytes && strings.HasPrefix(a.descr, "|S") && tensor.Of(a.shape...).Equal(shape):
		return fixedWidth(a), true, nil
	case a.descr == "|u1" && len(a.shape) == 1: // a content that did not fit when it was captured
		return a.data, false, nil
	}
	return nil, false, status.Errorf(status.InvalidArg, "array '%s' is %s %v, expected %s %v", x.Name, a.descr, a.shape, x.Type, x.Shape)
}

// fixedWidth returns the elements of an array of fixed-width bytes as a BYTES tensor.
func fixedWidth(a array) []byte {
	width, _ := strconv.Atoi(a.descr[2:])
	var b []byte
	for data := a.data; len(data) > 0; data = data[width:] {
		b = tensor.AppendBytes(b, bytes.TrimRight(data[:width], "\x00"))
	}
	return b
}

// texts reads a BYTES tensor that is stored as three arrays.
func (f *File) texts(name string, shape tensor.Shape) (out []byte, whole bool, err error) {
	wrong := func(what string) error {
		return status.Errorf(status.InvalidArg, "array '%s' %s", name, what)
	}
	if f.entries[name+".data"] == nil || f.entries[name+".offsets"] == nil {
		return nil, false, wrong("is listed and is not in the file")
	}
	data, err := f.read(name+".data", f.left)
	if err != nil {
		return nil, false, err
	}
	offsets, err := f.read(name+".offsets", f.left)
	if err != nil {
		return nil, false, err
	}
	n := shape.Elements()
	if data.descr != "|u1" || offsets.descr != "<i8" || int64(len(offsets.data)/8)-1 != n {
		return nil, false, wrong("is listed as " + strconv.FormatInt(n, 10) + " elements, and its offsets are of others")
	}
	begin := uint64(0)
	for i := range n {
		end := binary.LittleEndian.Uint64(offsets.data[8*(i+1):])
		if end < begin || end > uint64(len(data.data)) {
			return nil, false, wrong("has offsets outside of its data")
		}
		out = tensor.AppendBytes(out, data.data[begin:end])
		begin = end
	}
	return out, true, nil
}

// The parts of the header of a .npy file.
var (
	headerDescr   = regexp.MustCompile(`'descr':\s*'([<>|=]?[a-zA-Z]\d{1,9})'`)
	headerFortran = regexp.MustCompile(`'fortran_order':\s*False`)
	headerShape   = regexp.MustCompile(`'shape':\s*\(([0-9, ]*)\)`)
)

// read reads an array of at most this number of bytes.
func (f *File) read(name string, most int64) (a array, err error) {
	e := f.entries[name]
	if e == nil {
		return a, status.Errorf(status.InvalidArg, "array '%s' is listed and is not in the file", name)
	}
	broken := func(err error) error {
		return status.Errorf(status.InvalidArg, "array '%s' cannot be read: %w", name, err)
	}
	r, err := e.Open()
	if err != nil {
		return a, broken(err)
	}
	defer r.Close()
	size, err := a.readHeader(r)
	if err != nil {
		return a, broken(err)
	}
	if most = min(most, f.left); size > most {
		return a, status.Errorf(status.InvalidArg, "array '%s' has %d bytes by its header, expected at most %d", name, size, most)
	}
	var b bytes.Buffer // grows with what there is: a header is easily a lie
	if _, err := io.Copy(&b, io.LimitReader(r, size+1)); err != nil {
		return a, broken(err)
	}
	if int64(b.Len()) != size {
		return a, status.Errorf(status.InvalidArg, "array '%s' has another size than the %d bytes of its header", name, size)
	}
	f.left -= size
	a.name, a.data = name, b.Bytes()
	return a, nil
}

// readHeader reads the header of a .npy file and returns the size of the elements that follow.
func (a *array) readHeader(r io.Reader) (size int64, err error) {
	head := make([]byte, 10)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, err
	}
	if string(head[:8]) != "\x93NUMPY\x01\x00" {
		return 0, status.Errorf(status.InvalidArg, "it is no .npy of version 1.0")
	}
	text := make([]byte, binary.LittleEndian.Uint16(head[8:]))
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, err
	}
	descr, shape := headerDescr.FindSubmatch(text), headerShape.FindSubmatch(text)
	if descr == nil || shape == nil || !headerFortran.Match(text) {
		return 0, status.Errorf(status.InvalidArg, "its header is %q", text[:min(len(text), 100)])
	}
	a.descr, a.shape = string(descr[1]), []int64{}
	for part := range strings.SplitSeq(string(shape[1]), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || len(a.shape) == maxDims {
			return 0, status.Errorf(status.InvalidArg, "its shape is (%s)", shape[1])
		}
		a.shape = append(a.shape, n)
	}
	width, _ := strconv.ParseInt(strings.TrimLeft(a.descr, "<>|=abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), 10, 64)
	n := tensor.Of(a.shape...).Elements()
	if n < 0 || width == 0 || n > (1<<62)/width {
		return 0, status.Errorf(status.InvalidArg, "its shape is (%s)", shape[1])
	}
	return n * width, nil
}

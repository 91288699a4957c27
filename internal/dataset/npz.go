package dataset

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// npzFiles reads arrays of numpy: .npz, a zip file of them, and .npy, a single one. The rows are their first axis.
type npzFiles struct{}

func (npzFiles) extensions() []string { return []string{".npz", ".npy"} }
func (npzFiles) byOffset() bool       { return false }

// npyColumn is the column of a .npy.
const npyColumn = "data"

// array is one array of a file.
type array struct {
	name  string
	dtype tensor.DType
	swap  bool    // big-endian
	rows  int64   // the first axis
	shape []int64 // of a row
	size  int64   // of a row in bytes
	entry *zip.File
	start int64 // of the elements: in the file if it is stored, else in the entry
	plain bool  // the elements are in the file as they are
}

// maxHeader bounds the header of an array in bytes.
const maxHeader = 1 << 20

var (
	npyDescr   = regexp.MustCompile(`'descr':\s*('([^']*)'|\[)`)
	npyFortran = regexp.MustCompile(`'fortran_order':\s*(True|False)`)
	npyShape   = regexp.MustCompile(`'shape':\s*\(([0-9, ]*)\)`)
)

// readHeader reads the header of an array, and the axes and the type that it says.
func (a *array) readHeader(r io.Reader) error {
	var b [12]byte
	if _, err := io.ReadFull(r, b[:8]); err != nil || string(b[:6]) != "\x93NUMPY" {
		return a.invalid(err, "is no array of numpy")
	}
	n := 2
	if b[6] > 1 {
		n = 4
	}
	if _, err := io.ReadFull(r, b[8:8+n]); err != nil {
		return a.invalid(err, "has a broken header")
	}
	length := int64(binary.LittleEndian.Uint16(b[8:]))
	if n == 4 {
		length = int64(binary.LittleEndian.Uint32(b[8:]))
	}
	if length > maxHeader {
		return a.invalid(nil, "has a header of "+strconv.FormatInt(length, 10)+" bytes")
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return a.invalid(err, "has a broken header")
	}
	a.start = 8 + int64(n) + length
	return a.parse(string(text))
}

// invalid is the error for an array that cannot be read.
func (a *array) invalid(err error, text string) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return status.Errorf(status.InvalidArg, "array '%s' %s", a.name, text)
}

func (a *array) parse(header string) error {
	descr, fortran, shape := npyDescr.FindStringSubmatch(header), npyFortran.FindStringSubmatch(header), npyShape.FindStringSubmatch(header)
	if descr == nil || fortran == nil || shape == nil {
		return a.invalid(nil, "has a broken header: "+strconv.Quote(header[:min(len(header), 100)]))
	}
	if err := a.setType(descr[2], descr[1] == "["); err != nil {
		return err
	}
	dims := []int64{}
	for s := range strings.SplitSeq(shape[1], ",") {
		if s = strings.TrimSpace(s); s != "" {
			d, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return a.invalid(nil, "has the shape ("+shape[1]+")")
			}
			dims = append(dims, d)
		}
	}
	n := tensor.Of(dims...).Elements()
	switch {
	case len(dims) == 0:
		return a.invalid(nil, "is a single value, and has no axis for the rows")
	case n < 0 || n > 1<<50:
		return a.invalid(nil, "has the shape ("+shape[1]+")")
	case fortran[1] == "True" && len(dims) > 1 && n > 0:
		return a.invalid(nil, "is in Fortran order, in which rows are not together; save numpy.ascontiguousarray of it")
	}
	a.rows, a.shape = dims[0], dims[1:]
	a.size = tensor.Of(a.shape...).Elements() * int64(a.dtype.Size())
	if a.size < 0 || a.size > maxLine {
		return a.invalid(nil, "has rows of the shape "+shapeText(a.shape)+", more than "+strconv.Itoa(maxLine>>20)+" MiB each")
	}
	return nil
}

// npyTypes are the types of numpy, without their byte order.
var npyTypes = map[string]tensor.DType{
	"b1": tensor.Bool, "i1": tensor.Int8, "i2": tensor.Int16, "i4": tensor.Int32, "i8": tensor.Int64,
	"u1": tensor.Uint8, "u2": tensor.Uint16, "u4": tensor.Uint32, "u8": tensor.Uint64,
	"f2": tensor.FP16, "f4": tensor.FP32, "f8": tensor.FP64,
}

// npyNames are the names of the types that are refused.
var npyNames = map[byte]string{
	'U': "strings", 'S': "byte strings", 'a': "byte strings", 'O': "Python objects", 'c': "complex numbers", 'M': "dates", 'm': "time differences",
	'V': "raw memory (void)", 'f': "long floats",
}

func (a *array) setType(descr string, fields bool) error {
	if fields {
		return status.Errorf(status.Unsupported, "unsupported: array '%s' is a structured array; save its fields as arrays of their own", a.name)
	}
	d, ok := npyTypes[strings.TrimLeft(descr, "<>|=")]
	if !ok {
		kind := "unknown elements"
		if s := strings.TrimLeft(descr, "<>|="); s != "" && npyNames[s[0]] != "" {
			kind = npyNames[s[0]]
		}
		return status.Errorf(status.Unsupported, "unsupported: array '%s' has the type '%s' (%s); expected numbers or booleans, or use jsonl, csv or parquet for text", a.name, descr, kind)
	}
	a.dtype, a.swap = d, strings.HasPrefix(descr, ">")
	return nil
}

// arrays reads the headers of the arrays that want names, or of all.
func (npzFiles) arrays(ctx context.Context, src *source, f *randomFile, want func(string) bool) ([]*array, error) {
	if strings.EqualFold(path.Ext(src.file.key), ".npy") {
		a := &array{name: npyColumn, plain: true}
		if !want(a.name) {
			return nil, nil
		}
		if err := a.readHeader(io.NewSectionReader(f, 0, src.file.size)); err != nil {
			return nil, err
		}
		if need := a.start + a.rows*a.size; need > src.file.size {
			return nil, status.Errorf(status.InvalidArg, "the file has %d bytes, and its header says %d", src.file.size, need)
		}
		return []*array{a}, nil
	}
	z, err := zip.NewReader(f, src.file.size)
	if err != nil {
		return nil, fileError(err, "not a zip file of arrays")
	}
	var list []*array
	for _, e := range z.File {
		name, ok := strings.CutSuffix(e.Name, ".npy")
		if !ok || !want(name) {
			continue
		}
		a := &array{name: name, entry: e}
		if err := a.open(); err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, ctx.Err()
}

// fileError is the error for a file that is not of its format.
func fileError(err error, what string) error {
	if errors.As(err, new(*status.Error)) {
		return err
	}
	return status.Errorf(status.InvalidArg, "%s: %w", what, err)
}

// open reads the header of an entry of a zip file.
func (a *array) open() error {
	r, err := a.entry.Open()
	if err != nil {
		return fileError(err, "array '"+a.name+"'")
	}
	defer r.Close()
	if err := a.readHeader(r); err != nil {
		return fileError(err, "array '"+a.name+"'")
	}
	if need := uint64(a.start + a.rows*a.size); need != a.entry.UncompressedSize64 {
		return status.Errorf(status.InvalidArg, "array '%s' has %d bytes, and its header says %d", a.name, a.entry.UncompressedSize64, need)
	}
	if a.entry.Method == zip.Store {
		off, err := a.entry.DataOffset()
		if err != nil {
			return fileError(err, "array '"+a.name+"'")
		}
		a.start, a.plain = a.start+off, true
	}
	return nil
}

func (n npzFiles) columns(ctx context.Context, src *source) ([]Column, error) {
	f, err := src.random(ctx)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := n.arrays(ctx, src, f, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, status.Errorf(status.InvalidArg, "the file has no arrays")
	}
	columns := make([]Column, len(list))
	for i, a := range list {
		columns[i] = Column{Name: a.name, Kind: Tensor, DType: a.dtype, Shape: a.shape}
	}
	return columns, nil
}

func (n npzFiles) scan(ctx context.Context, src *source, sl *Slice, sel *selection, reuse bool, yield func(*record) bool) (err error) {
	f, err := src.random(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := n.arrays(ctx, src, f, func(name string) bool { return slices.Contains(sel.names, name) })
	if err != nil || len(list) == 0 {
		return err
	}
	for _, a := range list[1:] {
		if a.rows != list[0].rows {
			return status.Errorf(status.InvalidArg, "array '%s' has %d rows, and '%s' has %d", list[0].name, list[0].rows, a.name, a.rows)
		}
	}
	rows := list[0].rows - sl.Row
	if sl.Rows > 0 {
		rows = min(rows, sl.Rows)
	}
	readers := make([]io.Reader, len(list))
	for i, a := range list {
		r, err := a.from(ctx, src, sl.Row, rows)
		if err != nil {
			return err
		}
		defer r.Close()
		readers[i] = bufio.NewReaderSize(r, int(min(max(a.size, 4096)*4, blockSize)))
	}
	return stream(list, readers, sl.Row, rows, sel, reuse, yield)
}

// from opens the elements of some rows.
func (a *array) from(ctx context.Context, src *source, row, rows int64) (io.ReadCloser, error) {
	if rows <= 0 || a.size == 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if a.plain && (a.entry == nil || row > 0 || rows < a.rows) {
		return src.store.open(ctx, src.file, a.start+row*a.size, rows*a.size)
	}
	r, err := a.entry.Open() // from the begin: a checksum is checked at the end
	if err != nil {
		return nil, fileError(err, "array '"+a.name+"'")
	}
	skip := a.start + row*a.size
	if a.plain {
		off, err := a.entry.DataOffset()
		if err != nil {
			return nil, errors.Join(fileError(err, "array '"+a.name+"'"), r.Close())
		}
		skip = a.start - off
	}
	if _, err := io.CopyN(io.Discard, r, skip); err != nil {
		return nil, errors.Join(fileError(err, "array '"+a.name+"'"), r.Close())
	}
	return r, nil
}

// stream reads the rows of arrays side by side.
func stream(list []*array, readers []io.Reader, first, rows int64, sel *selection, reuse bool, yield func(*record) bool) error {
	total := int64(0)
	for _, a := range list {
		total += a.size
	}
	var cells cellArena
	var data []byte
	rec := record{}
	for i := range rows {
		if rec.cells == nil || !reuse {
			rec.cells = cells.take(len(sel.names))
		}
		if reuse && i > 0 {
			data = data[:0]
		} else if int64(cap(data)-len(data)) < total {
			data = make([]byte, 0, max(total, blockSize))
		}
		for j, a := range list {
			from := len(data)
			data = data[:from+int(a.size)]
			if _, err := io.ReadFull(readers[j], data[from:]); err != nil {
				return fileError(err, fmt.Sprintf("array '%s', row %d", a.name, first+i))
			}
			if a.swap {
				swapBytes(data[from:], a.dtype.Size())
			}
			rec.cells[sel.index[a.name]] = Cell{Kind: Tensor, DType: a.dtype, Shape: a.shape, Data: data[from:len(data):len(data)]}
		}
		rec.line = first + i
		if !yield(&rec) {
			return nil
		}
	}
	return readEnds(list, readers)
}

// readEnds reads to the end of compressed arrays, where their checksum is checked.
func readEnds(list []*array, readers []io.Reader) error {
	for i, a := range list {
		if a.entry == nil || a.plain {
			continue
		}
		if _, err := io.CopyN(io.Discard, readers[i], 1); err != nil && !errors.Is(err, io.EOF) {
			return fileError(err, "array '"+a.name+"'")
		}
	}
	return nil
}

func swapBytes(b []byte, size int) {
	for i := 0; i+size <= len(b); i += size {
		slices.Reverse(b[i : i+size])
	}
}

package dataset

import (
	"context"
	"io"
	"iter"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cloud"
)

// Options configure Open and OpenOutput. Nil is the zero value.
type Options struct {
	// Env looks up the variables with the credentials of buckets. Nil: os.Getenv.
	Env func(string) string
	// OpenBucket opens the folder of a bucket. Nil: cloud.Open.
	OpenBucket func(ctx context.Context, address string) (cloud.Bucket, error)

	_ struct{}
}

func (o *Options) open(ctx context.Context, address string) (cloud.Bucket, error) {
	if o != nil && o.OpenBucket != nil {
		return o.OpenBucket(ctx, address)
	}
	env := os.Getenv
	if o != nil && o.Env != nil {
		env = o.Env
	}
	return cloud.Open(ctx, address, &cloud.Options{Env: env})
}

// Column is a column of a dataset, as its header, its schema or its first rows say.
type Column struct {
	Name string
	// Kind is the kind of its cells; Missing when it is not known.
	Kind Kind
	// DType is the type of the elements of a Tensor, and Bytes for strings. Invalid: not known, or of JSON and CSV, where a
	// value fits any type that can hold it.
	DType tensor.DType
	// Shape is that of a Tensor in one row; -1 is any extent. Nil: not known.
	Shape []int64
	// Sample is the kind of the first value of a JSON column: "a number", "a string", "a boolean", "an object". For lists it is
	// that of the first element.
	Sample string
	Binary bool // the Bytes are no text
	// Nullable marks a column of which a row may have no value.
	Nullable bool
}

// sampleRows is the number of rows that say which columns a dataset has, where no schema does.
const sampleRows = 100

// format reads the files of one format.
type format interface {
	extensions() []string
	// byOffset reports whether a slice of a file is a range of bytes; else it is a range of rows.
	byOffset() bool
	columns(ctx context.Context, src *source) ([]Column, error)
	// scan calls yield for each row of a slice until it returns false. With reuse, the record's memory is valid until yield
	// returns; else it may be kept.
	scan(ctx context.Context, src *source, sl *Slice, sel *selection, reuse bool, yield func(*record) bool) error
}

// record is a row as its format gives it. It is reused for the next row.
type record struct {
	cells      []Cell
	err        error
	raw        []byte // what cannot be read, for the key of a row with an error
	start, end int64  // the bytes of the row; of a format with byOffset
	line       int64  // from 1; without byOffset the number of the row in the file, from 0, or -1 if the file is the row
	row        int64  // in the file, from 0; set by Set.scan
}

// formats are all of them by name.
func formats() map[string]format {
	return map[string]format{
		"jsonl":   jsonLines{},
		"csv":     csvFiles{},
		"parquet": parquetFiles{},
		"npz":     npzFiles{},
		"images":  wholeFiles{"image", []string{".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"}},
		"texts":   wholeFiles{"text", []string{".txt", ".text", ".md", ".html"}},
	}
}

// FormatNames returns the names of the formats that Open reads, sorted.
func FormatNames() []string {
	var names []string
	for n := range formats() {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// formatOf returns the format that a file's name says, "" for none.
func formatOf(key string) string {
	name := strings.ToLower(path.Base(plainName(key)))
	for n, f := range formats() {
		if compressed(key) && !f.byOffset() {
			continue // only texts are compressed as a whole
		}
		if slices.Contains(f.extensions(), path.Ext(name)) {
			return n
		}
	}
	return ""
}

// Set is a dataset. It is safe for concurrent use.
type Set struct {
	uri    string
	place  *place
	name   string // of the format
	format format
	named  bool // the format was given
	all    bool // every file that the URI names counts, whatever its ending
	sel    *selection
}

// Open finds the files of a dataset and their format. It reads nothing but the list of the files. Errors have the code
// NotFound for a dataset that is not there, InvalidArg for a place that is none, Unsupported for an unknown format and
// Unavailable for what may pass.
func Open(ctx context.Context, at job.Place, o *Options) (*Set, error) {
	p, err := resolve(ctx, at.URI, o)
	if err != nil {
		return nil, err
	}
	s := &Set{uri: at.URI, place: p, name: at.Format, named: at.Format != ""}
	s.all = s.named && (wild(p.pattern) || path.Ext(p.prefix) != "")
	known := FormatNames()
	if s.named && !slices.Contains(known, at.Format) {
		return nil, status.Errorf(status.Unsupported, "unsupported: format '%s' of the dataset '%s', expected %s", at.Format, at.URI, strings.Join(known, ", "))
	}
	var other string
	for f, err := range p.files(ctx) {
		if err != nil {
			return nil, status.Prefixf(err, "dataset '%s': ", at.URI)
		}
		guess := formatOf(f.key)
		if !s.named && guess != "" {
			s.name = guess
		}
		if s.name != "" && (s.all || guess == s.name) {
			s.format = formats()[s.name]
			return s, nil
		}
		other = f.key
	}
	switch {
	case other == "":
		return nil, status.Errorf(status.NotFound, "dataset '%s' is not there: no file matches", at.URI)
	case s.named:
		return nil, status.Errorf(status.NotFound, "dataset '%s' has no file of the format %s (%s); it has '%s'",
			at.URI, s.name, strings.Join(formats()[s.name].extensions(), ", "), other)
	}
	return nil, status.Errorf(status.InvalidArg, "dataset '%s': the name of '%s' says no format; give one of %s", at.URI, other, strings.Join(known, ", "))
}

// Format returns the name of the format.
func (s *Set) Format() string { return s.name }

// source is one file of a dataset.
type source struct {
	store  store
	file   file
	prefix string // the last element of the URI
}

// label is the file's name below the folder that the URI names, or the name of the file that it names.
func (s *source) label() string {
	if rest, ok := strings.CutPrefix(s.file.key, s.prefix+"/"); ok && s.prefix != "" {
		return rest
	}
	return s.file.key
}

// open reads the bytes of a slice.
func (s *source) open(ctx context.Context, sl *Slice) (io.ReadCloser, error) {
	n := sl.Length
	if n == 0 {
		n = -1
	}
	body, err := s.store.open(ctx, s.file, sl.Offset, n)
	if err != nil {
		return nil, err
	}
	return decompress(s.file.key, body)
}

// sources lists the files of the dataset's format.
func (s *Set) sources(ctx context.Context) iter.Seq2[*source, error] {
	return func(yield func(*source, error) bool) {
		for f, err := range s.place.files(ctx) {
			if err != nil {
				yield(nil, status.Prefixf(err, "dataset '%s': ", s.uri))
				return
			}
			guess := formatOf(f.key)
			switch {
			case s.all, guess == s.name:
			case guess != "" && !s.named:
				yield(nil, status.Errorf(status.InvalidArg, "dataset '%s' has files of several formats, %s and '%s'; give the format of those to read", s.uri, s.name, f.key))
				return
			default:
				continue
			}
			if !yield(&source{s.place.store, f, s.place.prefix}, nil) {
				return
			}
		}
	}
}

// Columns returns the columns of the first file that has any: of its header or schema, or of its first 100 rows. Files of JSON Lines
// without rows have none.
func (s *Set) Columns(ctx context.Context) ([]Column, error) {
	empty := false
	for src, err := range s.sources(ctx) {
		if err != nil {
			return nil, err
		}
		list, err := s.format.columns(ctx, src)
		if err != nil {
			return nil, failed(src, err)
		}
		if len(list) > 0 {
			return list, nil
		}
		empty = true
	}
	if empty {
		return nil, nil
	}
	return nil, status.Errorf(status.NotFound, "dataset '%s' is not there: no file matches", s.uri)
}

// failed names the file in an error.
func failed(src *source, err error) error {
	if name := src.store.name(src.file.key); !strings.Contains(err.Error(), name) {
		return status.Prefixf(err, "file '%s': ", name)
	}
	return err
}

// Select returns the dataset with the named columns only: the cells of its rows are in their order. The key of a row and
// the checksum of a chunk depend on these columns alone. A column that a row or a file does not have gives Missing cells.
func (s *Set) Select(names ...string) *Set {
	c := *s
	c.sel = newSelection(slices.Clone(names))
	return &c
}

// selected returns the selection; without one these are all columns.
func (s *Set) selected(ctx context.Context) (*selection, error) {
	if s.sel != nil {
		return s.sel, nil
	}
	columns, err := s.Columns(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(columns))
	for i := range columns {
		names[i] = columns[i].Name
	}
	return newSelection(names), nil
}

// columnSet collects the columns of JSON objects in the order of their first appearance.
type columnSet struct {
	list  []Column
	index map[string]int
}

func (c *columnSet) add(name string, value []byte) {
	i, ok := c.index[name]
	if !ok {
		if c.index == nil {
			c.index = map[string]int{}
		}
		i = len(c.list)
		c.index[name] = i
		c.list = append(c.list, Column{Name: name, Kind: JSON})
	}
	if c.list[i].Sample == "" && value[0] != 'n' {
		for value[0] == '[' {
			value = value[skipSpace(value, 1):]
		}
		if value[0] != ']' && value[0] != 'n' {
			c.list[i].Sample = kindOf(value[0])
		}
	}
}

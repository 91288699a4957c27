package dataset

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// csvFiles reads CSV with a header, as in RFC 4180: fields in quotes may have commas, newlines and doubled quotes.
type csvFiles struct{}

func (csvFiles) extensions() []string { return []string{".csv", ".tsv"} }
func (csvFiles) byOffset() bool       { return true }

// header returns the names of the columns, and the reader behind them.
func (csvFiles) header(src *source, body io.Reader, reuse bool) (*csvReader, []string, error) {
	r := &csvReader{lines: lineReader{src: body, reuse: reuse}, comma: ','}
	if strings.EqualFold(path.Ext(plainName(src.file.key)), ".tsv") {
		r.comma = '\t'
	}
	if err := r.next(); err != nil {
		if errors.Is(err, io.EOF) {
			err = status.Errorf(status.InvalidArg, "expected a header with the names of the columns, found an empty file")
		}
		return nil, nil, err
	}
	if r.fault != nil {
		return nil, nil, status.Errorf(status.InvalidArg, "the header: %w", r.fault)
	}
	names, seen := make([]string, len(r.fields)), map[string]bool{}
	for i, f := range r.fields {
		names[i] = string(f)
		if seen[names[i]] {
			return nil, nil, status.Errorf(status.InvalidArg, "the header has two columns '%s'", names[i])
		}
		seen[names[i]] = true
	}
	return r, names, nil
}

func (c csvFiles) columns(ctx context.Context, src *source) ([]Column, error) {
	body, err := src.open(ctx, &Slice{})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	_, names, err := c.header(src, body, true)
	if err != nil {
		return nil, err
	}
	list := make([]Column, len(names))
	for i, n := range names {
		list[i] = Column{Name: n, Kind: Field}
	}
	return list, nil
}

func (c csvFiles) scan(ctx context.Context, src *source, sl *Slice, sel *selection, reuse bool, yield func(*record) bool) error {
	body, err := src.open(ctx, &Slice{})
	if err != nil {
		return err
	}
	defer func() { body.Close() }()
	r, names, err := c.header(src, body, reuse)
	if err != nil {
		return err
	}
	if sl.Offset > r.lines.off { // the rows are farther behind the header
		_ = body.Close() // nothing was written
		if body, err = src.open(ctx, sl); err != nil {
			return err
		}
		r = &csvReader{lines: lineReader{src: body, off: sl.Offset, reuse: reuse}, comma: r.comma, line: sl.Line - 1}
	}
	to := make([]int, len(names)) // the cell of each field
	for i, n := range names {
		to[i] = -1
		if at, ok := sel.index[n]; ok {
			to[i] = at
		}
	}
	end := sl.Offset + sl.Length
	var arena cellArena
	var rec record
	for sl.Length == 0 || r.lines.off < end {
		if err := r.next(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		rec.raw, rec.err, rec.start, rec.end, rec.line = r.raw, r.fault, r.start, r.lines.off, r.first
		if rec.err == nil && len(r.fields) != len(names) {
			rec.err = status.Errorf(status.InvalidArg, "expected %d fields, as in the header, found %d", len(names), len(r.fields))
		}
		if rec.cells == nil || !reuse {
			rec.cells = arena.take(len(sel.names))
		} else {
			clear(rec.cells)
		}
		if rec.err == nil {
			for i, at := range to {
				if at >= 0 {
					rec.cells[at] = Cell{Kind: Field, Data: r.fields[i]}
				}
			}
		}
		if !yield(&rec) {
			return nil
		}
	}
	return nil
}

// csvReader splits a file into records.
type csvReader struct {
	lines  lineReader
	comma  byte
	line   int64 // that was read last, from 1
	fields [][]byte
	raw    []byte
	owned  bool  // raw has memory of its own
	fault  error // of the record
	start  int64 // the offset of the record
	first  int64 // its first line
}

// next reads a record. Blank lines are skipped.
func (r *csvReader) next() error {
	for {
		line, off, tooLong, err := r.lines.next()
		if err != nil {
			return err
		}
		if r.line++; off == 0 {
			line = trimBOM(line)
		}
		if len(bytes.TrimRight(line, "\r")) == 0 && !tooLong {
			continue
		}
		r.raw, r.start, r.first, r.fields, r.fault, r.owned = line, off, r.line, r.fields[:0], nil, false
		if tooLong {
			r.fault = status.Errorf(status.InvalidArg, "the record is longer than %d MiB", maxLine>>20)
			return nil
		}
		return r.record()
	}
}

// record splits r.raw into fields. It reads more lines while a quoted field is open.
func (r *csvReader) record() error {
	for i := 0; ; {
		if i < len(r.raw) && r.raw[i] == '"' {
			field, end, err := r.quoted(i)
			if err != nil || r.fault != nil {
				return err
			}
			r.fields, i = append(r.fields, field), end
		} else {
			field := r.raw[i:]
			at := bytes.IndexByte(field, r.comma)
			if at >= 0 {
				field = field[:at]
			} else {
				field = bytes.TrimSuffix(field, []byte{'\r'})
			}
			if q := bytes.IndexByte(field, '"'); q >= 0 && r.comma == ',' {
				r.fault = status.Errorf(status.InvalidArg, "field %d has a quote at byte %d, but does not start with one; a quote is doubled in a field in quotes", len(r.fields)+1, q+1)
				return nil
			}
			r.fields = append(r.fields, field)
			if i += len(field); at < 0 {
				return nil
			}
		}
		switch {
		case i >= len(r.raw) || i == len(r.raw)-1 && r.raw[i] == '\r':
			return nil
		case r.raw[i] != r.comma:
			r.fault = status.Errorf(status.InvalidArg, "field %d: expected '%c' behind the closing quote, found %q", len(r.fields), r.comma, r.raw[i])
			return nil
		}
		i++
	}
}

// quoted returns the field that starts with the quote at i, and the index behind its closing quote.
func (r *csvReader) quoted(i int) (field []byte, end int, err error) {
	begin, doubled := i+1, false
	for i = begin; ; {
		q := bytes.IndexByte(r.raw[i:], '"')
		switch {
		case q >= 0 && i+q+1 < len(r.raw) && r.raw[i+q+1] == '"':
			doubled = true
			i += q + 2
		case q >= 0:
			field = r.raw[begin : i+q : i+q]
			if doubled {
				field = bytes.ReplaceAll(field, []byte(`""`), []byte{'"'})
			}
			return field, i + q + 1, nil
		default:
			i = len(r.raw) + 1 // behind the newline
			if err := r.more(); err != nil || r.fault != nil {
				return nil, 0, err
			}
		}
	}
}

// more appends the next line to the record.
func (r *csvReader) more() error {
	if !r.owned { // the memory is that of the line reader, which reuses it
		r.raw, r.owned = bytes.Clone(r.raw), true
		for i, f := range r.fields {
			r.fields[i] = bytes.Clone(f)
		}
	}
	line, _, tooLong, err := r.lines.next()
	ends := errors.Is(err, io.EOF)
	if err != nil && !ends {
		return err
	}
	if ends || tooLong || len(r.raw)+len(line) > maxLine {
		r.fault = status.Errorf(status.InvalidArg, "field %d starts with a quote and does not end", len(r.fields)+1)
		return nil
	}
	r.line++
	r.raw = append(append(r.raw, '\n'), line...)
	return nil
}

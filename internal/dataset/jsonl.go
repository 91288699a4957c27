package dataset

import (
	"context"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/status"
)

// jsonLines reads JSON Lines: one object per line.
type jsonLines struct{}

func (jsonLines) extensions() []string { return []string{".jsonl", ".ndjson"} }
func (jsonLines) byOffset() bool       { return true }

// columns returns the names of the first rows.
func (j jsonLines) columns(ctx context.Context, src *source) ([]Column, error) {
	var found columnSet
	n := 0
	err := j.lines(ctx, src, &Slice{}, true, func(_ *record, line []byte) bool {
		if i := skipSpace(line, 0); i < len(line) && line[i] == '{' {
			_, _ = skipObject(line, i, 0, func(name, value []byte) { // a broken row is reported when it is read
				found.add(string(unquote(nil, name)), value)
			})
		}
		n++
		return n < sampleRows
	})
	return found.list, err
}

func (j jsonLines) scan(ctx context.Context, src *source, sl *Slice, sel *selection, reuse bool, yield func(*record) bool) error {
	var arena cellArena
	var cells []Cell
	var name []byte
	return j.lines(ctx, src, sl, reuse, func(rec *record, line []byte) bool {
		if cells == nil || !reuse {
			cells = arena.take(len(sel.names))
		} else {
			clear(cells)
		}
		rec.cells = cells
		if rec.err == nil {
			name, rec.err = splitObject(line, sel, cells, name)
		}
		return yield(rec)
	})
}

// lines calls yield for each line that is not blank.
func (jsonLines) lines(ctx context.Context, src *source, sl *Slice, reuse bool, yield func(rec *record, line []byte) bool) error {
	body, err := src.open(ctx, sl)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := lineReader{src: body, off: sl.Offset, reuse: reuse}
	rec := record{line: max(sl.Line, 1) - 1}
	for {
		line, off, tooLong, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		rec.line++
		if off == 0 {
			line = trimBOM(line)
		}
		if skipSpace(line, 0) == len(line) && !tooLong {
			continue
		}
		rec.raw, rec.start, rec.end, rec.err = line, off, lines.off, nil
		if tooLong {
			rec.err = status.Errorf(status.InvalidArg, "the line is longer than %d MiB", maxLine>>20)
		}
		if !yield(&rec, line) {
			return nil
		}
	}
}

// trimBOM removes the mark that some editors put in front of UTF-8.
func trimBOM(b []byte) []byte {
	if len(b) >= 3 && b[0] == 0xEF && b[1] == 0xBB && b[2] == 0xBF {
		return b[3:]
	}
	return b
}

// splitObject reads a row: the members of an object that are selected. Of several members of one name the last counts.
// name is memory for a name with escapes.
func splitObject(line []byte, sel *selection, cells []Cell, name []byte) ([]byte, error) {
	if !utf8.Valid(line) {
		return name, status.Errorf(status.InvalidArg, "not UTF-8")
	}
	i := skipSpace(line, 0)
	if line[i] != '{' {
		if _, err := skipValue(line, i, 0); err != nil {
			return name, status.Errorf(status.InvalidArg, "%w", err)
		}
		return name, status.Errorf(status.InvalidArg, "expected an object, for example {\"text\": \"...\"}, found %s", kindOf(line[i]))
	}
	guess := 0
	end, err := skipObject(line, i, 0, func(quoted, value []byte) {
		plain := quoted[1 : len(quoted)-1]
		if guess >= len(sel.names) || sel.names[guess] != string(plain) {
			name = unquote(name[:0], quoted)
			at, ok := sel.index[string(name)]
			if !ok {
				return
			}
			guess = at
		}
		cells[guess] = Cell{Kind: JSON, Data: value}
		if value[0] == 'n' {
			cells[guess] = Cell{Kind: Null}
		}
		guess++
	})
	if err == nil {
		if end = skipSpace(line, end); end < len(line) {
			err = expected(line, end, "the end of the line")
		}
	}
	if err != nil {
		clear(cells)
		return name, status.Errorf(status.InvalidArg, "%w", err)
	}
	return name, nil
}

// kindOf names the kind of the JSON value that starts with c.
func kindOf(c byte) string {
	switch c {
	case '"':
		return "a string"
	case '[':
		return "a list"
	case '{':
		return "an object"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

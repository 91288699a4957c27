package dataset

import (
	"context"
	"io"

	"github.com/tutti-server/tutti/core/status"
)

// wholeFiles reads a folder of files, each of which is one row: images, or texts.
type wholeFiles struct {
	content string // the column with the content
	endings []string
}

func (w wholeFiles) extensions() []string { return w.endings }
func (wholeFiles) byOffset() bool         { return false }

// pathColumn has the name of the file below the folder.
const pathColumn = "path"

func (w wholeFiles) columns(context.Context, *source) ([]Column, error) {
	return []Column{{Name: w.content, Kind: Bytes, Binary: w.content == "image"}, {Name: pathColumn, Kind: Bytes}}, nil
}

func (w wholeFiles) scan(ctx context.Context, src *source, _ *Slice, sel *selection, _ bool, yield func(*record) bool) error {
	rec := record{cells: make([]Cell, len(sel.names)), line: -1}
	if i, ok := sel.index[pathColumn]; ok {
		rec.cells[i] = Cell{Kind: Bytes, Data: []byte(src.label())}
	}
	if i, ok := sel.index[w.content]; ok {
		if src.file.size > maxLine {
			rec.raw = []byte(src.file.tag)
			rec.err = status.Errorf(status.InvalidArg, "the file has %d bytes, more than %d", src.file.size, maxLine)
			yield(&rec)
			return nil
		}
		body, err := src.open(ctx, &Slice{})
		if err != nil {
			return err
		}
		defer body.Close()
		data := make([]byte, src.file.size)
		if _, err := io.ReadFull(body, data); err != nil {
			return err
		}
		rec.cells[i] = Cell{Kind: Bytes, Data: data}
	}
	yield(&rec)
	return nil
}
